// Finds the table of each file and checks its header, before anything is sent.
// The rules are those of `kopi submit`: <table>/<table>.csv or <table>/<table>_YYYYMM.csv, folders perhaps numbered or
// missing, names in any case, files perhaps compressed. Browsers expand gzip only.
import { headerOf, inLayoutCase, namesIn, separatorOf } from "./cut.js";

const SEPARATOR_NAMES = { ";": "semicolons", "\t": "tabs" };
const ELSEWHERE = "unpack it first, or send it with kopi submit";

/** A file as it was dropped or picked; `path` has the folders above it. */
export const picked = (file, path = file.webkitRelativePath || file.name) => ({
  file,
  path: path.replace(/^\//, ""),
});

/** Everything below what was dropped, folders included. */
export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const found = [];
  for (const entry of entries) await walk(entry, found);
  return found;
}

async function walk(entry, found) {
  if (entry.isFile) {
    found.push(picked(await readable(entry, (...how) => entry.file(...how)), entry.fullPath));
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const batch = await readable(entry, (...how) => reader.readEntries(...how));
    if (!batch.length) return;
    for (const child of batch) await walk(child, found);
  }
}

function readable({ fullPath }, read) {
  return new Promise(read).catch((error) => {
    throw new Error(`${fullPath.replace(/^\//, "")} cannot be read: ${error.message}`);
  });
}

/** {tables: {name: [picked]}, ignored: [path]}; `names` are those of all tables that may be there. */
export function recognize(files, names) {
  const found = Object.fromEntries(names.map((table) => [table, []]));
  const ignored = [];
  for (const one of files) {
    const place = placeOf(one.path, names);
    if (place) found[place.table].push({ ...one, ...place });
    else ignored.push(one.path);
  }
  const tables = Object.fromEntries(Object.entries(found).map(([table, own]) => [table, inFolder(own, ignored)]));
  for (const own of Object.values(tables)) own.sort((a, b) => (a.plain < b.plain ? -1 : 1));
  return { tables, ignored };
}

/** Files in the folder of their table come before files of other folders. */
function inFolder(files, ignored) {
  const own = files.filter(({ isFlat }) => !isFlat);
  if (!own.length) return files;
  ignored.push(...files.filter(({ isFlat }) => isFlat).map(({ path }) => path));
  return own;
}

/** {flaws, notes}: why these files cannot be sent, and what is inferred about them. `needed` has the columns of tables. */
export async function inspect(tables, needed, ignored) {
  const found = await Promise.all(
    Object.entries(needed).map(([table, columns]) => inspectTable(table, tables[table] ?? [], columns)),
  );
  const flaws = found.flatMap((own) => own.flaws);
  const archive = ignored.find((path) => /\.zip$/i.test(path));
  if (archive && flaws.length) flaws.unshift(`${archive}: archives cannot be opened in the browser; ${ELSEWHERE}.`);
  return { flaws, notes: [...notesOnNames(tables, needed), ...found.flatMap((own) => own.notes)] };
}

/** A file without the folder of its table is known by its name alone: {table, plain, isFlat}. */
function placeOf(path, names) {
  const parts = path.split("/");
  const name = parts.pop();
  const isFolder = (table) => new RegExp(`^(\\d+\\.\\s*)?${table}$`, "i").test(parts.at(-1) ?? "");
  for (const table of names) {
    const [, rest] = new RegExp(`^${table}(_.*)?\\.csv(?:\\.gz|\\.zst)?$`, "is").exec(name) ?? [null, null];
    if (rest === null) continue;
    const plain = `${table}${rest ?? ""}.csv`;
    if (isFolder(table)) return { table, plain, isFlat: false };
    if (parts.length < 2 && !names.some(isFolder)) return { table, plain, isFlat: true };
  }
  return null;
}

async function inspectTable(table, files, columns) {
  const refused = (...flaws) => ({ flaws, notes: [] });
  if (!files.length)
    return refused(`No table ${table}: expected a folder ${table}/ with ${table}.csv or ${table}_YYYYMM.csv.`);
  const folders = [...new Set(files.map(({ path }) => path.split("/").slice(0, -1).join("/")))];
  if (folders.length > 1) return refused(`Table ${table} is there twice: ${folders[0]}/ and ${folders[1]}/.`);
  const twice = files.find(({ plain }, at) => files[at + 1]?.plain === plain);
  if (twice) return refused(`${twice.plain} is there twice: ${files.filter(({ plain }) => plain === twice.plain).map(shown).join(" and ")}.`);
  const found = await Promise.all(files.map((file) => inspectFile(file, columns)));
  const separators = [...new Set(found.map(({ separator }) => separator))].filter((one) => one in SEPARATOR_NAMES);
  return {
    flaws: found.map(({ flaw }) => flaw).filter(Boolean),
    notes: separators.map((one) => `${table}: fields are separated by ${SEPARATOR_NAMES[one]}.`),
  };
}

const shown = ({ path }) => path.split("/").slice(-2).join("/");

function notesOnNames(tables, needed) {
  const files = Object.keys(needed).flatMap((table) => tables[table] ?? []);
  const flat = files.filter(({ isFlat, path }) => isFlat && path.includes("/"));
  const renamed = files.filter(({ plain, path }) => !path.replace(/\.(gz|zst)$/, "").endsWith(plain));
  return [
    flat.length && `Files without a folder of their table are taken by their names: ${some(flat)}.`,
    renamed.length && `Names in other letters are read as ${renamed[0].plain} and so on: ${some(renamed)}.`,
    ...missingMonths(tables, needed),
  ].filter(Boolean);
}

const some = ([first, ...others]) => shown(first) + (others.length ? `, and ${others.length} more` : "");

/** `transactions_202401.csv` → its month as a number of months since year 0; undefined if the name has none. */
export function monthIn(name) {
  const [, year, month] = /_(\d{4})(0[1-9]|1[0-2])\.csv$/.exec(name) ?? [];
  return year && Number(year) * 12 + Number(month) - 1;
}

/** Months without a file, between the first and the last one of the tables of sales. */
function missingMonths(tables, needed) {
  const monthly = Object.keys(needed)
    .filter((table) => table.startsWith("transaction"))
    .map((table) => [table, new Set((tables[table] ?? []).map(({ plain }) => monthIn(plain)).filter(Boolean))])
    .filter(([, months]) => months.size);
  const every = monthly.flatMap(([, months]) => [...months]);
  const span = Array.from({ length: Math.max(...every) - Math.min(...every) + 1 }, (_, n) => Math.min(...every) + n);
  return monthly.map(([table, months]) => {
    const missing = span.filter((month) => !months.has(month)).map(spelled);
    const listed = missing.slice(0, 12).join(", ") + (missing.length > 12 ? " …" : "");
    return missing.length ? `${table}: no file for ${listed}.` : null;
  });
}

const spelled = (month) => `${Math.floor(month / 12)}-${String((month % 12) + 1).padStart(2, "0")}`;

async function inspectFile({ file, path }, columns) {
  const place = shown({ path });
  if (/\.zst$/i.test(file.name))
    return { flaw: `${place}: Zstandard cannot be expanded in the browser; ${ELSEWHERE}.` };
  if (!file.size) return { flaw: `${place}: the file is empty, without even a header line.` };
  const separator = await separatorOf(file, columns);
  try {
    if (!(await headerOf(file, separator)).length)
      return { flaw: `${place}: the file is empty, without even a header line.` };
    const header = inLayoutCase(await namesIn(file, separator), columns);
    const missing = columns.filter((column) => !header.includes(column));
    if (missing.length)
      return { flaw: `${place}, line 1: no column ${missing.join(", ")} (found: ${header.join(", ").slice(0, 400)}).` };
    const twice = columns.filter((column) => header.indexOf(column) !== header.lastIndexOf(column));
    return { separator, flaw: twice.length ? `${place}, line 1: column ${twice.join(", ")} is there twice.` : null };
  } catch (error) {
    return { flaw: `${place}, line 1: ${error.message}.` };
  }
}

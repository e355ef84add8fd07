// Finds the table of each file and checks its header, before anything is sent.
// The rules are those of `kopi submit`: <table>/<table>.csv or <table>/<table>_YYYYMM.csv, folders perhaps numbered.
import { headerOf, splitHeader } from "./cut.js";

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
  const tables = Object.fromEntries(names.map((table) => [table, []]));
  const ignored = [];
  for (const found of files) {
    const table = tableOf(found.path, names);
    if (table) tables[table].push(found);
    else ignored.push(found.path);
  }
  for (const own of Object.values(tables)) own.sort((a, b) => (a.file.name < b.file.name ? -1 : 1));
  return { tables, ignored };
}

/** Returns why these files cannot be sent: [text]. `needed` has the columns of each needed table. */
export async function flawsIn(tables, needed) {
  const flaws = Object.entries(needed).map(([table, columns]) => flawsOf(table, tables[table] ?? [], columns));
  return (await Promise.all(flaws)).flat();
}

/** A file that was dropped without its folder is known by its name alone. */
function tableOf(path, names) {
  const parts = path.split("/");
  const name = parts.pop();
  const folder = parts.pop();
  const isOf = (table) =>
    new RegExp(`^${table}(_.*)?\\.csv$`).test(name) &&
    (folder === undefined || new RegExp(`^(\\d+\\.\\s*)?${table}$`).test(folder));
  return names.find(isOf) ?? null;
}

async function flawsOf(table, files, columns) {
  if (!files.length)
    return [`No table ${table}: want a folder ${table}/ with ${table}.csv or ${table}_YYYYMM.csv.`];
  const folders = [...new Set(files.map(({ path }) => path.split("/").slice(0, -1).join("/")))];
  if (folders.length > 1) return [`Table ${table} is there twice: ${folders[0]}/ and ${folders[1]}/.`];
  const flaws = await Promise.all(files.map((found) => flawOf(found, columns)));
  return flaws.filter(Boolean);
}

async function flawOf({ file, path }, columns) {
  const shown = path.split("/").slice(-2).join("/");
  if (!file.size) return `${shown}: the file is empty, without even a header line.`;
  let header;
  try {
    header = splitHeader(await headerOf(file));
  } catch (error) {
    return `${shown}, line 1: ${error.message}.`;
  }
  const missing = columns.filter((column) => !header.includes(column));
  if (missing.length)
    return `${shown}, line 1: no column ${missing.join(", ")} (found: ${header.join(", ").slice(0, 400)}).`;
  const twice = columns.filter((column) => header.indexOf(column) !== header.lastIndexOf(column));
  return twice.length ? `${shown}, line 1: column ${twice.join(", ")} is there twice.` : null;
}

// Which files of an export a data set does not have in these bytes and columns. The rules are those of `kopi submit --data`.
import { inLayoutCase, namesIn, separatorOf, textOf } from "./cut.js";
import { Sha256 } from "./sha256.js";

/**
 * @param tables    {name: [{file, plain}]}
 * @param layout    {table: [column]}: all that there are
 * @param needed    {table: {columns}}: what the questions of the run need
 * @param held      the files of the version that the data set has
 * @param keepsAll  whether all columns of the files are kept, or only those that are needed or kept already
 * @param onBytes   gets the bytes of the files read so far
 * @returns [{file, view}]: each file with its description for the gateway
 */
export async function differing(tables, { layout, needed, held, keepsAll, onBytes }) {
  const found = [];
  let before = 0;
  for (const [table, files] of Object.entries(tables))
    for (const { file, plain } of files) {
      const text = await digestOf(file, (taken) => onBytes(before + taken));
      before += file.size;
      const kept = keepsAll ? layout[table] : keptColumns(held, table);
      const columns = await columnsOf(file, layout[table], needed[table]?.columns ?? [], kept);
      const view = { table, name: plain, columns, ...text };
      if (!held.some((one) => isSame(one, view))) found.push({ file, view });
    }
  return found;
}

async function digestOf(file, onTaken) {
  const sha = new Sha256();
  let size = 0;
  for await (const { data, taken } of textOf(file)) {
    sha.update(data);
    size += data.length;
    onTaken(taken);
  }
  return { digest: sha.hex(), bytes: size };
}

/** What the data set has of every file of the table. */
function keptColumns(held, table) {
  const [first, ...others] = held.filter((one) => one.table === table).map(({ columns }) => columns);
  return (first ?? []).filter((column) => others.every((columns) => columns.includes(column)));
}

async function columnsOf(file, columns, needed, kept) {
  const header = inLayoutCase(await namesIn(file, await separatorOf(file, columns)), columns);
  return columns.filter((column) => needed.includes(column) || (kept.includes(column) && header.includes(column)));
}

const isSame = (one, { table, name, digest, columns }) =>
  one.table === table &&
  one.name === name &&
  one.digest === digest &&
  columns.every((column) => one.columns.includes(column));

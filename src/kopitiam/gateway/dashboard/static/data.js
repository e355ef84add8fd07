// Data sets: where their pages are, calls about them, and the months that they have files of.
import { count, plural } from "./format.js";
import { gateway, patiently } from "./session.js";
import { monthIn } from "./upload/recognize.js";

/** The address of a page of a data set; `page` is "", "/ask" or "/sql". */
export function dataPlace(name, query = {}, page = "") {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return `#/data/${name}${page}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

/** A data set with the files of a version, the newest by default; a token of an administrator sees those of others. */
export function dataSet(name, { version = null, owner = "" } = {}, signal) {
  const query = new URLSearchParams({ ...(version && { version }), ...(owner && { owner }) });
  return patiently(() => gateway.get(`/data/${name}?${query}`, signal), signal);
}

/** The same for the newest version, or null if the data set is not there or has no version yet. */
export async function versionIfAny(name, signal) {
  const { data_sets: sets } = await patiently(() => gateway.get("/data", signal), signal);
  return sets.some((set) => set.name === name && set.version) ? dataSet(name, {}, signal) : null;
}

/**
 * Which months a version has files of, by table: {tables: [{table, first, months: Map(month → file)}], last, others}.
 * A month is a number, as `monthIn` returns it; `others` are files whose names have none.
 */
export function monthsOf(files) {
  const tables = new Map();
  const others = [];
  for (const file of files) {
    const month = monthIn(file.name);
    if (month === undefined) others.push(file);
    else tables.set(file.table, (tables.get(file.table) ?? new Map()).set(month, file));
  }
  const every = [...tables.values()].flatMap((months) => [...months.keys()]);
  return {
    tables: [...tables].map(([table, months]) => ({ table, first: Math.min(...months.keys()), months })),
    last: Math.max(...every),
    others,
  };
}

/** What a version changed, in words. */
export function changesText({ added, replaced, rows_added, rows_removed }) {
  const files = [added && `${plural(added, "file")} added`, replaced && `${count(replaced)} replaced`].filter(Boolean);
  const rows = [rows_added && `${plural(rows_added, "row")} added`, rows_removed && `${count(rows_removed)} taken away`];
  return [files.join(", ") || "no file changed", rows.filter(Boolean).join(", ")].filter(Boolean).join("; ");
}

/** The columns that SQL and questions can use: {table: {columns, rows}}, those that every file of the table has. */
export function tablesIn(files) {
  const tables = {};
  for (const { table, columns, rows } of files) {
    tables[table] ??= { columns, rows: 0 };
    tables[table].columns = tables[table].columns.filter((column) => columns.includes(column));
    tables[table].rows += rows;
  }
  return tables;
}

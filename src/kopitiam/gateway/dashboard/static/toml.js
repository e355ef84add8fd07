// Writes a definition as TOML, so that it can be a template for another one.

const KEYS = ["name", "title", "from", "where", "by", "measure", "rank", "columns", "order", "chart", "stages"];

export function tomlOf(definition) {
  const known = KEYS.filter((key) => definition[key] !== undefined);
  const width = Math.max(...known.map((key) => key.length));
  const lines = known.map((key) => `${key.padEnd(width)} = ${valueOf(asWritten(key, definition[key]))}`);
  return ["[[question]]", ...lines, ""].join("\n");
}

// The gateway sends keys and measures as pairs, since their order counts. In TOML they are a table.
function asWritten(key, value) {
  return ["by", "measure"].includes(key) && Array.isArray(value) ? new Map(value) : value;
}

function valueOf(value) {
  if (Array.isArray(value)) return `[${value.map(valueOf).join(", ")}]`;
  if (typeof value === "object") {
    const entries = value instanceof Map ? [...value] : Object.entries(value);
    const pairs = entries.map(([key, own]) => `${key} = ${valueOf(own)}`);
    return `{ ${pairs.join(", ")} }`;
  }
  return JSON.stringify(value); // strings of JSON are strings of TOML
}

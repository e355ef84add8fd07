// A CSV file cut into bodies of whole rows, each below a size and a number of rows. The cuts depend on the text
// and on these two bounds only, so they are the same after a reload. Never a whole file in memory.

const [NEWLINE, RETURN, QUOTE] = [10, 13, 34];
const HEADER_BYTES = 1 << 16;
const SEPARATORS = [",", ";", "\t"];
const [UNSUSPECTED_BYTES, MOST_EXPANSION] = [1 << 30, 250]; // as for `kopi submit`

const isCompressed = (file) => /\.gz$/i.test(file.name);

/** The text of a file from its start, expanded if it is compressed. The unused end of a piece can be put back. */
class Pieces {
  constructor(file) {
    this.file = file;
    this.taken = 0; // bytes of the file as it is stored
    this.expanded = 0;
    const count = (data, next) => ((this.taken += data.length), next.enqueue(data));
    const stored = file.stream().pipeThrough(new TransformStream({ transform: count }));
    const text = isCompressed(file) ? stored.pipeThrough(new DecompressionStream("gzip")) : stored;
    this.reader = text.getReader();
    this.rest = [];
  }

  /** Returns this number of bytes, fewer only at the end. */
  async read(size) {
    let found = this.rest.reduce((whole, data) => whole + data.length, 0);
    while (found < size) {
      const data = await this.next();
      if (!data) break;
      this.rest.push(data);
      found += data.length;
    }
    const all = joined(this.rest, found);
    this.rest = found > size ? [all.subarray(size)] : [];
    return all.subarray(0, size);
  }

  putBack(data) {
    if (data.length) this.rest.unshift(data);
  }

  close() {
    this.reader.cancel().catch(() => {});
  }

  async next() {
    let read;
    try {
      read = await this.reader.read();
    } catch (error) {
      if (!isCompressed(this.file) || !(error instanceof TypeError)) throw error;
      throw new Error(
        `${this.file.name} cannot be expanded here: it is damaged, cut off, or compressed in several pieces; unpack it first`,
      );
    }
    this.expanded += read.value?.length ?? 0;
    if (this.expanded > Math.max(UNSUSPECTED_BYTES, MOST_EXPANSION * this.file.size))
      throw new Error(`${this.file.name} expands to more than ${MOST_EXPANSION} times its size, as no export does`);
    return read.value;
  }
}

function joined(parts, size) {
  if (parts.length === 1) return parts[0];
  const all = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** The text of a file, piece by piece: {data, taken}, with the bytes of the file read so far. */
export async function* textOf(file) {
  const pieces = new Pieces(file);
  try {
    for (let data = await pieces.next(); data; data = await pieces.next()) yield { data, taken: pieces.taken };
  } finally {
    pieces.close();
  }
}

/** The separator by which most of the columns are in the header; a comma if in doubt. */
export async function separatorOf(file, columns) {
  const counts = await Promise.all(
    SEPARATORS.map(async (separator) => {
      const names = await namesIn(file, separator).catch(() => []);
      const found = new Set(names.map((name) => name.toLowerCase()));
      return columns.filter((column) => found.has(column)).length;
    }),
  );
  return SEPARATORS[counts.indexOf(Math.max(...counts))];
}

export const namesIn = async (file, separator) => splitHeader(await headerOf(file, separator), separator);

/** The bytes of the first row with its line end; a quoted newline does not end it. */
export async function headerOf(file, separator = ",") {
  const pieces = new Pieces(file);
  try {
    return await takeHeader(pieces, separator);
  } finally {
    pieces.close();
  }
}

async function takeHeader(pieces, separator) {
  for (let size = HEADER_BYTES; ; size *= 4) {
    const data = await pieces.read(size);
    const { end } = rowsIn(data, 1, separator);
    if (end) {
      pieces.putBack(data.subarray(end));
      return data.subarray(0, end);
    }
    if (data.length < size) {
      if (isOpen(data, separator)) throw new Error("a quote is opened in the header and not closed");
      return data;
    }
    if (size >= 1 << 22) throw new Error("no line ends here: this is not a CSV file");
    pieces.putBack(data);
  }
}

/** Names of a header in the case of the layout, where no column has the name as it is written. */
export function inLayoutCase(header, columns) {
  const absent = columns.filter((column) => !header.includes(column));
  return header.map((name) => (absent.includes(name.toLowerCase()) ? name.toLowerCase() : name));
}

function splitHeader(bytes, separator) {
  const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes).replace(/[\r\n]+$/, "");
  const field = `(?:^|${separator})(?:"((?:[^"]|"")*)"|([^${separator}]*))`;
  return [...text.matchAll(new RegExp(field, "g"))].map(
    ([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain,
  );
}

/** Gives {data, line, taken}: rows without header, the line of the first one, and the bytes of the file read so far. */
export async function* cuts(file, { bytes, rows, longest }, separator = ",") {
  const pieces = new Pieces(file);
  try {
    let line = 1 + linesIn(await takeHeader(pieces, separator));
    let size = bytes;
    for (let data = await pieces.read(size); data.length; data = await pieces.read(size)) {
      const { end, rows: found } = rowsIn(data, rows, separator);
      const cut = data.length < size && found < rows ? data.length : end;
      pieces.putBack(data.subarray(cut));
      if (cut) {
        yield { data: data.subarray(0, cut), line, taken: pieces.taken };
        line += linesIn(data.subarray(0, cut));
        size = bytes;
      } else if (size >= longest) {
        throw new Error(
          `line ${line}: a row of more than ${longest} bytes; perhaps a quote is opened there and not closed`,
        );
      } else {
        size = Math.min(size * 2, longest);
      }
    }
  } finally {
    pieces.close();
  }
}

/** How many whole rows there are, at most so many, and where the last of them ends. */
function rowsIn(data, most, separator) {
  return data.includes(QUOTE) ? quotedRows(data, most, separator.charCodeAt(0)) : plainRows(data, most);
}

function plainRows(data, most) {
  let rows = 0;
  let end = 0;
  for (let at = data.indexOf(NEWLINE); at >= 0 && rows < most; at = data.indexOf(NEWLINE, end)) {
    end = at + 1;
    rows += 1;
  }
  return { rows, end };
}

/** A quote counts only at the beginning of a field, as for the gateway; inside, a doubled one is a character. */
function quotedRows(data, most, separator) {
  let rows = 0;
  let end = 0;
  let isQuoted = false;
  let isFieldStart = true;
  for (let at = 0; at < data.length && rows < most; at += 1) {
    const byte = data[at];
    if (isQuoted) {
      if (byte !== QUOTE) continue;
      if (data[at + 1] === QUOTE) at += 1;
      else isQuoted = false;
    } else if (byte === QUOTE && isFieldStart) {
      isQuoted = true;
      isFieldStart = false;
    } else if (byte === NEWLINE) {
      rows += 1;
      end = at + 1;
      isFieldStart = true;
    } else {
      isFieldStart = byte === separator || byte === RETURN;
    }
  }
  return { rows, end };
}

function isOpen(data, separator) {
  const closed = new Uint8Array(data.length + 1);
  closed.set(data);
  closed[data.length] = NEWLINE;
  return rowsIn(closed, 1, separator).end === 0;
}

function linesIn(data) {
  let lines = 0;
  for (let at = data.indexOf(NEWLINE); at >= 0; at = data.indexOf(NEWLINE, at + 1)) lines += 1;
  return lines;
}

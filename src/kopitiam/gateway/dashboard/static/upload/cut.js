// A CSV file cut into bodies of whole rows, each below a size and a number of rows. The cuts depend on the bytes
// and on these two bounds only, so they are the same after a reload. Never a whole file in memory.

const [NEWLINE, RETURN, QUOTE, COMMA] = [10, 13, 34, 44];
const HEADER_BYTES = 1 << 16;

/** The bytes of the first row with its line end; a quoted newline does not end it. */
export async function headerOf(file) {
  for (let size = HEADER_BYTES; ; size *= 4) {
    const data = new Uint8Array(await file.slice(0, size).arrayBuffer());
    const { end } = rowsIn(data, 1);
    if (end) return data.subarray(0, end);
    if (data.length < size) {
      if (isOpen(data)) throw new Error("a quote is opened in the header and not closed");
      return data;
    }
    if (size >= 1 << 22) throw new Error("no line ends here: this is not a CSV file");
  }
}

export function splitHeader(bytes) {
  const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes).replace(/[\r\n]+$/, "");
  return [...text.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map(
    ([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain,
  );
}

/** Gives {data, line, start, end}: rows without header, the line of the first one, and where they lie. */
export async function* cuts(file, { bytes, rows, longest }) {
  const header = await headerOf(file);
  let start = header.length;
  let line = 1 + linesIn(header);
  let size = bytes;
  while (start < file.size) {
    const data = new Uint8Array(await file.slice(start, start + size).arrayBuffer());
    const isLast = start + data.length >= file.size;
    const { end, rows: found } = rowsIn(data, rows);
    const cut = isLast && found < rows ? data.length : end;
    if (cut) {
      yield { data: data.subarray(0, cut), line, start, end: start + cut };
      line += linesIn(data.subarray(0, cut));
      start += cut;
      size = bytes;
    } else if (size >= longest) {
      throw new Error(
        `line ${line}: a row of more than ${longest} bytes; perhaps a quote is opened there and not closed`,
      );
    } else {
      size = Math.min(size * 2, longest);
    }
  }
}

/** How many whole rows there are, at most so many, and where the last of them ends. */
function rowsIn(data, most) {
  return data.includes(QUOTE) ? quotedRows(data, most) : plainRows(data, most);
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
function quotedRows(data, most) {
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
      isFieldStart = byte === COMMA || byte === RETURN;
    }
  }
  return { rows, end };
}

function isOpen(data) {
  const closed = new Uint8Array(data.length + 1);
  closed.set(data);
  closed[data.length] = NEWLINE;
  return rowsIn(closed, 1).end === 0;
}

function linesIn(data) {
  let lines = 0;
  for (let at = data.indexOf(NEWLINE); at >= 0; at = data.indexOf(NEWLINE, at + 1)) lines += 1;
  return lines;
}

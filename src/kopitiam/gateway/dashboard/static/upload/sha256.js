// SHA-256 in pieces: browsers offer only digests of whole buffers, and files may not fit into memory.

const ROUNDS = 64;
const BLOCK = 64; // bytes

const primes = (count) => {
  const found = [];
  for (let number = 2; found.length < count; number += 1) if (found.every((prime) => number % prime)) found.push(number);
  return found;
};
const fraction = (root) => Math.floor((root - Math.floor(root)) * 2 ** 32); // its first 32 bits
const CONSTANTS = Int32Array.from(primes(ROUNDS), (prime) => fraction(Math.cbrt(prime)) | 0);
const START = Uint32Array.from(primes(8), (prime) => fraction(Math.sqrt(prime)));

export class Sha256 {
  #state = START.slice();
  #words = new Int32Array(ROUNDS);
  #rest = new Uint8Array(BLOCK);
  #held = 0; // bytes of `rest`
  #bytes = 0;

  update(data) {
    this.#bytes += data.length;
    let at = 0;
    if (this.#held) {
      at = Math.min(BLOCK - this.#held, data.length);
      this.#rest.set(data.subarray(0, at), this.#held);
      this.#held += at;
      if (this.#held < BLOCK) return this;
      this.#compress(this.#rest, 0);
      this.#held = 0;
    }
    for (; at + BLOCK <= data.length; at += BLOCK) this.#compress(data, at);
    this.#rest.set(data.subarray(at));
    this.#held = data.length - at;
    return this;
  }

  /** Returns the hexadecimal digest; nothing can be added afterwards. */
  hex() {
    const bits = this.#bytes * 8;
    const length = this.#held < BLOCK - 8 ? BLOCK : 2 * BLOCK;
    const end = new Uint8Array(length);
    end.set(this.#rest.subarray(0, this.#held));
    end[this.#held] = 0x80;
    const view = new DataView(end.buffer);
    view.setUint32(length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(length - 4, bits >>> 0);
    for (let at = 0; at < length; at += BLOCK) this.#compress(end, at);
    return [...this.#state].map((word) => word.toString(16).padStart(8, "0")).join("");
  }

  #compress(data, at) {
    const words = this.#words;
    for (let i = 0; i < 16; i += 1, at += 4)
      words[i] = (data[at] << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3];
    for (let i = 16; i < ROUNDS; i += 1) {
      const early = words[i - 15];
      const late = words[i - 2];
      const small = ((early >>> 7) | (early << 25)) ^ ((early >>> 18) | (early << 14)) ^ (early >>> 3);
      const large = ((late >>> 17) | (late << 15)) ^ ((late >>> 19) | (late << 13)) ^ (late >>> 10);
      words[i] = (words[i - 16] + small + words[i - 7] + large) | 0;
    }
    let [a, b, c, d, e, f, g, h] = this.#state;
    for (let i = 0; i < ROUNDS; i += 1) {
      const turned = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const first = (h + turned + ((e & f) ^ (~e & g)) + CONSTANTS[i] + words[i]) | 0;
      const mixed = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const second = (mixed + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g;
      g = f;
      f = e;
      e = (d + first) | 0;
      d = c;
      c = b;
      b = a;
      a = (first + second) | 0;
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => (this.#state[i] += word));
  }
}

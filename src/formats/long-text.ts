/**
 * A text that grows by many short pieces, stored efficiently. `text += piece` keeps each piece and a node of 32 bytes
 * until the text is read: six to thirteen times the memory of the text. Here the pieces become one string every hundred
 * characters, and those every two thousand, so that few nodes remain. Two texts that receive the same pieces, one right
 * after the other, share these strings: a decoder that remembers its output costs almost nothing. Hot path.
 */

/** Lengths at which pieces become one string. If they were smaller, more nodes would remain; if larger, more pieces. */
const FLAT_CHARS = 128
const BLOCK_CHARS = 2_048

/** The most recent string of each length. */
let lastFlat = ''
let lastBlock = ''

export class LongText {
  #text = ''
  #block = ''
  #tail = ''
  /** Only written. Reading a character makes the engine join the pieces into one string. */
  protected firstUnit = 0

  get length(): number {
    return this.#text.length + this.#block.length + this.#tail.length
  }

  add(piece: string): void {
    const tail = this.#tail + piece
    if (tail.length < FLAT_CHARS) {
      this.#tail = tail
      return
    }
    this.firstUnit = tail.charCodeAt(0)
    if (tail !== lastFlat) lastFlat = tail
    this.#tail = ''
    const block = this.#block + lastFlat
    if (block.length < BLOCK_CHARS) {
      this.#block = block
      return
    }
    this.firstUnit = block.charCodeAt(0)
    if (block !== lastBlock) lastBlock = block
    this.#text += lastBlock
    this.#block = ''
  }

  toString(): string {
    return this.#text + this.#block + this.#tail
  }
}

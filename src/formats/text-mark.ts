/**
 * Recognizes a text without storing it, by its length and two 32-bit rolling hashes over its UTF-16 units. Two texts
 * with the same mark are considered equal. A text that arrives in one piece is stored instead, which is the case in
 * most whole replies; so is a text that was recognised, because replies repeat their text up to four times. Hot path.
 */

const FACTOR_A = 2_654_435_761
const FACTOR_B = 1_597_334_677

export class TextMark {
  /** The text, if it arrived in one piece; null: it is in the hashes. */
  #only: string | null = ''
  #length = 0
  #a = 0
  #b = 0

  get length(): number {
    return this.#length
  }

  add(piece: string): void {
    if (piece === '') return
    const only = this.#only
    if (only === '') {
      this.#only = piece
      this.#length = piece.length
      return
    }
    if (only !== null) {
      this.#only = null
      this.#length = 0
      this.#add(only, only.length)
    }
    this.#add(piece, piece.length)
  }

  /** True if `text` is exactly the added text. */
  is(text: string): boolean {
    return text.length === this.#length && this.begins(text)
  }

  /** True if `text` begins with the added text. */
  begins(text: string): boolean {
    // `startsWith` compares a character at a time, this a block.
    if (this.#only !== null) return text.slice(0, this.#only.length) === this.#only
    if (text.length < this.#length) return false
    const start = new TextMark()
    start.#add(text, this.#length)
    if (start.#a !== this.#a || start.#b !== this.#b) return false
    if (text.length === this.#length) {
      this.#only = text
      this.#a = 0
      this.#b = 0
    }
    return true
  }

  /** Lets go of the text; the mark is of no use from here on. */
  forget(): void {
    this.#only = null
  }

  #add(text: string, length: number): void {
    let hashA = this.#a
    let hashB = this.#b
    for (let at = 0; at < length; at++) {
      const unit = text.charCodeAt(at)
      hashA = Math.imul(hashA ^ unit, FACTOR_A)
      hashB = Math.imul(hashB ^ unit ^ (hashB >>> 15), FACTOR_B)
    }
    this.#a = hashA
    this.#b = hashB
    this.#length += length
  }
}

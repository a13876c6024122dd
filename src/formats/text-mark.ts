/**
 * Recognizes a text without storing it, by its length and two 32-bit rolling hashes over its UTF-16 units. Two texts
 * with the same mark are considered equal. A text that arrives in one piece is stored instead, which is the case in
 * most whole replies; so is a text that was recognised, because replies repeat their text up to four times. Hot path.
 */

const FACTOR_A = 2_654_435_761
const FACTOR_B = 1_597_334_677

export class TextMark {
  /** The text, if it arrived in one piece; null: it is in the hashes. */
  #singlePiece: string | null = ''
  #length = 0
  #hashA = 0
  #hashB = 0

  get length(): number {
    return this.#length
  }

  add(piece: string): void {
    if (piece === '') return
    const singlePiece = this.#singlePiece
    if (singlePiece === '') {
      this.#singlePiece = piece
      this.#length = piece.length
      return
    }
    if (singlePiece !== null) {
      this.#singlePiece = null
      this.#length = 0
      this.#addUnits(singlePiece, singlePiece.length)
    }
    this.#addUnits(piece, piece.length)
  }

  /** True if `text` is exactly the added text. */
  equals(text: string): boolean {
    return text.length === this.#length && this.isBeginningOf(text)
  }

  /** True if `text` begins with the added text. */
  isBeginningOf(text: string): boolean {
    // `startsWith` compares a character at a time, this a block.
    if (this.#singlePiece !== null) return text.slice(0, this.#singlePiece.length) === this.#singlePiece
    if (text.length < this.#length) return false
    const start = new TextMark()
    start.#addUnits(text, this.#length)
    if (start.#hashA !== this.#hashA || start.#hashB !== this.#hashB) return false
    if (text.length === this.#length) {
      this.#singlePiece = text
      this.#hashA = 0
      this.#hashB = 0
    }
    return true
  }

  /** Lets go of the text; the mark is of no use from here on. */
  forget(): void {
    this.#singlePiece = null
  }

  #addUnits(text: string, length: number): void {
    let hashA = this.#hashA
    let hashB = this.#hashB
    for (let index = 0; index < length; index++) {
      const unit = text.charCodeAt(index)
      hashA = Math.imul(hashA ^ unit, FACTOR_A)
      hashB = Math.imul(hashB ^ unit ^ (hashB >>> 15), FACTOR_B)
    }
    this.#hashA = hashA
    this.#hashB = hashB
    this.#length += length
  }
}

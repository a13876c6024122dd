/**
 * Detects when JSON text that arrives in pieces is a complete object or list, without storing it. It counts brackets
 * outside strings; for valid JSON, a parser would give the same answer. Pure. Hot path.
 */
const QUOTE = 34
const BACKSLASH = 92

type State =
  /** Nothing but blanks so far. */
  | 'blank'
  | 'open'
  | 'complete'
  /** Text after an object or a list, or another kind of value. */
  | 'other'

export class JsonExtent {
  #state: State = 'blank'
  #depth = 0
  #isInString = false
  #isEscaping = false

  get isBlank(): boolean {
    return this.#state === 'blank'
  }

  get isComplete(): boolean {
    return this.#state === 'complete'
  }

  add(piece: string): void {
    if (this.#state === 'other') return
    for (let index = 0; index < piece.length; index++) {
      const unit = piece.charCodeAt(index)
      if (this.#isInString) this.#readString(unit)
      else if (unit > 32 || !isBlank(unit)) this.#readOutside(unit)
    }
  }

  #readString(unit: number): void {
    if (this.#isEscaping) this.#isEscaping = false
    else if (unit === BACKSLASH) this.#isEscaping = true
    else if (unit === QUOTE) this.#isInString = false
  }

  #readOutside(unit: number): void {
    const isOpening = unit === 0x7b || unit === 0x5b
    if (this.#state === 'blank') this.#state = isOpening ? 'open' : 'other'
    else if (this.#state === 'complete') this.#state = 'other'
    if (this.#state === 'other') return
    if (isOpening) this.#depth++
    else if (unit === QUOTE) this.#isInString = true
    else if (unit === 0x7d || unit === 0x5d) {
      this.#depth--
      if (this.#depth === 0) this.#state = 'complete'
    }
  }
}

/** The four blanks of JSON. */
function isBlank(unit: number): boolean {
  return unit === 32 || unit === 10 || unit === 13 || unit === 9
}

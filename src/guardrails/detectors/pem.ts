/** Private keys in PEM form, of any length. They are found across windows, because a line marks their end. Pure. */
import type { Hit, Shape } from '../detector.ts'

const BEGIN = /-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----/g
/** At the beginning of a word of the body: blanks as they are and as programs write them. */
const BLANK = /(?:\s|\\[nr])/y
const HEADER = /[A-Za-z][A-Za-z-]{2,30}: ?[^\r\n\\]{1,120}/y
const END = /-----END (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----/y
/** Shorter words belong to the sentence after the key, unless they end the body. */
const WORD_MIN_CHARS = 16

const isBody = (code: number): boolean =>
  (code >= 97 && code <= 122) ||
  (code >= 65 && code <= 90) ||
  (code >= 47 && code <= 57) ||
  code === 43 ||
  code === 61

function at(expression: RegExp, text: string, position: number): number {
  expression.lastIndex = position
  return expression.exec(text)?.[0].length ?? 0
}

/** The end of the body of a key that begins at `from`, and if it may go on after the text. */
function body(text: string, from: number): { end: number; open: boolean } {
  let end = from
  let position = from
  for (;;) {
    let blank = at(BLANK, text, position)
    while (blank > 0) {
      position += blank
      blank = at(BLANK, text, position)
    }
    if (position >= text.length) return { end: text.length, open: true }
    const ending = at(END, text, position)
    if (ending > 0) return { end: position + ending, open: false }
    if (text.length - position < 60 && text.startsWith('-', position)) return { end: text.length, open: true }
    let stop = position
    while (stop < text.length && isBody(text.charCodeAt(stop))) stop++
    if (stop === text.length) return { end: stop, open: true }
    const length = stop - position
    const endsBody = text[stop - 1] === '=' || /^(?:\s|\\[nr]){0,4}-----END/.test(text.slice(stop, stop + 20))
    if (length >= WORD_MIN_CHARS || (length > 0 && (endsBody || position === from))) {
      end = stop
      position = stop
      continue
    }
    const header = at(HEADER, text, position)
    if (header === 0) return { end, open: false }
    end = position + header
    position = end
  }
}

export const pem: Shape = {
  find(text, from): Hit | null {
    BEGIN.lastIndex = from
    for (;;) {
      const match = BEGIN.exec(text)
      if (match === null) return null
      const begun = match.index + match[0].length
      const { end } = body(text, begun)
      // The words alone, in a sentence about such files, are no key.
      if (/[A-Za-z0-9+/]{16}/.test(text.slice(begun, begun + 400)) && end > begun) {
        return { start: match.index, end, name: 'private_key' }
      }
    }
  },
  goesOn: body,
}

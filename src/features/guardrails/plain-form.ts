/**
 * Normalizes a text so that detectors and patterns also find disguised characters: compatibility forms and digits
 * become ASCII, dashes become hyphens, invisible characters disappear, JSON escapes are decoded. Positions map back to
 * the text. Pure; time is linear.
 */
import type { Hit, Shape } from './detector.ts'
import { type FoldedText, foldedPosition, isInvisible } from './detectors/evasions.ts'

/**
 * Characters that may hide a text in another form. Invisible characters, blanks and long dashes are common in prose and
 * in emoji: they count only next to characters that they may separate.
 */
const UNEVEN = new RegExp(
  [
    '\\\\(?:u[\\da-fA-F]{4}|/)',
    '(?<=[!-~])[\\p{Cf}\\p{Variation_Selector}\\u0300-\\u036f]|\\p{Cf}(?=[!-~])',
    '(?<=\\d)[[\\p{Zs}\\u2013\\u2014]--\\p{ASCII}]|[[\\p{Zs}\\u2013\\u2014]--\\p{ASCII}](?=\\d)',
    '[\\p{Nd}--\\p{ASCII}]|[\\p{No}\\u2010-\\u2012\\u2015\\u2024\\u2043\\u2212\\u2070-\\u209c\\u2100-\\u2121\\u2123-\\u218f]',
    '[[\\uff01-\\uffef]--[\\uff01\\uff0c\\uff1b\\uff1f]]|[\\u24b6-\\u24e9\\ufb00-\\ufb06\\ufe50-\\ufe6f\\u{1d400}-\\u{1d7ff}]',
  ].join('|'),
  'v',
)
const ESCAPE = /\\(?:u([\da-fA-F]{4})|(\/))/y
const BACKSLASH = 0x5c
const SLASH = 0x2f
const HIDDEN = /^\p{Cf}|\p{Variation_Selector}$/u
const DASH = /[\p{Pd}\u2212\u2043]/gu
const DIGIT = /^\p{Nd}$/u
/** When it is full, the cache of plain characters is cleared. */
const MAX_CACHED_CHARACTERS = 4_096
const plainCharacters = new Map<number, string>()

/** The plain form; null if the text is already plain. */
export function plainForm(text: string): FoldedText | null {
  // Counting bytes is much faster than any expression.
  const isAscii = Buffer.byteLength(text) === text.length
  if ((isAscii && !text.includes('\\')) || !UNEVEN.test(text)) return null
  const originals: number[] = new Array(text.length)
  let length = 0
  let plain = ''
  // Text that does not change is copied in one piece.
  let copiedTo = 0
  for (let index = 0; index < text.length; ) {
    const position = index
    let code = text.charCodeAt(index)
    if (code < 128 && code !== BACKSLASH) {
      originals[length++] = index++
      continue
    }
    code = text.codePointAt(index) ?? code
    index += code > 0xffff ? 2 : 1
    let plainText = code === BACKSLASH ? '\\' : plainCharacter(code)
    if (code === BACKSLASH) {
      ESCAPE.lastIndex = position
      const escapeMatch = ESCAPE.exec(text)
      if (escapeMatch !== null) {
        index = position + escapeMatch[0].length
        const codePoint = escapeMatch[1] === undefined ? SLASH : Number.parseInt(escapeMatch[1], 16)
        plainText = codePoint < 128 ? String.fromCharCode(codePoint) : plainCharacter(codePoint)
      }
    }
    plain += text.slice(copiedTo, position) + plainText
    copiedTo = index
    // One character may become up to 18.
    for (let unit = 0; unit < plainText.length; unit++) originals[length++] = position
  }
  plain += text.slice(copiedTo)
  originals.length = length
  originals.push(text.length)
  return { text: plain, positions: Uint32Array.from(originals) }
}

function plainCharacter(code: number): string {
  let plain = plainCharacters.get(code)
  if (plain !== undefined) return plain
  const character = String.fromCodePoint(code)
  if (isInvisible(code) || HIDDEN.test(character)) plain = ''
  else if (DIGIT.test(character)) plain = String(digitOf(code))
  else plain = character.normalize('NFKC').replace(DASH, '-')
  if (plainCharacters.size >= MAX_CACHED_CHARACTERS) plainCharacters.clear()
  plainCharacters.set(code, plain)
  return plain
}

/** The digits of a script are consecutive, from 0 to 9. */
function digitOf(code: number): number {
  const compatible = Number(String.fromCodePoint(code).normalize('NFKC'))
  if (!Number.isNaN(compatible)) return compatible
  let first = code
  while (DIGIT.test(String.fromCodePoint(first - 1))) first--
  return (code - first) % 10
}

/** The shapes, searching in the plain form but returning positions in the original text. */
export function plainShapes(shapes: readonly Shape[], plain: FoldedText): readonly Shape[] {
  return shapes.map(shape => plainShape(shape, plain))
}

function plainShape(shape: Shape, plain: FoldedText): Shape {
  const { goesOn } = shape
  return {
    find(_text, from): Hit | null {
      for (let position = foldedPosition(plain, from); ; ) {
        const hit = shape.find(plain.text, position)
        if (hit === null) return null
        const start = plain.positions?.[hit.start] ?? hit.start
        if (start >= from) return { start, end: positionBehind(plain, hit.end), name: hit.name }
        position = hit.start + 1
      }
    },
    ...(goesOn === undefined
      ? {}
      : {
          goesOn: (text: string, from: number) => {
            const next = plainForm(text)
            if (next === null) return goesOn(text, from)
            const { end, open } = goesOn(next.text, foldedPosition(next, from))
            return { end: positionBehind(next, end), open }
          },
        }),
  }
}

/** The position after the character with the last unit before `end`, and after invisible characters that follow it. */
function positionBehind({ positions }: FoldedText, end: number): number {
  if (positions === null || end === 0) return end
  let index = end
  while (index < positions.length - 1 && positions[index] === positions[end - 1]) index++
  return positions[index] ?? end
}

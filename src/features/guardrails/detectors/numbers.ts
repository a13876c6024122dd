/**
 * Payment card numbers and social security numbers. Pure.
 * - Card: range and length of an issuer, the check digit (Luhn), one kind of separator.
 * - Social security of the United States: hyphenated, or in another form after its name.
 */
import { before, type Detect, type Hit, isNumbered, noShapes, type Shape, shapeOf } from '../detector.ts'

interface Issuer {
  readonly name: string
  readonly prefix: RegExp
  readonly lengths: readonly number[]
}

const ISSUERS: readonly Issuer[] = [
  { name: 'visa', prefix: /^4/, lengths: [19, 16, 13] },
  { name: 'mastercard', prefix: /^(?:5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720)/, lengths: [16] },
  { name: 'amex', prefix: /^3[47]/, lengths: [15] },
  { name: 'discover', prefix: /^(?:6011|64[4-9]|65)/, lengths: [19, 16] },
  { name: 'diners', prefix: /^3(?:0[0-5]|[689])/, lengths: [14, 16] },
  { name: 'jcb', prefix: /^35(?:2[89]|[3-8])/, lengths: [16, 19] },
  { name: 'unionpay', prefix: /^62/, lengths: [19, 18, 17, 16] },
  { name: 'maestro', prefix: /^(?:50|5[6-9]|6)/, lengths: [19, 18, 16, 13] },
]
const DIGITS_MIN = 13
const DIGITS_MAX = 19
const CANDIDATE = /(?<!\d)[2-6](?:[ -]?\d){12,18}/g

const isDigit = (code: number): boolean => code >= 48 && code <= 57

/** True if the digits pass the Luhn check of ISO/IEC 7812. */
export function passesLuhn(digits: string): boolean {
  let sum = 0
  for (let index = 0; index < digits.length; index++) {
    const digit = digits.charCodeAt(digits.length - 1 - index) - 48
    const value = index % 2 === 1 ? digit * 2 : digit
    sum += value > 9 ? value - 9 : value
  }
  return sum % 10 === 0
}

/** The longest card number that starts here, or null. */
function cardAt(text: string, start: number): Hit | null {
  let digits = ''
  let separator = ''
  const ends: number[] = []
  for (let position = start; position < text.length && digits.length < DIGITS_MAX; position++) {
    const code = text.charCodeAt(position)
    if (isDigit(code)) {
      digits += text.charAt(position)
      ends.push(position + 1)
      continue
    }
    const character = text.charAt(position)
    if (separator === '') separator = character
    // Blanks here and hyphens there are two numbers, or a list.
    if (character !== separator || (character !== ' ' && character !== '-')) break
  }
  if (digits.length < DIGITS_MIN || /^(\d)\1*$/.test(digits)) return null
  for (const { name, prefix, lengths } of ISSUERS) {
    if (!prefix.test(digits)) continue
    for (const length of lengths) {
      const end = ends[length - 1]
      if (end === undefined || isDigit(text.charCodeAt(end))) continue
      // The digits are the start of a longer number or word.
      if (/^(?:[.,-][\dA-Fa-f]|[A-Za-z_])/.test(text.slice(end, end + 2))) continue
      if (passesLuhn(digits.slice(0, length))) return { start, end, name: `card_${name}` }
    }
  }
  return null
}

const card: Shape = {
  find(text, from) {
    CANDIDATE.lastIndex = from
    for (;;) {
      const match = CANDIDATE.exec(text)
      if (match === null) return null
      const start = match.index
      const previous = start > 0 ? text.charAt(start - 1) : ''
      const hit = /[A-Za-z_.]/.test(previous) ? null : cardAt(text, start)
      if (hit !== null) return hit
      CANDIDATE.lastIndex = start + 1
    }
  },
}

const CARD_SHAPES = [card]

export const detectCreditCard: Detect = text => {
  CANDIDATE.lastIndex = 0
  return CANDIDATE.test(text) ? CARD_SHAPES : noShapes()
}

// Social security

const INTRODUCTION = /(?:ssn|s\.s\.n|social security|social sec|soc sec|itin|tax ?payer id)[^\d\n]{0,30}$/
const SSN_SHAPES = [
  shapeOf(
    'ssn',
    /(?<![\w-]|\d[. ])(?!000|666)[0-8]\d{2}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-]|\.\d)/g,
    (text, start) => !isNumbered(text, start),
  ),
  shapeOf(
    'ssn_introduced',
    /(?<![\w-])(?!000|666)[0-8]\d{2}([ .]?)(?!00)\d{2}\1(?!0000)\d{4}(?![\w-]|\.\d)/g,
    (text, start) => INTRODUCTION.test(before(text, start, 56)),
  ),
]
const SSN_GLANCE = /\d{3}[- .]?\d{2}[- .]?\d{4}/

export const detectSsn: Detect = text => (SSN_GLANCE.test(text) ? SSN_SHAPES : noShapes())

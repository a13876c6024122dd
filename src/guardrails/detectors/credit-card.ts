/** Payment card numbers: range and length of an issuer, the check digit (Luhn), one kind of separator. Pure. */
import { type Detect, type Hit, noShapes, type Shape } from '../detector.ts'

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

/** True if the digits pass the check of ISO/IEC 7812. */
export function passesLuhn(digits: string): boolean {
  let sum = 0
  for (let index = 0; index < digits.length; index++) {
    const digit = digits.charCodeAt(digits.length - 1 - index) - 48
    const worth = index % 2 === 1 ? digit * 2 : digit
    sum += worth > 9 ? worth - 9 : worth
  }
  return sum % 10 === 0
}

/** The longest card number that starts here, or null. */
function cardAt(text: string, start: number): Hit | null {
  let digits = ''
  let separator = ''
  const ends: number[] = []
  for (let at = start; at < text.length && digits.length < DIGITS_MAX; at++) {
    const code = text.charCodeAt(at)
    if (isDigit(code)) {
      digits += text.charAt(at)
      ends.push(at + 1)
      continue
    }
    const character = text.charAt(at)
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
      // A fraction or a name goes on after it.
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

const SHAPES = [card]

export const detectCreditCard: Detect = text => {
  CANDIDATE.lastIndex = 0
  return CANDIDATE.test(text) ? SHAPES : noShapes()
}

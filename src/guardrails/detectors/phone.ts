/**
 * Telephone numbers: with a country code, in the North American and the French form, and any other run of digits that
 * is introduced as a telephone number. Pure. Not order numbers, dates, versions or IP addresses.
 */
import { type Detect, noShapes, shapeOf } from '../detector.ts'
import { before, isNumbered } from './context.ts'

const CALLED =
  /(?:phone|telephone|mobile|cell|tel|fax|call|ring|sms|text|whatsapp|dial|reach|contact|hotline|telefon|handy|rufnummer|mobil|tél|téléphone|telephone|portable|teléfono|telefono|celular|móvil|llama|chiam|cellulare|telefone|電話|电话|手机|携帯|전화|телефон|тел)(?:[^\d\n]{0,24})$/
const isCalled = (text: string, start: number): boolean => CALLED.test(before(text, start, 40))
const digitsOf = (text: string, start: number, end: number): string =>
  text.slice(start, end).replace(/\D/g, '')
/** 2024-05-06, 06.05.2024 and the like. */
const DATE = /^(?:(?:19|20)\d\d([-./])\d{1,2}\1\d{1,2}|\d{1,2}([-./])\d{1,2}\2(?:19|20)\d\d)/

const SHAPES = [
  shapeOf(
    'phone_international',
    /(?<![\w+.])(?:\+|00)[1-9](?:[ ./()\u00a0-]{0,2}\d){7,14}(?!\d)/g,
    (text, start, end) => {
      // Without a plus, something else must tell it from a long number.
      if (text[start] === '+') return true
      return isCalled(text, start) || (/[ /-]/.test(text.slice(start, end)) && !isNumbered(text, start))
    },
  ),
  shapeOf(
    'phone_north_american',
    /(?<![\w.+/-])(?<!\d )(?:1[ .-])?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[ .-])\d{3}[ .-]\d{4}(?![\w-]|[.,]\d| \d)/g,
    (text, start) => !isNumbered(text, start),
  ),
  shapeOf(
    'phone_french',
    /(?<![\w.+/-])(?<!\d )0[1-9](?:[ .]\d{2}){4}(?![\w-]|[.,]\d| \d)/g,
    (text, start) => !isNumbered(text, start),
  ),
  shapeOf(
    'phone_introduced',
    /(?<![\w.+/-])[(]?\d(?:[ ./()-]{0,2}\d){6,13}(?![\w-]|[.,]\d)/g,
    (text, start, end) => {
      const said = text.slice(start, end)
      if (DATE.test(said) || /^\d{1,3}(?:\.\d{1,3}){3}$/.test(said)) return false
      return digitsOf(text, start, end).length <= 14 && isCalled(text, start) && !isNumbered(text, start)
    },
  ),
]

/** At least seven digits with few separators: fewer make no telephone number. */
const SEVEN_DIGITS = /\d(?:[ ./()\u00a0-]{0,2}\d){6}/

export const detectPhone: Detect = text => (SEVEN_DIGITS.test(text) ? SHAPES : noShapes())

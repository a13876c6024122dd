/**
 * Contact details: email addresses, telephone numbers, postal addresses and IP addresses. Pure.
 * - Email: from the `@` outwards, and spelled-out ones such as `ann [at] example [dot] org`.
 * - Telephone: with a country code, in the North American and the French form, and any other run of digits that is
 *   introduced as a telephone number; but not order numbers, dates, versions or IP addresses.
 * - Postal: house number and street in the order and with the words of several languages, with the town that follows;
 *   post office boxes; British postcodes; but not a street without a number.
 * - IP: IPv4 in dotted form, IPv6 in every form; but not versions, times or MAC addresses.
 */
import { before, type Detect, type Hit, isNumbered, noShapes, type Shape, shapeOf } from '../detector.ts'

// Email

const LOCAL_PART_MAX_CHARS = 64
/** True for letters, digits and the characters that may stand between them. */
const isLocalPart = (code: number): boolean =>
  (code >= 97 && code <= 122) ||
  (code >= 65 && code <= 90) ||
  (code >= 48 && code <= 57) ||
  code === 46 ||
  code === 95 ||
  code === 45 ||
  code === 43 ||
  code === 37 ||
  code === 39 ||
  (code >= 0xc0 && code <= 0x24f)
const DOMAIN =
  /(?:[a-z0-9\u00c0-\u024f](?:[a-z0-9\u00c0-\u024f-]{0,61}[a-z0-9\u00c0-\u024f])?\.){1,6}(?:[a-z]{2,24}|xn--[a-z0-9-]{2,30})(?![a-z0-9_-])/giy
/** `logo@2x.png` is a file. */
const FILE_NAME = /\.(?:png|jpe?g|gif|svg|webp|css|html?|jsx?|json|tsx?|pdf|txt|mjs|cjs|zip|gz)$/i
/** `//user:password@host` is for another detector. */
const IN_URL = /:\/\/[^\s/@]{0,100}$/

const email: Shape = {
  find(text, from): Hit | null {
    for (let atSign = text.indexOf('@', from); atSign >= 0; atSign = text.indexOf('@', atSign + 1)) {
      let start = atSign
      const earliest = Math.max(0, atSign - LOCAL_PART_MAX_CHARS)
      while (start > earliest && isLocalPart(text.charCodeAt(start - 1))) start--
      // A dot, quote or hyphen before the address belongs to the sentence.
      while (start < atSign && /[.'%-]/.test(text.charAt(start))) start++
      if (start === atSign || start < from) continue
      DOMAIN.lastIndex = atSign + 1
      const domain = DOMAIN.exec(text)?.[0]
      if (domain === undefined || FILE_NAME.test(domain)) continue
      const end = atSign + 1 + domain.length
      // `git@host:owner/repository` names a repository.
      if (text.slice(start, atSign) === 'git' && text[end] === ':') continue
      if (IN_URL.test(text.slice(Math.max(0, start - 104), start))) continue
      return { start, end, name: 'email' }
    }
    return null
  },
}

const spelledEmail = shapeOf(
  'email_spelled',
  /(?<![\w.+-])[\w.+-]{1,64}[ ]?[[({][ ]?(?:at|@)[ ]?[\])}][ ]?[a-z0-9-]{1,63}(?:(?:\.|[ ]?[[({][ ]?(?:dot|\.)[ ]?[\])}][ ]?)[a-z0-9-]{1,63}){1,4}/gi,
)

const PLAIN_EMAIL = [email]
const PLAIN_AND_SPELLED_EMAIL = [email, spelledEmail]
const SPELLED_AT = /[[({] ?(?:at|@) ?[\])}]/i

export const detectEmail: Detect = text => {
  const hasSpelledAt =
    (text.includes('[') || text.includes('(') || text.includes('{')) && SPELLED_AT.test(text)
  if (hasSpelledAt) return PLAIN_AND_SPELLED_EMAIL
  return text.includes('@') ? PLAIN_EMAIL : noShapes()
}

// Telephone

const INTRODUCTION =
  /(?:phone|telephone|mobile|cell|tel|fax|call|ring|sms|text|whatsapp|dial|reach|contact|hotline|telefon|handy|rufnummer|mobil|tél|téléphone|telephone|portable|teléfono|telefono|celular|móvil|llama|chiam|cellulare|telefone|電話|电话|手机|携帯|전화|телефон|тел)(?:[^\d\n]{0,24})$/
const isIntroduced = (text: string, start: number): boolean => INTRODUCTION.test(before(text, start, 40))
const digitsOf = (text: string, start: number, end: number): string =>
  text.slice(start, end).replace(/\D/g, '')
/** 2024-05-06, 06.05.2024 and similar. */
const DATE = /^(?:(?:19|20)\d\d([-./])\d{1,2}\1\d{1,2}|\d{1,2}([-./])\d{1,2}\2(?:19|20)\d\d)/

const PHONE_SHAPES = [
  shapeOf(
    'phone_international',
    /(?<![\w+.])(?:\+|00)[1-9](?:[ ./()\u00a0-]{0,2}\d){7,14}(?!\d)/g,
    (text, start, end) => {
      // Without a plus, something else must tell it from a long number.
      if (text[start] === '+') return true
      return isIntroduced(text, start) || (/[ /-]/.test(text.slice(start, end)) && !isNumbered(text, start))
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
      const number = text.slice(start, end)
      if (DATE.test(number) || /^\d{1,3}(?:\.\d{1,3}){3}$/.test(number)) return false
      return digitsOf(text, start, end).length <= 14 && isIntroduced(text, start) && !isNumbered(text, start)
    },
  ),
]

/** Seven digits with few separators: fewer digits are no telephone number. */
const SEVEN_DIGITS = /\d(?:[ ./()\u00a0-]{0,2}\d){6}/

export const detectPhone: Detect = text => (SEVEN_DIGITS.test(text) ? PHONE_SHAPES : noShapes())

// Postal

const CAPITALIZED = "[A-ZÀ-ÖØ-Þ][\\p{L}'’.-]{0,24}"
const STREET =
  '(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Drive|Dr|Lane|Ln|Court|Ct|Place|Pl|Square|Sq|Terrace|Ter|Circle|Cir|Parkway|Pkwy|Highway|Hwy|Way|Crescent|Close|Trail|Alley|Row|Mews|Gardens|Grove|Broadway)'
const UNIT = '(?:,? (?:Apt|Apartment|Suite|Ste|Unit|Floor|Fl|Room|Rm|#)\\.? ?#?[\\w-]{1,8})?'
const UK_POSTCODE = '[A-Z]{1,2}\\d[A-Z\\d]? \\d[A-Z]{2}'
/** A word in capitals is not a town: it may be a state or the start of a postcode. */
const NAME = "[A-ZÀ-ÖØ-Þ]\\p{Ll}[\\p{L}'’.-]{0,24}"
const TOWN = `(?:,? (?:\\d{5} )?${NAME}(?: ${NAME}){0,2})?(?:,? (?:[A-Z]{2} \\d{5}(?:-\\d{4})?|${UK_POSTCODE}|[A-Z]{2,3} \\d{4}|\\d{5}))?`
const addressShape = (name: string, source: string) => shapeOf(name, new RegExp(source, 'gu'))

const ADDRESS_SHAPES = [
  addressShape(
    'street_address',
    `(?<![\\p{L}\\p{N}.,$€£-])\\d{1,6}[A-Za-z]?(?:-\\d{1,5})? (?:[NSEW]\\.?|North|South|East|West|NE|NW|SE|SW)? ?(?:(?:${CAPITALIZED}|\\d{1,3}(?:st|nd|rd|th)) ){1,4}?${STREET}\\b\\.?(?: (?:N|S|E|W|NE|NW|SE|SW)\\b)?${UNIT}${TOWN}`,
  ),
  addressShape(
    'post_office_box',
    `(?<![\\p{L}])(?:P\\.? ?O\\.? ?Box|Postfach|Boîte postale|BP|Apartado(?: de Correos)?) \\d{1,7}(?! ?%)${TOWN}`,
  ),
  addressShape(
    'street_address_german',
    `(?<![\\p{L}])(?:${CAPITALIZED}[ -]){0,2}(?:[A-ZÄÖÜ][a-zäöüß]{1,20}(?:straße|strasse|str\\.|weg|gasse|platz|allee|damm|ufer|ring|straat|gracht|laan|plein)|(?:Straße|Strasse|Allee|Platz|Weg|Gasse|Ring)) \\d{1,4}(?: ?[a-z](?![\\p{L}]))?(?:,? (?:D-|A-|CH-)?\\d{4,5}(?: [A-Z]{2})? ${CAPITALIZED}(?: (?:am|an der|${CAPITALIZED}))?)?`,
  ),
  addressShape(
    'street_address_romance',
    `(?<![\\p{L}\\p{N}])\\d{1,4}(?: ?(?:bis|ter))?,? (?:rue|avenue|boulevard|place|quai|chemin|impasse|allée|cours)(?: (?:de la|de|du|des|de l['’]|d['’]|l['’]|${CAPITALIZED})[ ]?){0,3} ?${CAPITALIZED}(?:[ -]${CAPITALIZED}){0,2}(?:,? \\d{5} ${CAPITALIZED}(?:[ -]${CAPITALIZED}){0,2})?`,
  ),
  addressShape(
    'street_address_romance',
    `(?<![\\p{L}])(?:Calle|C/|Avenida|Avda\\.?|Plaza|Paseo|Carrera|Via|Viale|Piazza|Corso|Vicolo|Rua|Praça|Travessa|ul\\.|ulica) (?:(?:de la|de los|de|del|della|dei|da|do|dos|das) )?${CAPITALIZED}(?: (?:(?:de|del|da|do|y) )?${CAPITALIZED}){0,3},? (?:n[º°.]? ?|nº ?)?\\d{1,5}(?:,? (?:\\d{4,5}(?:-\\d{3})?) ${CAPITALIZED}(?: ${CAPITALIZED})?)?`,
  ),
  shapeOf(
    'postcode',
    new RegExp(`(?<![\\p{L}\\p{N}])${UK_POSTCODE}(?![\\p{L}\\p{N}])`, 'gu'),
    (text, start) => /(?:post ?code|address|lives? (?:at|in))[^\n]{0,60}$/.test(before(text, start, 80)),
  ),
]

/** A quick check for each form of ADDRESS_SHAPES, in the same order: it matches every text that contains the form. */
const ADDRESS_GLANCES = [
  / (?:St|Ave|R(?:oa)?d|Blvd|Boul|Dr|La?n|Ct|Cour|Pl|Sq|Ter|Cir|Pkwy|Park|Hwy|High|Way|Cres|Clos|Trail|Alley|Row|Mews|Gard|Gro|Broad)/,
  /Box|Postfach|postale|BP|Apartado/,
  /(?:tra[sß]s?e|str\.|weg|gasse|[Pp]latz|[Aa]llee|damm|ufer|[Rr]ing|straat|gracht|laan|plein) \d/,
  / (?:rue|avenue|boulevard|place|quai|chemin|impasse|allée|cours) /,
  /Calle|C\/|Avenida|Avda|Plaza|Paseo|Carrera|Via|Piazza|Corso|Vicolo|Rua|Praça|Travessa|ul\.|ulica/,
  /[Pp]ost ?code|[Aa]ddress|[Ll]ives? (?:at|in)/,
]
const DIGIT = /\d/

export const detectAddress: Detect = text => {
  if (!DIGIT.test(text)) return noShapes()
  const shapes = ADDRESS_SHAPES.filter((_shape, index) => ADDRESS_GLANCES[index]?.test(text) === true)
  return shapes.length === 0 ? noShapes() : shapes
}

// IP

const OCTET = '(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)'
const VERSION =
  /(?:version|ver|v|release|build|firmware|section|chapter|clause|§|rev|sdk|driver|kapitel|abschnitt|versión|paragraph|figure|table)[.:]?\s?$|[a-z]\/$/

const v4 = shapeOf(
  'ipv4',
  new RegExp(`(?<![\\w.-])(?:${OCTET}\\.){3}${OCTET}(?![\\w-]|\\.\\d)`, 'g'),
  (text, start) => !VERSION.test(before(text, start, 16)),
)

const V6_CANDIDATE = /(?<![\w:.-])(?:[0-9a-f]{1,4})?:[0-9a-f:]{1,38}(?:\.\d{1,3}){0,3}/gi

function isV6(text: string): boolean {
  const halves = text.split('::')
  if (halves.length > 2) return false
  let groups = 0
  let hexDigits = 0
  for (const half of halves) {
    for (const group of half === '' ? [] : half.split(':')) {
      const isDotted = group.includes('.')
      if (!(isDotted ? /^\d{1,3}(?:\.\d{1,3}){3}$/ : /^[0-9a-f]{1,4}$/i).test(group)) return false
      groups += isDotted ? 2 : 1
      hexDigits += group.length
    }
  }
  if (halves.length === 1) return groups === 8
  // `a::b` is how programs write a path, `::1` and `fe80::1` are addresses.
  return groups <= 7 && (text === '::1' || (hexDigits >= 4 && groups >= 2 && /\d/.test(text)))
}

const v6: Shape = {
  find(text, from): Hit | null {
    V6_CANDIDATE.lastIndex = from
    for (;;) {
      const match = V6_CANDIDATE.exec(text)
      if (match === null) return null
      const start = match.index
      // A colon of the sentence may follow, but not half a word.
      const address = /[^:]:$/.test(match[0]) ? match[0].slice(0, -1) : match[0]
      const end = start + address.length
      if (!/[\w.]/.test(text.charAt(end)) || /^\.(?:\s|$)/.test(text.slice(end, end + 2))) {
        if (isV6(address)) return { start, end, name: 'ipv6' }
      }
      V6_CANDIDATE.lastIndex = start + Math.max(1, match[0].indexOf(':'))
    }
  },
}

const GLANCE_V4 = /\d\.\d{1,3}\.\d/
const GLANCE_V6 = /::|[0-9a-f]:[0-9a-f]{1,4}:/i
const ONLY_V4 = [v4]
const ONLY_V6 = [v6]
const V4_AND_V6 = [v4, v6]

export const detectIpAddress: Detect = text => {
  const mayHaveV4 = GLANCE_V4.test(text)
  if (text.includes(':') && GLANCE_V6.test(text)) return mayHaveV4 ? V4_AND_V6 : ONLY_V6
  return mayHaveV4 ? ONLY_V4 : noShapes()
}

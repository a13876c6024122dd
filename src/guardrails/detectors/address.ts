/**
 * Postal addresses: house number and street in the order and with the words of several languages, with the town that
 * follows; post office boxes; British postcodes. Pure. A street without a number is not found.
 */
import { type Detect, noShapes, shapeOf } from '../detector.ts'
import { before } from './context.ts'

const CAP = "[A-ZÀ-ÖØ-Þ][\\p{L}'’.-]{0,24}"
const STREET =
  '(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Drive|Dr|Lane|Ln|Court|Ct|Place|Pl|Square|Sq|Terrace|Ter|Circle|Cir|Parkway|Pkwy|Highway|Hwy|Way|Crescent|Close|Trail|Alley|Row|Mews|Gardens|Grove|Broadway)'
const UNIT = '(?:,? (?:Apt|Apartment|Suite|Ste|Unit|Floor|Fl|Room|Rm|#)\\.? ?#?[\\w-]{1,8})?'
const UK_POSTCODE = '[A-Z]{1,2}\\d[A-Z\\d]? \\d[A-Z]{2}'
/** Capitals only are no town: a state or a postcode begins so. */
const NAME = "[A-ZÀ-ÖØ-Þ]\\p{Ll}[\\p{L}'’.-]{0,24}"
const TOWN = `(?:,? (?:\\d{5} )?${NAME}(?: ${NAME}){0,2})?(?:,? (?:[A-Z]{2} \\d{5}(?:-\\d{4})?|${UK_POSTCODE}|[A-Z]{2,3} \\d{4}|\\d{5}))?`
const shape = (name: string, source: string) => shapeOf(name, new RegExp(source, 'gu'))

const SHAPES = [
  shape(
    'street_address',
    `(?<![\\p{L}\\p{N}.,$€£-])\\d{1,6}[A-Za-z]?(?:-\\d{1,5})? (?:[NSEW]\\.?|North|South|East|West|NE|NW|SE|SW)? ?(?:(?:${CAP}|\\d{1,3}(?:st|nd|rd|th)) ){1,4}?${STREET}\\b\\.?(?: (?:N|S|E|W|NE|NW|SE|SW)\\b)?${UNIT}${TOWN}`,
  ),
  shape(
    'post_office_box',
    `(?<![\\p{L}])(?:P\\.? ?O\\.? ?Box|Postfach|Boîte postale|BP|Apartado(?: de Correos)?) \\d{1,7}(?! ?%)${TOWN}`,
  ),
  shape(
    'street_address_german',
    `(?<![\\p{L}])(?:${CAP}[ -]){0,2}(?:[A-ZÄÖÜ][a-zäöüß]{1,20}(?:straße|strasse|str\\.|weg|gasse|platz|allee|damm|ufer|ring|straat|gracht|laan|plein)|(?:Straße|Strasse|Allee|Platz|Weg|Gasse|Ring)) \\d{1,4}(?: ?[a-z](?![\\p{L}]))?(?:,? (?:D-|A-|CH-)?\\d{4,5}(?: [A-Z]{2})? ${CAP}(?: (?:am|an der|${CAP}))?)?`,
  ),
  shape(
    'street_address_romance',
    `(?<![\\p{L}\\p{N}])\\d{1,4}(?: ?(?:bis|ter))?,? (?:rue|avenue|boulevard|place|quai|chemin|impasse|allée|cours)(?: (?:de la|de|du|des|de l['’]|d['’]|l['’]|${CAP})[ ]?){0,3} ?${CAP}(?:[ -]${CAP}){0,2}(?:,? \\d{5} ${CAP}(?:[ -]${CAP}){0,2})?`,
  ),
  shape(
    'street_address_romance',
    `(?<![\\p{L}])(?:Calle|C/|Avenida|Avda\\.?|Plaza|Paseo|Carrera|Via|Viale|Piazza|Corso|Vicolo|Rua|Praça|Travessa|ul\\.|ulica) (?:(?:de la|de los|de|del|della|dei|da|do|dos|das) )?${CAP}(?: (?:(?:de|del|da|do|y) )?${CAP}){0,3},? (?:n[º°.]? ?|nº ?)?\\d{1,5}(?:,? (?:\\d{4,5}(?:-\\d{3})?) ${CAP}(?: ${CAP})?)?`,
  ),
  shapeOf(
    'postcode',
    new RegExp(`(?<![\\p{L}\\p{N}])${UK_POSTCODE}(?![\\p{L}\\p{N}])`, 'gu'),
    (text, start) => /(?:post ?code|address|lives? (?:at|in))[^\n]{0,60}$/.test(before(text, start, 80)),
  ),
]

/** A word that each of the forms above has, in their order. */
const GLANCES = [
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
  const shapes = SHAPES.filter((_shape, form) => GLANCES[form]?.test(text) === true)
  return shapes.length === 0 ? noShapes() : shapes
}

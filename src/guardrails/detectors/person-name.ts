/**
 * Names of people: a known given name with a surname, or capitalised words after an introduction. Pure. Names that are
 * in no list and have no introduction are not found: docs/guardrails.md has the recall.
 */
import { type Detect, type Hit, noShapes, type Shape, shapeOf } from '../detector.ts'
import { before } from './context.ts'
import { GIVEN_NAMES, NO_SURNAMES, SURNAMES } from './names.ts'

const CAP = "[A-ZÀ-ÖØ-ÞŁŚŽŠČ][a-zß-öø-ÿąćęłńóśźżčšžőűășțğışA-Z'’-]{1,24}"
const PARTICLE = "(?:(?:de|del|della|di|da|dos|van|von|der|den|la|le|el|al|bin|ibn|Mc|Mac|O[’'])[ -]?){0,2}"
const REST = `(?: (?:[A-Z]\\. )?${PARTICLE}${CAP}){0,2}`

const NEXT = new RegExp(`^ (?:[A-Z]\\.? )?(${PARTICLE}(${CAP}))(?![\\p{L}\\p{N}_@])`, 'u')
const NEXT_REACH = 72
const GIVEN_MAX_CHARS = 24

/** Lower and upper case of Latin letters, by code unit. */
const isUpper = (code: number): boolean =>
  (code >= 65 && code <= 90) ||
  (code >= 0xc0 && code <= 0xde && code !== 0xd7) ||
  (code >= 0x139 && code <= 0x17d)
const isWord = (code: number): boolean =>
  (code >= 97 && code <= 122) || isUpper(code) || (code >= 0xc0 && code <= 0x24f) || code === 45
/** Characters that must not precede a word: inside another word, a path or an address. */
const joins = (code: number): boolean =>
  isWord(code) ||
  (code >= 48 && code <= 57) ||
  code === 95 ||
  code === 64 ||
  code === 46 ||
  code === 47 ||
  code === 35

interface Given {
  readonly start: number
  readonly end: number
}

/** Finds the given names in a text. */
function givenNames(text: string): Given[] {
  const found: Given[] = []
  let inside = false
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (inside || !isUpper(code)) {
      inside = joins(code)
      continue
    }
    let end = at + 1
    while (end < text.length && end - at <= GIVEN_MAX_CHARS && isWord(text.charCodeAt(end))) end++
    const word = text.slice(at, end)
    const hyphen = word.indexOf('-')
    if (GIVEN_NAMES.has(word) || (hyphen > 0 && GIVEN_NAMES.has(word.slice(0, hyphen))))
      found.push({ start: at, end })
    at = end - 1
    inside = true
  }
  return found
}

/** The first name that starts at `from` or later and for which the test returns an end. */
function firstOf(
  given: readonly Given[],
  from: number,
  name: string,
  endOf: (one: Given) => number | null,
): Hit | null {
  let low = 0
  let high = given.length
  while (low < high) {
    const middle = (low + high) >> 1
    if ((given[middle]?.start ?? 0) < from) low = middle + 1
    else high = middle
  }
  for (let at = low; at < given.length; at++) {
    const one = given[at]
    const end = one === undefined ? null : endOf(one)
    if (one !== undefined && end !== null) return { start: one.start, end, name }
  }
  return null
}

/** The end of the name that begins with a given name; null: no surname follows. */
function endOfName(text: string, { end }: Given): number | null {
  const next = NEXT.exec(text.slice(end, end + NEXT_REACH))
  const surname = next?.[2]
  if (next === null || surname === undefined || !isSurname(surname)) return null
  const second = end + next[0].length
  const third = NEXT.exec(text.slice(second, second + NEXT_REACH))
  if (third?.[2] === undefined) return second
  if (SURNAMES.has(third[2])) return second + third[0].length
  // `Charles Darwin University` is a place, `Ann Lee Smith` is not.
  return PLACES.test(third[2]) ? null : second
}

function isSurname(word: string): boolean {
  if (SURNAMES.has(word)) return true
  return !NO_SURNAMES.has(word) && !/^[A-Z]+$/.test(word) && /[a-zà-ÿ]{2}/.test(word)
}

const PLACES =
  /^(?:Airport|Avenue|Bridge|Building|Center|Centre|College|County|Foundation|Hall|Hospital|Hotel|Institute|Library|Museum|Park|Prize|River|School|Square|Station|Street|Tower|University)$/

const shapeWithHead = (name: string, head: string, rest: string): Shape => {
  const expression = new RegExp(`(?<![\\p{L}\\p{N}_])(?:${head})(?<named>${rest})(?![\\p{L}\\p{N}_])`, 'gu')
  return {
    find(text, from): Hit | null {
      // The head is before the hit, so it may be before `from`.
      expression.lastIndex = Math.max(0, from - HEAD_MAX_CHARS)
      for (;;) {
        const match = expression.exec(text)
        if (match === null) return null
        const end = match.index + match[0].length
        const start = end - (match.groups?.['named'] ?? '').length
        const first = text.slice(start, end).split(' ')[0] ?? ''
        if (start >= from && !NO_SURNAMES.has(first)) return { start, end, name }
        expression.lastIndex = match.index + 1
      }
    },
  }
}
const HEAD_MAX_CHARS = 40

const titled = shapeWithHead(
  'titled_name',
  '(?:Mr|Mrs|Ms|Miss|Mx|Dr|Prof|Professor|Sir|Madam|Herr|Herrn|Frau|Monsieur|Madame|Mme|Mlle|Señor|Señora|Sra|Sr|Dña|Don|Doña|Signor|Signora|Sig|Senhor|Senhora|Pan|Pani)\\.? (?:(?:Dr|Prof)\\. )?',
  `${PARTICLE}${CAP}${REST}`,
)
const introduced = shapeWithHead(
  'introduced_name',
  "(?:[Mm]y name is|[Mm]y name's|[Nn]ame is|[Ff]ull name ?:|[Nn]ame ?:|[Cc]all me|[Pp]atient ?:|[Cc]ustomer ?:|[Cc]ontact ?:|[Aa]ttn:?|[Ss]incerely, ?|[Rr]egards, ?|[Ss]igned,? |[Jj]e m['’]appelle|[Jj]e suis|[Mm]e llamo|[Mm]i nombre es|[Ii]ch heiße|[Mm]ein Name ist|[Mm]i chiamo|[Mm]eu nome é|[Nn]azywam się|[Ii]k heet|[Jj]ag heter)\\s",
  `${PARTICLE}${CAP}${REST}`,
)
const eastAsian = shapeOf(
  'introduced_name',
  /(?<=(?:我叫|我是|我的名字是|姓名[::]\s?|名叫|私の名前は|わたしは|氏名[::]\s?|제 이름은 |저는 ))[\u4e00-\u9fff\uac00-\ud7af]{2,4}?(?=$|[\s,。,.!、]|です|と申|입니다|住|电|,)/g,
)

const GREETS = /(?:dear|hello|hallo|liebe[r]?|cher|chère|querid[oa]|ciao|caro|cara|i'm|i am|hi) $/
const TITLE =
  /(?:M(?:rs?|s|iss|x|me|lle|onsieur|adame?)|Dr|Prof(?:essor)?|Sir|Herrn?|Frau|Se[ñn]h?ora?|Sr?a|Sr|Dña|Do[nñ]a?|Sig(?:nora?)?|Pani?)\.? /
const INTRODUCES =
  /name|call me|Call me|atient ?:|ustomer ?:|ontact ?:|[Aa]ttn|incerely|egards|igned|appelle|e suis|llamo|nombre|heiße|Name|chiamo|nome|azywam|k heet|g heter/
const INTRODUCES_ASIAN = /我叫|我是|名字|姓名|名叫|名前|わたしは|氏名|이름|저는/

export const detectPersonName: Detect = text => {
  const shapes: Shape[] = []
  const given = givenNames(text)
  if (given.length > 0) {
    shapes.push(
      { find: (_text, from) => firstOf(given, from, 'full_name', one => endOfName(text, one)) },
      {
        find: (_text, from) =>
          firstOf(given, from, 'addressed_name', ({ start, end }) =>
            GREETS.test(before(text, start, 16)) ? end : null,
          ),
      },
    )
  }
  if (TITLE.test(text)) shapes.push(titled)
  if (INTRODUCES.test(text)) shapes.push(introduced)
  if (NOT_LATIN.test(text) && INTRODUCES_ASIAN.test(text)) shapes.push(eastAsian)
  return shapes.length === 0 ? noShapes() : shapes
}

const NOT_LATIN = /[\u3040-\u9fff\uac00-\ud7af]/

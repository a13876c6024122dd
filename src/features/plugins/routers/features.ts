/**
 * The features of a prompt for the linear classifier: words, word pairs, and formatting. Deterministic: the same text
 * has the same features in every process. Pure.
 */

/** Words read from the beginning and from the end: a task is usually named in one of the two places. */
const WORDS_PER_END = 120
/** Characters that are read at each end. */
const CHARS_PER_END = 1_200

const WORD = /[\p{L}\p{N}_']+/gu

/** Characters by which related words are recognized. */
const STEM_CHARS = 5

interface Mark {
  readonly name: string
  readonly in: RegExp
}

/** Each pattern examines a few characters around one place, so that no text makes it slow. */
const MARKS: readonly Mark[] = [
  { name: '#fence', in: /```/ },
  { name: '#braces', in: /[{};][ \t]{0,8}\r?\n/ },
  { name: '#call', in: /\w\(\w{0,40}\)/ },
  { name: '#camel', in: /\b[a-z]{2,20}[A-Z][a-z]/ },
  { name: '#snake', in: /\b[a-z]{2,20}_[a-z]{2,20}/ },
  { name: '#file', in: /\b[\w-]{1,40}\.(?:ts|js|py|go|rs|java|rb|c|cpp|sql|ya?ml|json|sh|tsx|jsx|tf)\b/ },
  {
    name: '#trace',
    in: /Traceback|\bat line \d|Exception|Error:|panic:|segfault|undefined is not|\bTypeError|NullPointer/,
  },
  { name: '#sql', in: /\b(?:SELECT|INSERT|UPDATE|JOIN|GROUP BY|WHERE)\b/ },
  { name: '#equation', in: /[=+*^√∫∑≤≥]\s?[\dxyn(]|\d\s?[-+*/^=]\s?\d|\d%/ },
  { name: '#money', in: /[$€£]\s?\d|\d\s?(?:USD|EUR|dollars|euros)/ },
  { name: '#quote', in: /["“'‘][^"”'’]{20}/ },
  { name: '#colon-text', in: /:\s{0,4}["“'‘]?[A-Z]/ },
  { name: '#email', in: /@|\bSubject:|\bDear\b|\bRegards\b/ },
  { name: '#order', in: /(?:order|ticket|invoice|account|case)\s?(?:#|no|number|id)?\s?#?\d{3}/i },
  { name: '#diff', in: /^(?:\+\+\+|---|@@|diff --git)/m },
  { name: '#foreign', in: /[\u0400-\u04ff\u0600-\u06ff\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]/ },
  { name: '#stars', in: /\*\w[^*\n]{1,60}\*/ },
  { name: '#list', in: /\n[ \t]{0,8}(?:[-*•]|\d{1,3}[.)])\s/ },
  { name: '#question', in: /\?\s*$/ },
]

/** Facts about a request besides its text. */
export interface PromptForm {
  readonly text: string
  readonly instructions?: string
  readonly hasTools?: boolean
  readonly hasResults?: boolean
  readonly hasSchema?: boolean
}

export function featuresOf({
  text,
  instructions = '',
  hasTools,
  hasResults,
  hasSchema,
}: PromptForm): ReadonlySet<string> {
  const features = new Set<string>(['#bias'])
  const ends =
    text.length <= 2 * CHARS_PER_END ? text : `${text.slice(0, CHARS_PER_END)}\n${text.slice(-CHARS_PER_END)}`
  for (const mark of MARKS) if (mark.in.test(ends)) features.add(mark.name)
  addWords(ends, features, '')
  addWords(instructions.slice(0, CHARS_PER_END), features, 's:')
  features.add(
    text.length < 40 ? '#tiny' : text.length < 160 ? '#short' : text.length < 800 ? '#middle' : '#long',
  )
  if (hasTools === true) features.add('#tools')
  if (hasResults === true) features.add('#results')
  if (hasSchema === true) features.add('#schema')
  return features
}

function addWords(text: string, features: Set<string>, prefix: string): void {
  const allWords = text.toLowerCase().match(WORD) ?? []
  const words =
    allWords.length <= 2 * WORDS_PER_END
      ? allWords
      : [...allWords.slice(0, WORDS_PER_END), ...allWords.slice(-WORDS_PER_END)]
  let previous = '^'
  for (const raw of words) {
    const word = /^\d+$/.test(raw) ? '0' : raw.replace(/'s$/, '')
    if (word.length <= 24) {
      features.add(prefix + word)
      features.add(`${prefix}${previous} ${word}`)
      // Related words begin alike.
      if (word.length > STEM_CHARS) features.add(`${prefix}${word.slice(0, STEM_CHARS)}~`)
    }
    previous = word
  }
}

/**
 * Prompt injection in disguise: words with scrambled middles, base64 and hexadecimal text, letters set apart. Each
 * disguise is undone and the result judged. Pure; the work is bounded by the length of the text and the constants here.
 */

/** Units of one encoded run that are decoded: enough for any instruction, and a bound for mere data. */
const ENCODED_MAX_CHARS = 4_096
export const SCRAMBLED = [
  'ignore',
  'bypass',
  'override',
  'reveal',
  'delete',
  'system',
  'prompt',
  'instructions',
  'previous',
]

interface Scrambled {
  readonly word: string
  readonly letters: string
}
const sorted = (word: string): string => [...word].sort().join('')
const BY_ENDS = new Map<string, Scrambled[]>()
for (const word of SCRAMBLED) {
  const key = `${word[0]}${word.at(-1)}${word.length}`
  BY_ENDS.set(key, [...(BY_ENDS.get(key) ?? []), { word, letters: sorted(word) }])
}
const CANDIDATE = new RegExp(
  `\\b(?:${SCRAMBLED.map(word => `${word[0]}[${[...new Set(word.slice(1, -1))].join('')}]{${word.length - 2}}${word.at(-1)}`).join('|')})\\b`,
  'g',
)

/** Restores scrambled words; the length stays. Null if there are none. */
export function unscramble(folded: string): string | null {
  let changed = false
  const text = folded.replace(CANDIDATE, found => {
    const known = BY_ENDS.get(`${found[0]}${found.at(-1)}${found.length}`)
    const match = known?.find(({ word, letters }) => word !== found && letters === sorted(found))
    if (match === undefined) return found
    changed = true
    return match.word
  })
  return changed ? text : null
}

const ENCODED =
  /(?<![A-Za-z0-9+/=_-])(?:(?:[0-9a-fA-F]{2}[ ]?){12,2048}(?![A-Za-z0-9+/=_-])|[A-Za-z0-9+/_-]{16,4096}={0,2}(?![A-Za-z0-9+/=_-]))/g
const KEYWORDS = /ignore|bypass|override|reveal|system|prompt|instruction|disregard|jailbreak/g

export interface Run {
  readonly start: number
  readonly end: number
}

/** The first run at `from` or later that is an encoding of text which `isHostile` or that has two keywords. */
export function encodedRun(text: string, from: number, isHostile: (decoded: string) => boolean): Run | null {
  ENCODED.lastIndex = from
  for (;;) {
    const match = ENCODED.exec(text)
    if (match === null) return null
    for (const decoded of decodings(match[0].trimEnd())) {
      const lower = decoded.toLowerCase()
      if (new Set(lower.match(KEYWORDS)).size >= 2 || isHostile(lower)) {
        return { start: match.index, end: match.index + match[0].trimEnd().length }
      }
    }
  }
}

/** Readable texts that the run may encode; base64 may hold base64 once more. */
function decodings(run: string): string[] {
  const found: string[] = []
  const cut = run.slice(0, ENCODED_MAX_CHARS)
  if (/^[0-9a-fA-F ]+$/.test(cut)) found.push(Buffer.from(cut.replaceAll(' ', ''), 'hex').toString('latin1'))
  else if (/[a-z]/.test(cut) && /[A-Z]/.test(cut)) {
    const once = Buffer.from(cut, 'base64').toString('latin1')
    found.push(once)
    if (/^[A-Za-z0-9+/_-]{16,}={0,2}\s?$/.test(once))
      found.push(Buffer.from(once, 'base64').toString('latin1'))
  }
  return found.filter(isReadable)
}

/** Nearly all of it printable. */
function isReadable(text: string): boolean {
  let printable = 0
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if ((code >= 32 && code < 127) || code === 10 || code === 13 || code === 9) printable++
  }
  return printable >= text.length * 0.9
}

const SPACED = /(?<![a-z0-9])(?:[a-z](?: {1,3}|[._*|\-/]| ?[._*|\-/] ?)){7,240}[a-z](?![a-z0-9])/g
const HOSTILE =
  /(?:ignore|disregard|forget|override|bypass|reveal|delete|show)[a-z]{0,40}(?:instruction|prompt|rules|system|safety|guideline)|jailbreak|systemprompt|doanythingnow|developermode/

/** The first run of letters set apart, at `from` or later, that reads as an instruction to the model. */
export function spacedRun(folded: string, from: number): Run | null {
  SPACED.lastIndex = from
  for (;;) {
    const match = SPACED.exec(folded)
    if (match === null) return null
    if (HOSTILE.test(match[0].replace(/[^a-z]/g, ''))) {
      return { start: match.index, end: match.index + match[0].length }
    }
  }
}

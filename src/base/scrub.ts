/**
 * Removes secrets from text that a provider wrote, before it reaches a client, a log or a trace: first the keys of the
 * request, in full or in part, then everything that looks like a key. Pure. Linear in the text.
 */

/** Length of the pieces of a key that are removed; shorter ones are too common. */
const PIECE_CHARS = 8
/** Shorter keys are ignored, because removing them would break ordinary words. */
const SECRET_MIN_CHARS = 4
/** Longer keys are only searched for unchanged and URL-encoded; each further encoding multiplies the work. */
const REWRITTEN_MAX_CHARS = 1024
/** Maximum length of the text: far more than the 500 or 2,000 characters to which other code cuts provider text. */
const TEXT_MAX_CHARS = 16 * 1024

const REDACTED = '[redacted]'

/** Patterns of keys, with bounded repeats so that no text makes them slow. `$1` is the part that is kept. */
const PATTERNS: readonly (readonly [RegExp, string])[] = [
  [/\b((?:Bearer|Basic|ApiKey)\s{1,4})[\w.~+/=*-]{8,4096}/gi, `$1${REDACTED}`],
  [/\b(?:sk[-_]|rk_|xai-|csk-|pplx-|nvapi-|fw_|gw_live_|gw_mgmt_)[\w*.…-]{6,4096}/gi, REDACTED],
  [/\b(?:gsk_|hf_|r8_|tgp_|gh[pos]_|glpat-|github_pat_)[\w*.…-]{6,4096}/gi, REDACTED],
  [/\bAIza[\w*…-]{6,4096}/g, REDACTED],
  [/\bya29\.[\w*.…-]{6,4096}/g, REDACTED],
  [/\b(?:AKIA|ASIA)[A-Z0-9]{12,32}/g, REDACTED],
  [/\beyJ[\w-]{8,2048}\.[\w-]{2,2048}(?:\.[\w-]{0,2048})?/g, REDACTED],
  [
    /([?&;](?:[\w-]{0,32}(?:key|token|secret|signature|credential)|sig)=)[^\s&"'<>]{1,4096}/gi,
    `$1${REDACTED}`,
  ],
  [/(:\/\/)[^\s/@:]{0,256}:[^\s/@]{0,256}@/g, `$1${REDACTED}@`],
]

/** The text without `secrets`, without pieces of them of 8 or more characters, and without anything key-like. */
export function scrub(text: string, secrets: readonly string[]): string {
  const bounded = text.length > TEXT_MAX_CHARS ? text.slice(0, TEXT_MAX_CHARS) : text
  const lower = asciiLower(bounded)
  const ranges: Range[] = []
  for (const secret of secrets) {
    for (const encoded of encodingsOf(secret)) ranges.push(...rangesOf(bounded, lower, encoded))
  }
  let clean = removeRanges(bounded, ranges)
  for (const [pattern, replacement] of PATTERNS) clean = clean.replace(pattern, replacement)
  return clean.toWellFormed()
}

/**
 * True if a short text, such as an id, contains 15 consecutive characters of a secret, plain or in hexadecimal or
 * base64. Much cheaper than `scrub`, above all for a list of secrets that it has seen before.
 */
export function holdsSecret(text: string, secrets: readonly string[]): boolean {
  if (text.length < 2 * PIECE_CHARS - 1) return false
  // Without the escape marks, a fully escaped secret is hexadecimal digits.
  const lower = text.toLowerCase().replaceAll('%', '').replaceAll('\\u00', '')
  for (const encodings of searchForms.get(secrets) ?? createSearchForms(secrets)) {
    // A run of 15 characters contains a whole piece at one of these positions.
    for (let start = 0; start + PIECE_CHARS <= lower.length; start += PIECE_CHARS) {
      if (encodings.includes(lower.slice(start, start + PIECE_CHARS))) return true
    }
  }
  return false
}

/** The forms of secrets for which `holdsSecret` searches, made once: many replies are checked for the same ones. */
const searchForms = new WeakMap<readonly string[], readonly string[]>()

function createSearchForms(secrets: readonly string[]): readonly string[] {
  const patterns = secrets.map(secret => {
    const dumps = secret.length > REWRITTEN_MAX_CHARS ? '' : dumpsOf(secret).join(' ')
    return `${secret} ${dumps}`.toLowerCase()
  })
  searchForms.set(secrets, patterns)
  return patterns
}

/** The secret and its encodings in URLs, JSON, headers and dumps. */
function encodingsOf(secret: string): ReadonlySet<string> {
  const text = secret.toWellFormed()
  const encodings = new Set([secret, encodeURIComponent(text)])
  if (secret.length < PIECE_CHARS || secret.length > REWRITTEN_MAX_CHARS) return encodings
  const dumps = dumpsOf(text)
  const [hex = ''] = dumps
  for (const dump of [hex.replace(/../g, '%$&'), hex.replace(/../g, '\\u00$&'), ...dumps]) encodings.add(dump)
  return encodings
}

/** The secret in hexadecimal digits, and in both kinds of base64 at each of three offsets. */
function dumpsOf(text: string): readonly string[] {
  const dumps = [Buffer.from(text).toString('hex')]
  for (let before = 0; before < 3; before++) {
    const base64 = base64At(text, before)
    dumps.push(base64)
    if (/[+/]/.test(base64)) dumps.push(base64.replaceAll('+', '-').replaceAll('/', '_'))
  }
  return dumps
}

/** The base64 characters that depend only on the text, if `before` bytes precede it. */
function base64At(text: string, before: number): string {
  const bytes = Buffer.from(' '.repeat(before) + text)
  return bytes.toString('base64').slice(before === 0 ? 0 : before + 1, Math.floor((bytes.length * 8) / 6))
}

/** Start and end positions in a text. */
type Range = readonly [number, number]

/** The text without these ranges. Overlapping ranges are removed together. */
function removeRanges(text: string, ranges: readonly Range[]): string {
  let clean = ''
  let copiedTo = 0
  let isFirst = true
  for (const [from, end] of ranges.toSorted(([a], [b]) => a - b)) {
    if (isFirst || from > copiedTo) clean += text.slice(copiedTo, from) + REDACTED
    isFirst = false
    copiedTo = Math.max(copiedTo, end)
  }
  return clean + text.slice(copiedTo)
}

/** Finds a secret in a text. `lower`: the text in lower case. */
function* rangesOf(text: string, lower: string, secret: string): Generator<Range> {
  if (secret.length < SECRET_MIN_CHARS) return
  if (secret.length < PIECE_CHARS) {
    for (
      let start = text.indexOf(secret);
      start !== -1;
      start = text.indexOf(secret, start + secret.length)
    ) {
      yield [start, start + secret.length]
    }
    return
  }
  const pieces = new Set<string>()
  const lowerSecret = asciiLower(secret)
  for (let start = 0; start + PIECE_CHARS <= lowerSecret.length; start++)
    pieces.add(lowerSecret.slice(start, start + PIECE_CHARS))
  for (let start = 0; start + PIECE_CHARS <= lower.length; start++) {
    if (!pieces.has(lower.slice(start, start + PIECE_CHARS))) continue
    let end = start + PIECE_CHARS
    while (end < lower.length && pieces.has(lower.slice(end - PIECE_CHARS + 1, end + 1))) end++
    yield [start, end]
    start = end - 1
  }
}

/** Lower case of ASCII letters only: `toLowerCase` may change the length of other text. */
function asciiLower(text: string): string {
  return text.replace(/[A-Z]+/g, run => run.toLowerCase())
}

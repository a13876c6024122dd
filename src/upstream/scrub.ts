/**
 * Takes secrets out of text that a provider wrote, before it reaches a client, a log or a trace: first the keys that
 * were used, in whole and in pieces, then whatever looks like a key. Pure. Linear in the text.
 */

/** Pieces of a key shorter than this are too common to be hunted. */
const PIECE = 8
/** A "key" shorter than this would tear ordinary words apart. */
const SHORTEST_SECRET = 4
/** Longer keys are looked for as they are and URL-encoded alone: each further writing multiplies the work. */
const REWRITTEN_MAX_CHARS = 1024
/** Provider text is cut to 500 characters elsewhere; more is no use and only costs time. */
const TEXT_LIMIT = 16 * 1024

const REDACTED = '[redacted]'

/** Each with an upper bound on its repeats, so that no text makes them slow. `$1` is what may stay. */
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
  let clean = text.length > TEXT_LIMIT ? text.slice(0, TEXT_LIMIT) : text
  for (const secret of secrets) {
    for (const written of writings(secret)) clean = withoutSecret(clean, written)
  }
  for (const [pattern, replacement] of PATTERNS) clean = clean.replace(pattern, replacement)
  return clean.toWellFormed()
}

/**
 * Whether a short text, such as an id, holds a good part of a secret: 15 characters of it in a row, in any writing that
 * `scrub` knows. Much cheaper than scrubbing.
 */
export function holdsSecret(text: string, secrets: readonly string[]): boolean {
  if (text.length < 2 * PIECE - 1) return false
  // Escaped throughout, what is left without the marks are hexadecimal digits.
  const lower = text.toLowerCase().replaceAll('%', '').replaceAll('\\u00', '')
  for (const secret of secrets) {
    const dumps = secret.length > REWRITTEN_MAX_CHARS ? '' : inDumps(secret).join(' ')
    const written = `${secret} ${dumps}`.toLowerCase()
    // A run of this length has a whole piece at one of these places, wherever it begins.
    for (let at = 0; at + PIECE <= lower.length; at += PIECE) {
      if (written.includes(lower.slice(at, at + PIECE))) return true
    }
  }
  return false
}

/** The secret as it is and as it stands in URLs, JSON, headers and dumps. */
function writings(secret: string): ReadonlySet<string> {
  const text = secret.toWellFormed()
  const written = new Set([secret, encodeURIComponent(text)])
  if (secret.length < PIECE || secret.length > REWRITTEN_MAX_CHARS) return written
  const dumps = inDumps(text)
  const [hex = ''] = dumps
  for (const dump of [hex.replace(/../g, '%$&'), hex.replace(/../g, '\\u00$&'), ...dumps]) written.add(dump)
  return written
}

/** In hexadecimal digits, and in the two kinds of base64 at each of three places. */
function inDumps(text: string): readonly string[] {
  const dumps = [Buffer.from(text).toString('hex')]
  for (let before = 0; before < 3; before++) {
    const base64 = inBase64(text, before)
    dumps.push(base64)
    if (/[+/]/.test(base64)) dumps.push(base64.replaceAll('+', '-').replaceAll('/', '_'))
  }
  return dumps
}

/** The base64 characters that the text alone decides, when so many bytes stand before it. */
function inBase64(text: string, before: number): string {
  const bytes = Buffer.from(' '.repeat(before) + text)
  return bytes.toString('base64').slice(before === 0 ? 0 : before + 1, Math.floor((bytes.length * 8) / 6))
}

function withoutSecret(text: string, secret: string): string {
  if (secret.length < SHORTEST_SECRET) return text
  if (secret.length < PIECE) return text.replaceAll(secret, REDACTED)
  const pieces = new Set<string>()
  const lowerSecret = asciiLower(secret)
  for (let at = 0; at + PIECE <= lowerSecret.length; at++) pieces.add(lowerSecret.slice(at, at + PIECE))
  const lower = asciiLower(text)
  let clean = ''
  let kept = 0
  for (let at = 0; at + PIECE <= lower.length; at++) {
    if (!pieces.has(lower.slice(at, at + PIECE))) continue
    let end = at + PIECE
    while (end < lower.length && pieces.has(lower.slice(end - PIECE + 1, end + 1))) end++
    clean += text.slice(kept, at) + REDACTED
    kept = end
    at = end - 1
  }
  return clean + text.slice(kept)
}

/** Lower case that keeps every index in place, which `toLowerCase` does not for all of Unicode. */
function asciiLower(text: string): string {
  return text.replace(/[A-Z]+/g, run => run.toLowerCase())
}

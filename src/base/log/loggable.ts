/**
 * Client-supplied strings that a log line may contain: model names and path parts. A star replaces anything that could
 * be a key, an address or free text. Pure. Leaf.
 */

/** Maximum parts of a path or name; one star replaces all further ones. */
const MAX_PARTS = 10

/** A plain word: no escapes, no `@`, no long text. */
const WORD = /^~?[A-Za-z0-9][A-Za-z0-9._-]{0,47}$/
const KEY_PREFIX = /^(?:sk|pk|rk|gsk|hf|r8|xai|gh[opsu]|glpat|AIza|AKIA|ASIA|ya29|eyJ)/
/** A mix of letters and digits of this length is an id or a key. */
const ID = /(?=[A-Za-z]*\d)[A-Za-z\d]{16,}/
const DIGITS = /\d{9,}/

/**
 * The path of a request without its first slash, for example `v1/embedings`, with a star for each part that is not a
 * plain word.
 */
export function loggablePath(path: string): string {
  return maskParts(path, '/')
}

/** A model id as written by a client, for example `acme/fast-2:free`. */
export function loggableModel(id: string): string {
  return maskParts(id, '/', part => maskParts(part, ':'))
}

function maskParts(text: string, separator: string, mask = maskWord): string {
  // The limit avoids splitting a long text.
  const rawParts = text.slice(0, 1024).split(separator, MAX_PARTS + 1)
  const maskedParts = rawParts.slice(0, MAX_PARTS).map(mask)
  if (rawParts.length > MAX_PARTS) maskedParts.push('*')
  return maskedParts.join(separator)
}

function maskWord(word: string): string {
  if (word === '') return ''
  return WORD.test(word) && !KEY_PREFIX.test(word) && !ID.test(word) && !DIGITS.test(word) ? word : '*'
}

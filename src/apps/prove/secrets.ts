/** Keeps keys out of everything that is shown or stored, even if a gateway sends one back. Pure. */

/** Shorter texts are no secrets, and may be parts of words. */
const SECRET_MIN_CHARS = 4
const SECRET_HEADER = /(?:^|[-_])(?:\w*key|token|secret|auth\w*|cookie|password|credentials?)$/i

export type Header = readonly [name: string, value: string]

export function isSecret([name]: Header): boolean {
  return SECRET_HEADER.test(name)
}

/** Takes keys and the values of secret headers out of a text, as they are and as parts of a JSON text or an address. */
export function scrubber(key: string, headers: readonly Header[]): (text: string) => string {
  const secrets = [
    key,
    ...headers.filter(isSecret).flatMap(([, value]) => [value, value.replace(/^\w+ /, '')]),
  ]
    .filter(text => text.length >= SECRET_MIN_CHARS)
    .flatMap(text => [text, encodeURIComponent(text), JSON.stringify(text).slice(1, -1)])
    .toSorted((one, other) => other.length - one.length)
  return text => secrets.reduce((left, secret) => left.replaceAll(secret, '(the key)'), text)
}

/** Removes keys from everything that is shown or stored, even if a gateway sends one back. Pure. */

/** Shorter texts are not secrets, and may be parts of words. */
const SECRET_MIN_CHARS = 4
const SECRET_HEADER = /(?:^|[-_])(?:\w*key|token|secret|auth\w*|cookie|password|credentials?)$/i

export type Header = readonly [name: string, value: string]

export function isSecret([name]: Header): boolean {
  return SECRET_HEADER.test(name)
}

/** Removes keys and the values of secret headers from a text, unchanged or encoded in JSON or a URL. */
export function scrubber(keys: readonly string[], headers: readonly Header[]): (text: string) => string {
  const secrets = [
    ...keys,
    ...headers.filter(isSecret).flatMap(([, value]) => [value, value.replace(/^\w+ /, '')]),
  ]
    .filter(text => text.length >= SECRET_MIN_CHARS)
    .flatMap(text => [text, encodeURIComponent(text), JSON.stringify(text).slice(1, -1)])
    .toSorted((a, b) => b.length - a.length)
  return text => secrets.reduce((result, secret) => result.replaceAll(secret, '(the key)'), text)
}

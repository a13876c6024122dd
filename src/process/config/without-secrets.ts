/**
 * Settings in a form that is safe to show: without secrets, and without parts of addresses that may contain one. Pure.
 */

const SECRET = /key|secret|token|password|authorization|headers|credential/i
/** Names of files, counts and times are not secret. */
const HARMLESS_NAMES = /file$|ms$|max|enforced|ttl|^keys?per|perkey$|tokensper/i
const IS_SET = '(set)'

export function withoutSecrets(value: unknown, name = ''): unknown {
  const isSecret = SECRET.test(name) && !HARMLESS_NAMES.test(name)
  if (typeof value === 'string') return isSecret ? IS_SET : show(value)
  if (Array.isArray(value)) return value.map(entry => withoutSecrets(entry, name))
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(
    Object.entries(value).map(([key, entry]) => [key, withoutSecrets(entry, isSecret ? name : key)]),
  )
}

/** Only the origin of an address: webhook paths, users and parameters may be secrets. */
function show(text: string): string {
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) return text.includes('@') ? IS_SET : text
  try {
    const { protocol, host, username, password } = new URL(text)
    // An unescaped `/`, `?` or `#` in a password ends the host too early, so that the host is part of the password.
    const isPlain = text.split('@').length === (username + password === '' ? 1 : 2)
    return isPlain ? `${protocol}//${host}/…` : IS_SET
  } catch {
    return IS_SET
  }
}

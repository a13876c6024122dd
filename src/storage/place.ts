/** Places of databases as messages name them: host, port and name, never a user, a password or a parameter. Leaf. */

const UNREADABLE = 'an unreadable address'

/** For example `127.0.0.1:6379`, or `db.internal:5432/sluice`; `an unreadable address` for a URL that is none. */
export function placeOf(url: string): string {
  if (url.startsWith('sqlite:')) return url.slice('sqlite:'.length)
  try {
    const { protocol, username, password, hostname, port, pathname, searchParams } = new URL(url)
    // A password with `/`, `?` or `#` in it ends the host too early, and the rest of it would be shown.
    const isPlain =
      url.split('@').length === (username + password === '' ? 1 : 2) && /^\/?[\w-]*$/.test(pathname)
    if (!isPlain) return UNREADABLE
    // A socket of the system stands in a parameter.
    const host = hostname === '' ? (searchParams.get('host') ?? 'localhost') : hostname
    const number = port === '' ? PORTS[protocol] : port
    return `${host}${number === undefined ? '' : `:${number}`}${pathname === '/' ? '' : pathname}`
  } catch {
    return UNREADABLE
  }
}

const PORTS: Readonly<Record<string, string>> = {
  'redis:': '6379',
  'rediss:': '6379',
  'postgres:': '5432',
  'postgresql:': '5432',
}

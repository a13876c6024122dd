/**
 * Domain allow and block lists: `example.com` covers its subdomains, `*.example.com` only the subdomains,
 * `example.com/docs` everything below that path. No regular expressions, because lists come from callers. Pure.
 */

/** Maximum entries of one list. */
const MAX_DOMAINS = 1_200
const MAX_ENTRY_CHARS = 300

interface DomainEntry {
  readonly host: string
  /** True if the entry covers only the subdomains of the host. */
  readonly coversSubdomains: boolean
  /** Begins with a slash; empty: any path. */
  readonly path: string
}

/** Returns true for an address that the lists allow. */
export type Admits = (url: URL) => boolean

/** The reason why a list is invalid; null if it is valid. */
export function domainsRefusal(list: readonly string[]): string | null {
  if (list.length > MAX_DOMAINS) return `must have at most ${MAX_DOMAINS} domains`
  const index = list.findIndex(entry => entryOf(entry) === null)
  return index === -1
    ? null
    : `entry ${index} must be a domain such as example.com, *.example.com or example.com/docs`
}

/** An empty list of allowed domains allows all. Invalid entries match nothing. */
export function createAdmits(allowed: readonly string[], blocked: readonly string[]): Admits {
  const allowedEntries = entriesOf(allowed)
  const refusedEntries = entriesOf(blocked)
  return url =>
    (allowed.length === 0 || allowedEntries.some(entry => matches(entry, url))) &&
    !refusedEntries.some(entry => matches(entry, url))
}

function entriesOf(list: readonly string[]): readonly DomainEntry[] {
  return list.flatMap(text => entryOf(text) ?? [])
}

function entryOf(text: string): DomainEntry | null {
  if (text.length > MAX_ENTRY_CHARS) return null
  let entry = text.trim().toLowerCase()
  for (const scheme of ['https://', 'http://'])
    if (entry.startsWith(scheme)) entry = entry.slice(scheme.length)
  const coversSubdomains = entry.startsWith('*.')
  if (coversSubdomains) entry = entry.slice(2)
  const slash = entry.indexOf('/')
  const name = slash === -1 ? entry : entry.slice(0, slash)
  // Case matters in the path, but not in the host.
  const path = slash === -1 ? '' : trimPath(text.trim().slice(text.trim().length - (entry.length - slash)))
  if (name === '' || /[^\p{L}\p{N}.:[\]-]/u.test(name) || name.includes('*')) return null
  const url = `https://${name}`
  if (!URL.canParse(url)) return null
  return { host: withoutFinalDot(new URL(url).hostname), coversSubdomains, path }
}

/** `/docs/*` and `/docs/` mean `/docs`. */
function trimPath(path: string): string {
  let end = path.endsWith('*') ? path.length - 1 : path.length
  while (end > 0 && path[end - 1] === '/') end--
  return path.slice(0, end)
}

function matches({ host, coversSubdomains, path }: DomainEntry, url: URL): boolean {
  const hostname = withoutFinalDot(url.hostname)
  const isBelow = hostname.endsWith(`.${host}`)
  if (coversSubdomains ? !isBelow : !isBelow && hostname !== host) return false
  return path === '' || url.pathname === path || url.pathname.startsWith(`${path}/`)
}

/** The host without the dot at the end of a fully qualified name. */
function withoutFinalDot(host: string): string {
  return host.endsWith('.') ? host.slice(0, -1) : host
}

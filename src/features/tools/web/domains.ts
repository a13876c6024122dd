/**
 * Domain allow and block lists: `example.com` covers its subdomains, `*.example.com` only the subdomains,
 * `example.com/docs` everything below that path. No regular expressions, because lists come from callers. Pure.
 */

/** Maximum entries of one list. */
const DOMAINS_MAX = 1_200
const ENTRY_MAX_CHARS = 300

interface Entry {
  readonly host: string
  /** Only subdomains. */
  readonly coversSubdomains: boolean
  /** Begins with a slash; empty: any path. */
  readonly path: string
}

/** True for an address that the lists allow. */
export type Admits = (url: URL) => boolean

/** The reason why a list is invalid; null: it is valid. */
export function domainsRefusal(list: readonly string[]): string | null {
  if (list.length > DOMAINS_MAX) return `must have at most ${DOMAINS_MAX} domains`
  const at = list.findIndex(entry => entryOf(entry) === null)
  return at === -1
    ? null
    : `entry ${at} must be a domain such as example.com, *.example.com or example.com/docs`
}

/** An empty list of allowed domains allows all. Invalid entries match nothing. */
export function createAdmits(allowed: readonly string[], refused: readonly string[]): Admits {
  const allowedEntries = entriesOf(allowed)
  const without = entriesOf(refused)
  return url =>
    (allowed.length === 0 || allowedEntries.some(entry => matches(entry, url))) &&
    !without.some(entry => matches(entry, url))
}

function entriesOf(list: readonly string[]): readonly Entry[] {
  return list.flatMap(text => entryOf(text) ?? [])
}

function entryOf(text: string): Entry | null {
  if (text.length > ENTRY_MAX_CHARS) return null
  let rest = text.trim().toLowerCase()
  for (const scheme of ['https://', 'http://']) if (rest.startsWith(scheme)) rest = rest.slice(scheme.length)
  const below = rest.startsWith('*.')
  if (below) rest = rest.slice(2)
  const slash = rest.indexOf('/')
  const name = slash === -1 ? rest : rest.slice(0, slash)
  // Case matters in the path, but not in the host.
  const path = slash === -1 ? '' : trimPath(text.trim().slice(text.trim().length - (rest.length - slash)))
  if (name === '' || /[^\p{L}\p{N}.:[\]-]/u.test(name) || name.includes('*')) return null
  const url = `https://${name}`
  if (!URL.canParse(url)) return null
  return { host: bare(new URL(url).hostname), coversSubdomains: below, path }
}

/** `/docs/*` and `/docs/` mean `/docs`. */
function trimPath(path: string): string {
  let end = path.endsWith('*') ? path.length - 1 : path.length
  while (end > 0 && path[end - 1] === '/') end--
  return path.slice(0, end)
}

function matches({ host, coversSubdomains: below, path }: Entry, url: URL): boolean {
  const hostname = bare(url.hostname)
  const isBelow = hostname.endsWith(`.${host}`)
  if (below ? !isBelow : !isBelow && hostname !== host) return false
  return path === '' || url.pathname === path || url.pathname.startsWith(`${path}/`)
}

/** Without the dot at the end of a full name. */
function bare(host: string): string {
  return host.endsWith('.') ? host.slice(0, -1) : host
}

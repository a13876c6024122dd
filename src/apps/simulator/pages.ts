/**
 * A small simulated web: a search engine with SearXNG's API, and the pages that it finds. The same search always has
 * the same results, and each text says that it is simulated. Pure.
 */

/** No DNS server knows a name under `.invalid`. */
export const SIM_PAGES_HOST = 'pages.sim.invalid'
const RESULT_COUNT = 3

interface SimWebReply {
  readonly status: number
  readonly type: string
  readonly body: string
}

/** The reply to a GET; null: the path does not exist. */
export function simWebReply(path: string, query: URLSearchParams): SimWebReply | null {
  if (path === '/search') {
    const searchText = query.get('q') ?? ''
    const results = Array.from({ length: RESULT_COUNT }, (_, index) => ({
      url: `https://${SIM_PAGES_HOST}/${slugOf(searchText)}/${index + 1}`,
      title: `Simulated page ${index + 1} about ${searchText}`,
      content: `This is simulated result ${index + 1} for "${searchText}".`,
      engine: 'sim',
    }))
    return { status: 200, type: 'application/json', body: JSON.stringify({ query: searchText, results }) }
  }
  if (!path.startsWith('/pages/')) return null
  const [, , topic = '', number = ''] = path.split('/')
  if (!/^[1-3]$/.test(number)) return { status: 404, type: 'text/html', body: '<p>No such page</p>' }
  const words = `Simulated page ${number} about ${topic.replace(/[^\p{L}\p{N}-]/gu, '').replaceAll('-', ' ')}`
  const body = `<!doctype html><html><head><title>${words}</title></head><body><h1>${words}</h1><p>This page is simulated. It is here so that web_fetch has something to read.</p></body></html>`
  return { status: 200, type: 'text/html; charset=utf-8', body }
}

/** The words of a search as a part of a path. */
function slugOf(text: string): string {
  return (text.toLowerCase().match(/[a-z0-9]+/g) ?? ['nothing']).slice(0, 6).join('-')
}

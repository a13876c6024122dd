/** Goldens of every search engine: what is asked, what it costs, and how a reply is read. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Value } from '@sinclair/typebox/value'
import t from 'tap'
import { toUsd } from '../../../src/base/money.ts'
import { SearchEngineSchema } from '../../../src/features/tools/settings.ts'
import type { SearchQuery, SearchResult } from '../../../src/features/tools/web/engine.ts'
import { PAGE_ENGINES } from '../../../src/features/tools/web/page-engines.ts'
import { SEARCH_ENGINES } from '../../../src/features/tools/web/search-engines.ts'
import { SEARCH_ENGINE_KINDS } from '../../../src/protocol/gateway-tools.ts'
import { accepted, plugins, tools } from '../../protocol/bodies.ts'

const FOLDER = join(import.meta.dirname, '../../fixtures/web')

interface Golden {
  readonly requests: readonly { query: SearchQuery; request: unknown; priceUsd: number }[]
  readonly replies: readonly { reply: unknown; results: readonly SearchResult[] }[]
}

t.test('every engine asks and reads as its golden says', async t => {
  t.same(Object.keys(SEARCH_ENGINES).sort(), [...SEARCH_ENGINE_KINDS].sort())
  t.same(readdirSync(FOLDER).sort(), SEARCH_ENGINE_KINDS.map(kind => `${kind}.json`).sort())
  for (const kind of SEARCH_ENGINE_KINDS) {
    const engine = SEARCH_ENGINES[kind]
    const golden = JSON.parse(readFileSync(join(FOLDER, `${kind}.json`), 'utf8')) as Golden
    for (const { query, request, priceUsd } of golden.requests) {
      const { method, path, body } = engine.request(query)
      t.same({ method, path, body: body === '' ? null : JSON.parse(body) }, request, kind)
      t.equal(toUsd(engine.price(query)), priceUsd, `${kind}, its price`)
    }
    for (const { reply, results } of golden.replies) t.same(engine.read(reply), results, kind)
  }
})

t.test('every engine with a row may be configured and named in a request', t => {
  for (const engine of Object.keys(SEARCH_ENGINES)) {
    t.ok(Value.Check(SearchEngineSchema, { name: 'a', kind: engine }), `${engine} in the configuration`)
    accepted(t, [
      [`${engine} of a search`, tools({ type: 'gateway:web_search', parameters: { engine } })],
      [`${engine} of a search, inline`, tools({ type: 'web_search', engine })],
      [`${engine} of the plugin`, plugins({ id: 'web', engine })],
    ])
  }
  const fetches = Object.keys(PAGE_ENGINES).map(engine => ({
    type: 'gateway:web_fetch',
    parameters: { engine },
  }))
  accepted(t, [['every engine of a page', tools(...fetches)]])
  t.end()
})

t.test('replies of other forms give no results, and never throw', async t => {
  const strange = [null, 1, 'x', [], {}, { results: 'x' }, { data: null }, { data: { web: {} } }]
  const odd = { results: [null, 1, { url: 5 }, { url: {} }, []] }
  for (const kind of SEARCH_ENGINE_KINDS) {
    for (const reply of strange) {
      const read = SEARCH_ENGINES[kind].read(reply)
      t.ok(read === null || read.length === 0, `${kind} ${JSON.stringify(reply)}`)
    }
    t.same(SEARCH_ENGINES[kind].read(kind === 'firecrawl' ? { data: { web: odd.results } } : odd), [])
    t.ok([null, undefined].includes(PAGE_ENGINES[kind]?.read({}) as null | undefined), kind)
  }
})

t.test('engines that fetch pages are asked and read', async t => {
  const url = 'https://example.com/a'
  const asked = (kind: 'exa' | 'parallel' | 'firecrawl') => {
    const request = PAGE_ENGINES[kind]?.request(url, 4_000)
    return [request?.path, JSON.parse(request?.body ?? '')]
  }
  t.same(asked('exa'), ['/contents', { urls: [url], text: { maxCharacters: 4_000 } }])
  t.same(asked('parallel'), [
    '/v1/extract',
    { urls: [url], advanced_settings: { full_content: { max_chars_per_result: 4_000 } } },
  ])
  t.same(asked('firecrawl'), ['/v2/scrape', { url, formats: ['markdown'], onlyMainContent: true }])
  t.same(PAGE_ENGINES.exa?.read({ results: [{ title: 'T', url, text: 'words' }] }), {
    title: 'T',
    content: 'words',
  })
  t.equal(
    PAGE_ENGINES.exa?.read({
      results: [],
      statuses: [{ id: url, status: 'error', error: { tag: 'CRAWL_NOT_FOUND', httpStatusCode: 404 } }],
    }),
    404,
  )
  t.same(PAGE_ENGINES.parallel?.read({ results: [{ url, title: 'T', full_content: 'words' }], errors: [] }), {
    title: 'T',
    content: 'words',
  })
  t.equal(
    PAGE_ENGINES.parallel?.read({ results: [], errors: [{ url, error_type: 'x', http_status_code: 500 }] }),
    500,
  )
  t.same(
    PAGE_ENGINES.firecrawl?.read({
      success: true,
      data: { markdown: 'words', metadata: { title: 'T', statusCode: 200 } },
    }),
    { title: 'T', content: 'words' },
  )
  t.equal(
    PAGE_ENGINES.firecrawl?.read({ success: true, data: { markdown: '', metadata: { statusCode: 403 } } }),
    403,
  )
})

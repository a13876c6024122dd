/** Where a search runs: at the provider, at an engine of ours, or nowhere; and the form in which a provider gets it. */
import t from 'tap'
import { createLog } from '../../../src/base/log/log.ts'
import type { ToolEndpoint, ToolSession } from '../../../src/exchange/server-tool.ts'
import { type WebEngine, WebEngines } from '../../../src/features/tools/web/engines.ts'
import { nativeTool, searchPlace, searchSettings } from '../../../src/features/tools/web/search-settings.ts'
import { createWebSearch } from '../../../src/features/tools/web-search.ts'
import { encodeTools as encodeMessagesTools } from '../../../src/formats/anthropic-messages/tools.ts'
import { encodeTools } from '../../../src/formats/openai-responses/tools.ts'
import { FORMATS } from '../../../src/formats/table.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'
import { scriptedExchange } from '../../support/scripted-attempt.ts'
import { TestClock } from '../../support/test-clock.ts'

const EXA: WebEngine = {
  name: 'own',
  kind: 'exa',
  baseUrl: 'http://x.test',
  apiKey: 'k',
  searchPrice: null,
  pagePrice: null,
}
const ENGINES = { byDefault: EXA, engineNamed: (kind: string) => (kind === 'exa' ? EXA : null) }
const NOTHING: ToolEndpoint = { hosts: () => false }
const HOSTED: ToolEndpoint = { hosts: type => type === 'web_search' }
const GOOGLE: ToolEndpoint = { ...HOSTED, searchesDomains: false }

/** `native`, the name of the engine, or the message of the refusal. */
function placed(
  fields: Record<string, unknown>,
  place: ToolEndpoint,
  engines = ENGINES as typeof ENGINES | null,
): string {
  try {
    const chosen = searchPlace(
      searchSettings(fields, 'tools[0]'),
      engines ?? { byDefault: null, engineNamed: () => null },
      place,
    )
    return chosen.native ? 'native' : (chosen.engine?.name ?? 'none')
  } catch (thrown) {
    return (thrown as Error).message
  }
}

t.test('auto is the provider where it searches, else the default engine', async t => {
  t.equal(placed({}, HOSTED), 'native')
  t.equal(placed({ engine: 'auto' }, HOSTED, null), 'native')
  t.equal(placed({}, NOTHING), 'own')
  t.equal(placed({ engine: 'exa' }, HOSTED), 'own')
  t.equal(placed({ engine: 'native' }, HOSTED), 'native')
  t.match(
    placed({ engine: 'native' }, NOTHING),
    /^tools\[0\]\.engine: the provider of this model has no web search/,
  )
  t.equal(placed({}, NOTHING, null), 'none')
})

t.test('a search that cannot be limited to domains is not asked with some', async t => {
  for (const domains of [
    { allowed_domains: ['a.test'] },
    { excluded_domains: ['a.test'] },
    { filters: { blocked_domains: ['a.test'] } },
  ]) {
    t.equal(placed(domains, HOSTED), 'native')
    t.equal(placed(domains, GOOGLE), 'own')
    t.match(
      placed({ ...domains, engine: 'native' }, GOOGLE),
      /^tools\[0\]\.engine: the provider's own web search cannot be limited to domains$/,
    )
  }
  t.equal(FORMATS['google-gemini'].searchesDomains, false)
})

t.test('only an engine that can takes both lists of domains', async t => {
  const both = { allowed_domains: ['a.test'], excluded_domains: ['b.test'] }
  t.equal(placed(both, NOTHING), 'own')
  const parallel = { ...EXA, kind: 'parallel' as const }
  t.match(
    placed(both, NOTHING, { byDefault: parallel, engineNamed: () => null }),
    /^tools\[0\]\.excluded_domains: must not be set together/,
  )
})

t.test("a provider gets the tool in its own form, without the gateway's settings", async t => {
  const parameters = { max_results: 3, max_uses: 2, allowed_domains: ['a.test'], search_context_size: 'low' }
  const native = nativeTool({ type: 'gateway:web_search', parameters })
  t.same(native, { type: 'web_search', ...parameters, engine: 'native' })
  t.same(nativeTool({ type: 'web_search_preview', search_context_size: 'high' }), {
    type: 'web_search_preview',
    search_context_size: 'high',
    engine: 'native',
  })
  t.same(encodeTools([native], 'tools', []), [
    { type: 'web_search', search_context_size: 'low', filters: { allowed_domains: ['a.test'] } },
  ])
  const fetching = { type: 'gateway:web_fetch', parameters: { max_uses: 1, max_content_tokens: 9 } }
  const tools = [native, fetching] as unknown as NonNullable<ResponsesRequest['tools']>
  t.same(encodeMessagesTools({ input: 'x', tools }, false).tools, [
    { type: 'web_search_20250305', name: 'web_search', max_uses: 2, allowed_domains: ['a.test'] },
    { type: 'web_fetch_20250910', name: 'web_fetch', max_uses: 1, max_content_tokens: 9 },
  ])
})

t.test(
  'a simulated search serves simulated models alone; the model of somebody else gets an error',
  async t => {
    const webEngines = new WebEngines({
      client: null as never,
      clock: new TestClock(),
      engines: [{ name: 'sim', kind: 'exa', baseUrl: 'http://127.0.0.1:1' }],
      byDefault: null,
      timeoutMs: 1,
      isSimulated: true,
    })
    const log = createLog('silent', { write: () => undefined })
    const config = { tools: { webSearch: { timeoutMs: 1 } } }
    const open = (type: string) =>
      createWebSearch({ webEngines, log, config }).open(
        [{ tool: { type }, path: 'tools[0]' }],
        scriptedExchange(),
        null as never,
      ) as ToolSession
    const ours = open('gateway:web_search')
    const call = { callId: 'c', name: 'web_search', arguments: { query: 'tea' }, tool: { type: 'x' } }
    t.match(ours.declare(NOTHING), [{ name: 'web_search' }])
    const outcome = await ours.run(call, () => undefined, new AbortController().signal)
    t.match(outcome.result, /no search engine is configured/)
    t.match(open('web_search').declare(NOTHING), [{ missing: 'no search engine is configured' }])
    const simulated = { ...NOTHING, isSimulated: true }
    t.match(open('web_search').declare(simulated), [{ name: 'web_search' }])
    t.equal(webEngines.servingModel(true).byDefault?.name, 'sim')
  },
)

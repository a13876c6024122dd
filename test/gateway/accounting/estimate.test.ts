import t from 'tap'
import { estimateRequest, estimateUsage } from '../../../src/gateway/accounting/estimate.ts'
import { createPluginChains } from '../../../src/gateway/plugin-chain.ts'
import { createMetrics } from '../../../src/metrics/metrics.ts'
import { createAlignment } from '../../../src/plugins/alignment.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { scriptedEndpoint } from '../../support/scripted-attempt.ts'
import { TestClock } from '../../support/test-clock.ts'

const asked = (input: unknown, more: Record<string, unknown> = {}) =>
  parseResponsesRequest({ model: 'a/b', input, ...more })

t.test('four characters make a token, on both sides', async t => {
  t.match(estimateUsage(asked('x'.repeat(400)), null, 81), {
    inputTokens: 100,
    outputTokens: 21,
    cachedTokens: 0,
  })
  t.match(estimateUsage(asked('', { instructions: 'x'.repeat(40) }), null, 0), {
    inputTokens: 10,
    outputTokens: 0,
  })
})

t.test('what the provider told stays exact; only missing output is estimated', async t => {
  const told = {
    inputTokens: 7,
    cachedTokens: 3,
    cacheWriteTokens: 2,
    outputTokens: 1,
    reasoningTokens: 0,
    webSearchRequests: 1,
  }
  t.same(estimateUsage(asked('x'.repeat(400)), told, 400), { ...told, outputTokens: 100 })
  t.same(estimateUsage(asked('x'), { ...told, outputTokens: 500 }, 400), { ...told, outputTokens: 500 })
})

const PNG = `iVBORw0KGgo${'A'.repeat(1_000_000)}`
const PDF = `JVBERi0xLjcK${'A'.repeat(1_000_000)}`
const MP3 = `SUQz${'A'.repeat(1_000_000)}`
const tokensOf = (...content: readonly object[]) =>
  estimateUsage(asked([{ role: 'user', content }]), null, 0).inputTokens

t.test('an attachment counts as one, however long its base64 is', async t => {
  const attachments = [
    { type: 'input_image', image_url: `data:image/png;base64,${PNG}` },
    { type: 'input_image', image_url: 'https://example.com/a.png' },
    { type: 'input_file', filename: 'a.pdf', file_data: PDF },
    { type: 'input_file', filename: 'a.pdf', file_data: `data:application/pdf;name=a;base64,${PDF}` },
    { type: 'input_file', filename: 'a.pdf', file_url: 'https://example.com/a.pdf' },
    { type: 'input_audio', input_audio: { data: MP3, format: 'mp3' } },
    { type: 'input_audio', input_audio: { data: `//uQ${'A'.repeat(1_000_000)}`, format: 'mp3' } },
  ]
  for (const attachment of attachments) {
    const tokens = tokensOf(attachment)
    t.ok(tokens >= 1_000 && tokens < 1_050, `${tokens} for ${JSON.stringify(attachment).slice(0, 80)}`)
  }
})

t.test('text counts by its length, whatever its field is called', async t => {
  const text = 'word '.repeat(200_000)
  const base64 = Buffer.from(text).toString('base64')
  for (const part of [
    { type: 'input_file', filename: 'a.txt', file_data: text },
    { type: 'input_file', filename: 'a.txt', file_data: `data:text/plain;base64,${base64}` },
    { type: 'input_file', filename: 'a.txt', file_data: base64 },
    { type: 'input_file', filename: 'a.txt', file_url: `https://example.com/?${text}` },
    { type: 'input_text', text: `data:image/png;base64,${text}` },
  ]) {
    t.ok(tokensOf(part) >= 250_000, JSON.stringify(part).slice(0, 80))
  }
  const named = `data:image/png;base64,${text}`
  const tool = { type: 'function', name: 'f', parameters: { properties: { data: named } } }
  const action = { type: 'exec', command: ['ls'], env: { data: named } }
  const shell = { type: 'local_shell_call', id: 'i', call_id: 'c', status: 'completed', action }
  for (const [input, more] of [
    ['', { tools: [tool] }],
    ['', { text: { format: { type: 'json_schema', name: 'n', schema: { default: named } } } }],
    [[shell], {}],
    [[{ type: 'additional_tools', role: 'developer', tools: [tool] }], {}],
  ] as const) {
    t.ok(estimateUsage(asked(input, more), null, 0).inputTokens >= 250_000, JSON.stringify(more).slice(0, 80))
  }
})

t.test('of tools and schemas names and values count as well', async t => {
  const names = Object.fromEntries(
    Array.from({ length: 1_000 }, (_, n) => [`property_${n}_`.padEnd(40, 'x'), {}]),
  )
  const values = { enum: Array.from({ length: 10_000 }, (_, n) => n) }
  for (const schema of [{ properties: names }, values]) {
    const tools = [{ type: 'function', name: 'f', parameters: schema }]
    const text = { format: { type: 'json_schema', name: 'f', schema } }
    t.ok(estimateUsage(asked('', { tools }), null, 0).inputTokens >= 10_000)
    t.ok(estimateUsage(asked('', { text }), null, 0).inputTokens >= 10_000)
  }
})

t.test('no number of small values hides a long one', async t => {
  const long = { role: 'user', content: 'x'.repeat(4_000_000) }
  const short = { role: 'user', content: '' }
  const shorts = Array.from({ length: 30_000 }, () => short)
  for (const input of [
    [long, ...shorts],
    [...shorts, long],
    [...shorts, long, ...shorts],
  ]) {
    t.ok(estimateUsage(asked(input), null, 0).inputTokens >= 1_000_000)
  }
})

/** The same value; each look at anything in it is told. */
function watched<T>(value: T, onLook: () => void): T {
  if (typeof value !== 'object' || value === null) return value
  return new Proxy(value, {
    get(target, key, receiver) {
      onLook()
      return watched(Reflect.get(target, key, receiver), onLook)
    },
    ownKeys(target) {
      onLook()
      return Reflect.ownKeys(target)
    },
  })
}

t.test('a request of very many parts is looked at once', async t => {
  const looksAt = (parts: number) => {
    const request = asked(
      Array.from({ length: parts }, () => ({
        role: 'user',
        content: [{ type: 'input_text', text: 'word' }],
      })),
    )
    let looks = 0
    const { inputTokens } = estimateUsage(
      watched(request, () => looks++),
      null,
      0,
    )
    t.ok(inputTokens >= parts)
    return looks
  }
  // Two objects and two lists, their names and their values.
  const looks = looksAt(100_000)
  t.ok(looks >= 100_000 && looks <= 20 * 100_000, `${looks} looks`)
  t.ok(looks < 101 * looksAt(1_000), 'and no more at each than where there are few')
})

t.test('before anything is sent a request is worth what its dearest candidate may charge', async t => {
  const endpoint = (prompt: number, completion: number, request: number, maxOutputTokens: number | null) => ({
    ...scriptedEndpoint('openai-chat'),
    maxOutputTokens,
    pricing: { prompt, completion, request, inputCacheRead: 0, inputCacheWrite: null },
  })
  const shared = { endpoint: endpoint(1, 2, 5, null), credential: null }
  const own = { endpoint: endpoint(10, 20, 0, 50), credential: { id: 'c', name: null, label: 'c...c' } }
  const text = 'x'.repeat(400)
  t.same(estimateRequest(asked(text, { max_output_tokens: 60 }), [shared, own]), {
    cost: 100 * 10 + 50 * 20,
    ownCost: 100 * 1 + 60 * 2 + 5,
    tokens: 160,
  })
  t.same(estimateRequest(asked(text), [shared]), {
    cost: 100 + 1024 * 2 + 5,
    ownCost: 100 + 1024 * 2 + 5,
    tokens: 1124,
  })
  t.match(estimateRequest(asked(text), [own]), { ownCost: 0, tokens: 150 })
})

t.test('a message that may be asked for again is worth all of its calls', async t => {
  const endpoint = {
    ...scriptedEndpoint('openai-chat'),
    pricing: { prompt: 1, completion: 2, request: 5, inputCacheRead: null, inputCacheWrite: null },
  }
  const candidates = [{ endpoint, credential: null }]
  const fails = () => Promise.reject(new Error('nobody asks'))
  const chains = createPluginChains([
    createAlignment({
      ask: fails,
      clock: new TestClock(),
      metrics: createMetrics(),
      tasks: { runInlineOr: fails },
      config: { alignment: { evaluator: null, hipaaWorkspaces: [], timeoutMs: 1 } },
      policyAgainst: () => null,
    }),
  ])
  const worth = (settings: object) => {
    const plugins = [{ id: 'alignment', rules: ['Be kind'], ...settings }]
    const request = asked('x'.repeat(400), { max_output_tokens: 60, plugins })
    return estimateRequest(request, candidates, chains.of(request)?.maxCalls)
  }
  const once = { cost: 100 + 60 * 2 + 5, tokens: 160 }
  t.match(worth({ max_retries: 0 }), once)
  t.match(worth({ mode: 'audit', max_retries: 3 }), once, 'nobody is asked again')
  const again = { cost: 2 * once.cost + 60, tokens: 2 * once.tokens + 60 }
  t.match(worth({}), again, 'with what was withheld')
  t.match(worth({ max_retries: 3 }), { cost: 4 * once.cost + 6 * 60, tokens: 4 * once.tokens + 6 * 60 })
})

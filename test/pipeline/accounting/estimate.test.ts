import t from 'tap'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { maxAffordableTokens, priceOf } from '../../../src/callers/limits/demand.ts'
import type { Candidate } from '../../../src/exchange/exchange.ts'
import { createAlignment } from '../../../src/features/plugins/alignment.ts'
import type { Usage } from '../../../src/formats/format.ts'
import { demandOf } from '../../../src/pipeline/accounting/allowance.ts'
import {
  estimateUsage as estimate,
  leastInputTokensOf,
  quartersIn,
  reasoningBudget,
} from '../../../src/pipeline/accounting/estimate.ts'
import { VisibleStreams } from '../../../src/pipeline/accounting/visible-streams.ts'
import { createPluginChains } from '../../../src/pipeline/plugin-chain.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { scriptedEndpoint } from '../../support/scripted-attempt.ts'
import { TestClock } from '../../support/test-clock.ts'

const NOTHING_SHOWN = new VisibleStreams()
const asked = (input: unknown, more: Record<string, unknown> = {}) =>
  parseResponsesRequest({ model: 'a/b', input, ...more })

const ENDPOINT = { ...scriptedEndpoint('openai-chat'), maxOutputTokens: null }
const estimateUsage = (request: ResponsesRequest, usage: Usage | null, outputQuarters: number) =>
  estimate(request, { usage, outputQuarters, isThoughtSeen: false }, ENDPOINT)

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

t.test('an attachment counts by its bytes, and with a thousand tokens at least', async t => {
  const attachments = [
    [{ type: 'input_image', image_url: `data:image/png;base64,${PNG}` }, 1_950, 2_000],
    [{ type: 'input_image', image_url: 'data:image/png;base64,iVBORw0KGgo' }, 1_000, 1_050],
    [{ type: 'input_image', image_url: 'https://example.com/a.png' }, 1_000, 1_050],
    [{ type: 'input_file', filename: 'a.pdf', file_data: PDF }, 31_250, 31_300],
    [
      { type: 'input_file', filename: 'a.pdf', file_data: `data:application/pdf;name=a;base64,${PDF}` },
      31_250,
      31_300,
    ],
    [{ type: 'input_file', filename: 'a.pdf', file_url: 'https://example.com/a.pdf' }, 1_000, 1_050],
    [{ type: 'input_audio', input_audio: { data: MP3, format: 'mp3' } }, 3_900, 3_950],
    [
      { type: 'input_audio', input_audio: { data: `//uQ${'A'.repeat(1_000_000)}`, format: 'mp3' } },
      3_900,
      3_950,
    ],
  ] as const
  for (const [attachment, least, most] of attachments) {
    const tokens = tokensOf(attachment)
    t.ok(tokens >= least && tokens <= most, `${tokens} for ${JSON.stringify(attachment).slice(0, 80)}`)
  }
})

t.test('a character of Chinese, Japanese or Korean is a token, and an emoji one or two', async t => {
  t.equal(quartersIn('Hello, Größe, Привет'), 20)
  t.equal(quartersIn('안녕하세요'), 20)
  t.equal(quartersIn('日本語 text'), 12 + 5)
  t.equal(quartersIn('😀'), 8)
  // A long text without such characters is weighed in another way.
  for (const length of [1, 15, 16, 17, 18, 900, 65_535, 65_536]) {
    for (const letter of ['a', 'é', 'Ж', '\u2e7f']) t.equal(quartersIn(letter.repeat(length)), length)
    for (const at of [0, length >> 1, length - 1])
      t.equal(
        quartersIn(`${'a'.repeat(at)}語${'a'.repeat(length - 1 - at)}`),
        length + 3,
        `${at} of ${length}`,
      )
  }
  t.equal(quartersIn('漢'.repeat(1_000_000)), 4_000_000, 'however long it is')
  t.equal(quartersIn(''), 0)
  t.equal(quartersIn(' 안녕'), 1 + 8)
  t.match(estimateUsage(asked('안녕'.repeat(50)), null, quartersIn('안녕'.repeat(990))), {
    inputTokens: 100,
    outputTokens: 1_980,
  })
})

t.test('reasoning that was asked for counts by its effort, unless it was told or seen', async t => {
  const reasoned = (reasoning: object | null, more: Record<string, unknown> = {}) =>
    asked('x', { reasoning, ...more })
  const endpoint = { ...ENDPOINT, maxOutputTokens: 100_000 }
  for (const [reasoning, tokens] of [
    [null, 0],
    [{ enabled: false }, 0],
    [{ effort: 'none' }, 0],
    [{ summary: 'auto' }, 0],
    [{ effort: 'low' }, 1_638],
    [{ effort: 'high' }, 6_553],
    [{ enabled: true }, 4_096],
    [{ max_tokens: 12_345 }, 12_345],
  ] as const) {
    t.equal(reasoningBudget(reasoned(reasoning), endpoint), tokens, JSON.stringify(reasoning))
  }
  t.equal(reasoningBudget(reasoned({ effort: 'high' }, { max_output_tokens: 1_000 }), endpoint), 800)
  t.equal(reasoningBudget(reasoned({ effort: 'high' }), { maxOutputTokens: 2_000 }), 1_600)
  const high = reasoned({ effort: 'high' })
  const seen = { usage: null, outputQuarters: 400, isThoughtSeen: true }
  t.match(estimate(high, { ...seen, isThoughtSeen: false }, endpoint), {
    outputTokens: 6_653,
    reasoningTokens: 6_553,
  })
  t.match(estimate(high, seen, endpoint), { outputTokens: 100, reasoningTokens: 0 })
  t.match(estimate(high, { ...seen, outputQuarters: 0, isThoughtSeen: false }, endpoint), { outputTokens: 0 })
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

const priced = (more: Record<string, unknown> = {}, slug = 'openai-chat' as const) => ({
  ...scriptedEndpoint(slug),
  pricing: { prompt: 1, completion: 2, request: 5, inputCacheRead: 0, inputCacheWrite: null },
  ...more,
})
const shared = (endpoint: Candidate['endpoint']): Candidate => ({ endpoint, credential: null })

t.test('a request demands what each candidate charges for reading and for each token', async t => {
  const own = {
    endpoint: priced({ maxOutputTokens: 50 }),
    credential: { id: 'c', name: null, label: 'c...c', declaredRegion: null, declaredZdr: null },
  }
  const text = 'x'.repeat(400)
  t.same(demandOf(asked(text, { max_output_tokens: 60 }), [shared(priced()), own], NOTHING_SHOWN), {
    offers: [
      { base: 105, perToken: 2, isOwn: false, maxTokens: 60, first: 60, cappable: true },
      { base: 105, perToken: 2, isOwn: true, maxTokens: 50, first: 50, cappable: true },
    ],
    tokens: 160,
  })
})

t.test('an output limit is believed where the endpoint has one, else its maximum is demanded', async t => {
  const limited = asked('x', { max_output_tokens: 1, stream: true })
  const offer = (request: ResponsesRequest, more: Record<string, unknown>) =>
    demandOf(request, [shared(priced(more))], NOTHING_SHOWN).offers[0]
  const without = { supportedParameters: new Set(['temperature']), maxOutputTokens: 100_000 }
  t.match(offer(limited, without), { maxTokens: 100_000, first: 100_000, cappable: false })
  t.match(offer(limited, { ...without, maxOutputTokens: null, contextLength: 8_000 }), { maxTokens: 8_000 })
  t.match(offer(limited, { ...without, maxOutputTokens: null }), { maxTokens: 65_536 })
  for (const name of ['max_tokens', 'max_completion_tokens']) {
    t.match(offer(limited, { ...without, supportedParameters: new Set([name]) }), {
      maxTokens: 1,
      cappable: true,
    })
  }
})

t.test('a stream demands a piece at a time, where all that is written is seen', async t => {
  const first = (more: Record<string, unknown>, fields: Record<string, unknown> = {}) =>
    demandOf(
      asked('x', { stream: true, ...fields }),
      [shared(priced({ maxOutputTokens: 9_000, ...more }))],
      NOTHING_SHOWN,
    ).offers[0]?.first
  const visible = { thinks: false }
  t.equal(first(visible), 1_024)
  t.equal(first(visible, { max_output_tokens: 100 }), 100)
  t.equal(first(visible, { stream: false }), 9_000, 'a whole reply demands all of it')
  for (const fields of [{}, { reasoning: { effort: 'none' } }, { reasoning: { enabled: false } }]) {
    t.equal(first({}, fields), 9_000, 'whatever is asked for, the model may think unseen')
    t.equal(first({ format: 'anthropic-messages' }, fields), 9_000)
  }
  t.equal(first({ supportedParameters: new Set(['max_tokens']) }), 9_000, 'it may think without being asked')
})

t.test('so many tokens of an offer are affordable as the rest pays for', async t => {
  const offer = { base: 100, perToken: 3, isOwn: false, maxTokens: 1_000, first: 1_000, cappable: true }
  t.equal(maxAffordableTokens(offer, 10_000), 1_000)
  t.equal(maxAffordableTokens(offer, 400), 100)
  t.equal(maxAffordableTokens(offer, 103), 1)
  t.equal(maxAffordableTokens(offer, 102), 0)
  t.equal(maxAffordableTokens(offer, -5), 0)
  t.equal(maxAffordableTokens({ ...offer, cappable: false }, 3_100), 1_000)
  t.equal(maxAffordableTokens({ ...offer, cappable: false }, 3_099), 0, 'all or nothing where no cap is kept')
  t.equal(maxAffordableTokens({ ...offer, perToken: 0 }, 100), 1_000)
  t.equal(maxAffordableTokens(offer, Number.POSITIVE_INFINITY), 1_000)
})

t.test('a message that may be asked for again is worth all of its calls', async t => {
  const endpoint = {
    ...scriptedEndpoint('openai-chat'),
    pricing: { prompt: 1, completion: 2, request: 5, inputCacheRead: null, inputCacheWrite: null },
  }
  const candidates = [{ endpoint, credential: null }]
  const fails = () => Promise.reject(new Error('nobody asks'))
  const chains = createPluginChains(
    [
      createAlignment({
        ask: fails,
        clock: new TestClock(),
        metrics: createMetrics(),
        tasks: { runInlineOr: fails },
        config: { alignment: { evaluator: null, hipaaWorkspaces: [], timeoutMs: 1 } },
        policyAgainst: () => null,
      }),
    ],
    new TestClock(),
  )
  const worth = (settings: object) => {
    const plugins = [{ id: 'alignment', rules: ['Be kind'], ...settings }]
    const request = asked('x'.repeat(400), { max_output_tokens: 60, plugins })
    const { offers, tokens } = demandOf(request, candidates, NOTHING_SHOWN, chains.of(request)?.maxCalls)
    const [offer] = offers
    return { cost: offer === undefined ? 0 : priceOf(offer, offer.first), tokens }
  }
  const once = { cost: 100 + 60 * 2 + 5, tokens: 160 }
  t.match(worth({ max_retries: 0 }), once)
  t.match(worth({ mode: 'audit', max_retries: 3 }), once, 'nobody is asked again')
  const again = { cost: 2 * once.cost + 60, tokens: 2 * once.tokens + 60 }
  t.match(worth({}), again, 'with what was withheld')
  t.match(worth({ max_retries: 3 }), { cost: 4 * once.cost + 6 * 60, tokens: 4 * once.tokens + 6 * 60 })
})

t.test('settings of server tools, which no model sees, are no part of the least input', t => {
  const least = (tools: readonly object[]) => leastInputTokensOf(asked('Hi', { tools }))
  const bare = least([])
  const subagents = Array.from({ length: 64 }, (_, at) => ({
    type: 'gateway:subagent',
    parameters: { name: `agent_${at}`, model: 'a/b', instructions: 'Look at this. '.repeat(20_000) },
  }))
  t.equal(least(subagents), bare)
  t.equal(least([{ type: 'openrouter:datetime', parameters: { timezone: 'Europe/Berlin' } }]), bare)
  const declared = {
    type: 'function',
    name: 'f',
    description: 'A long story. '.repeat(1_000),
    parameters: {},
  }
  t.ok(least([declared]) > 1_000, 'functions of the client are shown as they are')
  t.ok(least([...subagents, declared]) > 1_000)
  t.end()
})

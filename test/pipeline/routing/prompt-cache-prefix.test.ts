/** What is remembered of conversations: which prompts pay to be marked, and why one is not read from a cache. */
import t from 'tap'
import type { RunningExchange } from '../../../src/pipeline/exchange-stages.ts'
import type { RouteCandidate } from '../../../src/pipeline/routing/candidate.ts'
import { Prefixes } from '../../../src/pipeline/routing/prompt-cache-prefix.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'
import { createPins, type Pins } from '../../../src/storage/session-affinity/session-affinity.ts'
import { TestClock } from '../../support/test-clock.ts'

const MINUTE_MS = 60_000

function world() {
  const clock = new TestClock()
  const kept = createPins(clock)
  const calls: string[] = []
  const written: string[] = []
  const pins: Pins = {
    get(key) {
      calls.push('get')
      return kept.get(key)
    },
    claim: (...args) => kept.claim(...args),
    set(key, pin, ttlMs, owner) {
      calls.push('set')
      written.push(pin)
      kept.set(key, pin, ttlMs, owner)
    },
  }
  const prefixes = new Prefixes({ pins, clock, promptCaching: 'auto' })
  return { clock, calls, written, prefixes }
}

function candidate(slug: string, format = 'anthropic-messages', inputCacheRead: number | null = 1) {
  const pricing = { prompt: 10, inputCacheRead }
  const endpoint = { modelId: 'acme/one', upstreamModel: 'one', provider: { slug }, format, pricing }
  return { endpoint, credential: null } as unknown as RouteCandidate
}

const FIRST = candidate('first')
const SECOND = candidate('second')
const user = (content: string) => ({ role: 'user' as const, content })
const said = (content: string) => ({ role: 'assistant' as const, content })
const tool = (name: string) => ({ type: 'function' as const, name, parameters: {} })
const BASE = { session_id: 's', model: 'acme/one', instructions: 'Be brief', tools: [tool('look')] }

function exchange(request: object, agent?: string, candidates = [FIRST, SECOND]): RunningExchange {
  return {
    request: request as ResponsesRequest,
    caller: { organizationId: 'org', keyHash: 'key' },
    candidates,
    client: { agent },
  } as unknown as RunningExchange
}

const usage = (inputTokens: number, cachedTokens: number) => ({
  inputTokens,
  cachedTokens,
  cacheWriteTokens: 0,
  outputTokens: 1,
  reasoningTokens: 0,
  webSearchRequests: 0,
})

t.test('why a prompt that was read from a cache is not read there now', async t => {
  const TALK = [user('one'), said('a'), user('two')]
  const longer = [...TALK, said('b'), user('three')]
  const cases: readonly [string, object, RouteCandidate, number, number, object | null][] = [
    ['it is', { input: longer }, FIRST, 0, 100, null],
    ['it is all the more', { input: longer }, FIRST, 0, 120, null],
    ['tools', { input: longer, tools: [tool('other')] }, FIRST, 0, 0, { reason: 'tools', tokens: 100 }],
    ['system', { input: longer, instructions: 'X' }, FIRST, 0, 20, { reason: 'system', tokens: 80 }],
    [
      'the system prompt among the items',
      { input: [{ role: 'system', content: 'Now' }, ...longer] },
      FIRST,
      0,
      0,
      { reason: 'system', tokens: 100 },
    ],
    [
      'an earlier turn',
      { input: [user('0ne'), ...longer.slice(1)] },
      FIRST,
      0,
      30,
      { reason: 'earlier_turn', tokens: 70 },
    ],
    ['a shorter one', { input: TALK.slice(0, 2) }, FIRST, 0, 0, { reason: 'earlier_turn', tokens: 100 }],
    ['the endpoint', { input: longer }, SECOND, 0, 0, { reason: 'endpoint', tokens: 100 }],
    ['time', { input: longer }, FIRST, 5, 0, { reason: 'time', tokens: 100 }],
    ['the provider itself', { input: longer }, FIRST, 4, 0, { reason: 'other', tokens: 100 }],
    ['a new conversation of the same name', { input: [user('new')] }, FIRST, 0, 0, null],
  ]
  for (const [name, change, asked, minutes, cached, expected] of cases) {
    const { clock, prefixes } = world()
    prefixes.of(exchange({ ...BASE, input: TALK }))?.note(FIRST, usage(200, 100))
    clock.advance(minutes * MINUTE_MS)
    const prefix = prefixes.of(exchange({ ...BASE, ...change }))
    prefix?.note(asked, usage(300, cached))
    t.same(prefix?.miss, expected, name)
  }
})

t.test('a conversation that has never been read from a cache misses nothing', async t => {
  const { prefixes } = world()
  prefixes.of(exchange({ ...BASE, input: [user('one')] }))?.note(FIRST, usage(200, 0))
  const prefix = prefixes.of(exchange({ ...BASE, input: [user('one'), said('a'), user('two')] }))
  prefix?.note(FIRST, usage(300, 0))
  t.equal(prefix?.miss, null)
})

t.test('conversations that share a name, and agents, are told apart', async t => {
  const { prefixes } = world()
  const talks = ['tea', 'milk', 'salt'].map(word => [user(word), said('a'), user('two')])
  for (const input of talks) prefixes.of(exchange({ ...BASE, input }))?.note(FIRST, usage(200, 100))
  prefixes.of(exchange({ ...BASE, input: [user('x')] }, 'agent'))?.note(FIRST, usage(200, 100))
  for (const input of talks) {
    const prefix = prefixes.of(exchange({ ...BASE, input: [...input, said('b'), user('c')] }))
    t.ok(prefix?.isSeen())
    prefix?.note(FIRST, usage(300, 0))
    t.match(prefix?.miss, { reason: 'other' })
  }
  t.notOk(prefixes.of(exchange({ ...BASE, input: talks[0] }, 'agent'))?.isSeen())
})

t.test('a prefix is seen for the time to live of a cache, whatever marks are in it', async t => {
  const { clock, prefixes } = world()
  const mark = { cache_control: { type: 'ephemeral' } }
  const marked = (text: string) => ({
    role: 'user',
    content: [{ type: 'input_text', ...mark, text: `"cache_control":null, ${text}` }],
  })
  const plain = { role: 'user', content: [{ type: 'input_text', text: '"cache_control":null, one' }] }
  const first = exchange({ ...BASE, tools: [{ ...tool('look'), ...mark }], input: [marked('one')] })
  t.notOk(prefixes.of(first)?.isSeen())
  prefixes.of(first)?.note(FIRST, usage(200, 0))
  const again = exchange({ ...BASE, input: [plain, said('a'), marked('two')] })
  t.ok(prefixes.of(again)?.isSeen())
  clock.advance(4 * MINUTE_MS)
  t.ok(prefixes.of(again)?.isSeen())
  clock.advance(MINUTE_MS)
  t.notOk(prefixes.of(again)?.isSeen())
})

t.test(
  'nothing is asked or kept for requests without a name or an answer, or where no cache pays',
  async t => {
    const { calls, prefixes } = world()
    const { session_id: _, ...unnamed } = BASE
    const answered = { ...unnamed, input: [user('one'), said('a'), user('two')] }
    for (const asked of [
      exchange({ ...unnamed, input: 'one' }),
      exchange({ ...unnamed, input: [user('one'), user('two')] }),
      exchange(answered, undefined, [candidate('chat', 'openai-chat')]),
      exchange({ ...BASE, input: 'one' }, undefined, [candidate('first', 'anthropic-messages', null)]),
    ])
      t.equal(prefixes.of(asked), null)
    t.same(calls, [])
    t.ok(prefixes.of(exchange(answered)))
  },
)

t.test('hashes are kept, and no text', async t => {
  const { prefixes, written } = world()
  for (let turn = 0; turn < 10; turn++) {
    const input = [user('a very secret text'), said('a'), user(`number ${turn}`), said('b'), user('c')]
    prefixes.of(exchange({ ...BASE, input }))?.note(FIRST, usage(200, turn))
  }
  t.equal(written.length, 10)
  for (const pin of written) {
    t.notMatch(pin, /secret|number|brief|look/)
    t.ok(pin.length < 400, `${pin.length} characters`)
  }
})

t.test('what another version has written is no harm', async t => {
  const { clock } = world()
  for (const pin of ['', 'x', '{}', '[1]', '[["a"]]', 'null']) {
    const pins: Pins = { get: () => pin, claim: () => pin, set: () => undefined }
    const prefix = new Prefixes({ pins, clock, promptCaching: 'auto' }).of(exchange({ ...BASE, input: 'x' }))
    t.equal(prefix?.isSeen(), false)
    prefix?.note(FIRST, usage(10, 0))
    t.equal(prefix?.miss, null)
  }
})

/** The runner on a real database and a real provider: batches from their acceptance to their end. */
import t from 'tap'
import { hashKey, keyRecord } from '../../src/callers/api-key.ts'
import { loadConfig } from '../../src/process/config/config.ts'
import { startBatchWorld } from '../support/batch-world.ts'
import type { LineAnswer, LineReplied } from '../support/provider.ts'

const DEFAULTS = loadConfig([], {})

t.test('a batch is checked, run and completed, and its sums are those of the ledger', async t => {
  const world = await startBatchWorld(t)
  const { id } = await world.put({ lines: ['one', 'two', 'three'] })
  const batch = await world.reaches(id, 'completed')
  t.match(batch, { total: 3, completed: 3, failed: 0, error: null })
  t.match(
    [batch.startedAt, batch.finalizedAt].map(time => typeof time),
    ['string', 'string'],
  )
  const results = await world.results(id)
  t.match(results, [
    {
      customId: 'line-0',
      outcome: 'completed',
      document: {
        id: /^batch_req_[0-9a-f]{24}$/,
        error: null,
        response: {
          status_code: 200,
          request_id: /^gen-batch-1777593600-[0-9a-f]{24}$/,
          body: {
            object: 'chat.completion',
            model: 'acme/model',
            choices: [{ message: { content: 'one' } }],
            usage: { prompt_tokens: 7, completion_tokens: 5, cost: 0.000017 },
          },
        },
      },
    },
    { customId: 'line-1', document: { response: { body: { choices: [{ message: { content: 'two' } }] } } } },
    {
      customId: 'line-2',
      document: { response: { body: { choices: [{ message: { content: 'three' } }] } } },
    },
  ])
  const records = await world.records()
  t.same(
    records.map(record => record.id).sort(),
    results.map(({ document }) => document.response?.request_id).sort(),
  )
  t.match(batch.usage, {
    inputTokens: 21,
    outputTokens: 15,
    cost: String(records.reduce((sum, { cost }) => sum + cost, 0)),
    upstream: { prompt: '21000000', completions: '30000000' },
    isByok: false,
  })
  t.equal(batch.usage.cost, '51000000')
  t.match(
    world.lines.find(({ route }) => route === 'batch/chat/completions'),
    { method: 'BATCH', status: 200, outcome: 'completed', provider: 'acme', model: 'acme/model' },
  )
})

/** Texts that the provider takes as what to do: `STATUS`, `wait:SECONDS`, `broken`, `once:STATUS`; else an echo. */
const answer: LineAnswer = (text, nth) => {
  const [what, argument = ''] = text.split(':')
  switch (what) {
    case 'status':
      return { status: Number(argument) }
    case 'once':
      return nth === 1 ? { status: Number(argument) } : {}
    case 'wait':
      return nth === 1 ? { status: 429, retryAfter: Number(argument) } : {}
    case 'broken':
      return { breaks: true }
    default:
      return {}
  }
}

t.test('any mix of good, malformed and failing lines ends, each with its own error', async t => {
  const world = await startBatchWorld(t, { answer })
  const lines = {
    good: 'good',
    malformed: { messages: 'no list' },
    streamed: { messages: [{ role: 'user', content: 'x' }], stream: true },
    unknown: { model: 'acme/other', messages: [{ role: 'user', content: 'x' }] },
    refused: 'status:400',
    key: 'status:401',
    limited: 'status:429',
    broke: 'broken',
    down: 'status:500',
    overloaded: 'status:529',
    late: 'wait:30',
    once: 'once:503',
    last: 'last',
  }
  const { id } = await world.put({ lines: Object.values(lines) })
  const batch = await world.reaches(id, 'completed')
  const results = await world.results(id)
  const errors = Object.fromEntries(
    Object.keys(lines).map((name, at) => [name, results[at]?.document.error?.error_type ?? null]),
  )
  t.same(errors, {
    good: null,
    malformed: 'invalid_request',
    streamed: 'invalid_request',
    unknown: 'invalid_request',
    refused: 'invalid_request',
    key: 'provider_unavailable',
    limited: 'rate_limit_exceeded',
    broke: 'provider_unavailable',
    down: 'provider_unavailable',
    overloaded: 'provider_overloaded',
    late: null,
    once: null,
    last: null,
  })
  t.match(batch, { total: 13, completed: 4, failed: 9 })
  t.match(results[1]?.document.error, { param: 'messages', type: 'invalid_request_error' })
  t.same(
    Object.fromEntries(world.provider.asked),
    {
      good: 1,
      'status:400': 1,
      'status:401': 1,
      'status:429': 3,
      broken: 3,
      'status:500': 3,
      'status:529': 3,
      'wait:30': 2,
      'once:503': 2,
      last: 1,
    },
    'what may pass is tried three times',
  )
  // One record for each run that was sent, under ids of their own, and none for the bodies that failed the check.
  const records = await world.records()
  t.equal(records.length, world.provider.calls + 1, 'the unknown model was admitted and not sent')
  t.equal(new Set(records.map(record => record.id)).size, records.length)
  t.equal(batch.usage.cost, String(records.reduce((sum, { cost }) => sum + cost, 0)))
  t.equal(batch.usage.cost, String(4 * 17_000_000))
})

t.test('a batch of nothing but malformed bodies has failed, and says so', async t => {
  const world = await startBatchWorld(t)
  const { id } = await world.put({ lines: [{ messages: 1 }, { messages: 2 }] })
  const batch = await world.reaches(id, 'failed', 'completed')
  t.match(batch, {
    status: 'failed',
    total: 2,
    completed: 0,
    failed: 2,
    error: /^The bodies of all requests/,
  })
  t.match(await world.results(id), [{ document: { error: {} } }, { document: { error: {} } }])
  t.equal(world.provider.calls, 0)
})

t.test('lines answer in the dialect of their endpoint, with metadata where it was asked for', async t => {
  const world = await startBatchWorld(t)
  const { id } = await world.put({
    endpoint: '/v1/responses',
    withMetadata: true,
    lines: [{ input: 'hi' }, { input: 'hi', temperature: 'hot' }],
  })
  const batch = await world.reaches(id, 'completed')
  t.match(batch, { completed: 1, failed: 1 })
  t.match(await world.results(id), [
    {
      document: {
        response: {
          body: {
            object: 'response',
            id: /^gen-batch-/,
            status: 'completed',
            gateway_metadata: { requested: 'acme/model', generation_time: Number, is_byok: false },
          },
        },
      },
    },
    { document: { error: { param: 'temperature' } } },
  ])
})

t.test('preferences of the batch decide over providers', async t => {
  const world = await startBatchWorld(t, {
    providers: [
      { slug: 'other', name: 'Other', format: 'openai-chat', baseUrl: 'http://127.0.0.1:9', apiKey: 'x' },
    ],
    models: [{ id: 'two/model', name: 'Two', endpoints: [{ provider: 'other' }, { provider: 'acme' }] }],
  })
  const { id } = await world.put({
    model: 'two/model',
    preferences: { only: ['acme'], allowFallbacks: false },
    lines: ['x'],
  })
  await world.reaches(id, 'completed')
  t.equal(world.provider.calls, 1)
  const none = await world.put({ preferences: { only: ['nobody'], allowFallbacks: true }, lines: ['x'] })
  await world.reaches(none.id, 'completed')
  t.match(await world.results(none.id), [{ document: { error: { error_type: 'not_found' } } }])
})

t.test('the factor of prices holds in the body, the record and the sum', async t => {
  const world = await startBatchWorld(t, { config: { batches: { ...DEFAULTS.batches, priceFactor: '0.5' } } })
  const { id } = await world.put({ lines: ['x', 'y'] })
  const batch = await world.reaches(id, 'completed')
  t.equal(batch.usage.cost, '17000000')
  t.same(batch.usage.upstream, { prompt: '14000000', completions: '20000000' })
  t.match(await world.records(), [{ cost: 8_500_000 }, { cost: 8_500_000 }])
  const usage = { cost: 0.0000085, cost_details: { upstream_inference_prompt_cost: 0.000007 } }
  t.match(await world.results(id), [{ document: { response: { body: { usage } } } }])
})

t.test('cancelled in the middle, lines that run are ended at once, and what had finished stays', async t => {
  const held = Promise.withResolvers<LineReplied>()
  const world = await startBatchWorld(t, { answer: text => (text === 'held' ? held.promise : {}) })
  const { id } = await world.put({ lines: ['a', 'held', 'b', 'held', 'held'] })
  await world.until(async () => world.provider.running === 3 && (await world.batch(id)).completed === 2)
  await world.store.batches.work.move(id, ['in_progress'], 'cancelling', new Date().toISOString())
  world.batching.invalidate({ kind: 'batches' })
  const batch = await world.reaches(id, 'cancelled')
  t.match(batch, { total: 5, completed: 2, failed: 0 })
  t.match(batch.finalizedAt, String)
  t.equal(world.provider.left, 3, 'their calls are closed')
  t.same(
    (await world.results(id)).map(({ number }) => number),
    [0, 2],
  )
  held.resolve({})
  const records = await world.records()
  t.same(records.map(({ outcome }) => outcome).sort(), [
    'aborted',
    'aborted',
    'aborted',
    'completed',
    'completed',
  ])
})

t.test('a batch that is cancelled while it is checked ends without a run', async t => {
  const world = await startBatchWorld(t)
  await world.runner.drain(0)
  const { id } = await world.put({ lines: ['a'] })
  await world.store.batches.work.move(id, ['validating'], 'cancelling', new Date().toISOString())
  const other = await world.another()
  other.runner.wake()
  t.match(await world.reaches(id, 'cancelled'), { completed: 0, failed: 0 })
  t.equal(world.provider.calls, 0)
})

t.test('when its time is over a batch expires: running lines are ended, others never begin', async t => {
  const held = Promise.withResolvers<LineReplied>()
  const world = await startBatchWorld(t, {
    answer: text =>
      text === 'held' ? held.promise : text === 'later' ? { status: 429, retryAfter: 7_000 } : {},
  })
  const expiresAt = new Date(world.clock.nowMs() + 3_600_000).toISOString()
  const { id } = await world.put({ lines: ['a', 'held', 'later'], expiresAt })
  await world.until(() => world.provider.running === 1 && world.provider.calls === 3)
  world.clock.advance(3_600_000)
  const batch = await world.reaches(id, 'expired')
  t.match(batch, { total: 3, completed: 1, failed: 0 })
  t.equal(world.provider.left, 1)
  t.equal(world.provider.asked.get('later'), 1)
  held.resolve({})
})

t.test('a batch whose time was over before its check expires too', async t => {
  const world = await startBatchWorld(t)
  await world.runner.drain(0)
  const { id } = await world.put({ lines: ['a'], expiresAt: new Date(world.clock.nowMs()).toISOString() })
  const other = await world.another()
  other.runner.wake()
  t.match(await world.reaches(id, 'expired'), { completed: 0, failed: 0 })
})

t.test('while batches of one key are checked, one of another key does not wait for them', async t => {
  const claimed: string[] = []
  const held = Promise.withResolvers<void>()
  const world = await startBatchWorld(t, {
    between: store => {
      const { work } = store.batches
      const claimBatch: typeof work.claimBatch = async (id, ...rest) => {
        claimed.push(id)
        await held.promise
        return await work.claimBatch(id, ...rest)
      }
      return { ...store, batches: { ...store.batches, work: { ...work, claimBatch } } }
    },
  })
  const key = `sk-gw-v1-${'b'.repeat(64)}`
  await world.store.keys.add(keyRecord(key, 'inference', { name: 'other', clock: world.clock }))
  const many = [await world.put({ lines: ['a'] }), await world.put({ lines: ['b'] })]
  const one = await world.put({ lines: ['c'], keyHash: hashKey(key) })
  await world.until(() => claimed.length === 2)
  t.same(claimed, [many[0]?.id, one.id])
  held.resolve()
  for (const { id } of [...many, one]) await world.reaches(id, 'completed')
})

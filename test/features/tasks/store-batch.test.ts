/** Writing a batch to the Store: in groups, job after job, with the repeated id named, whatever the Store does. */
import t, { type Test } from 'tap'
import { BATCH_START } from '../../../src/features/tasks/batches/batch-progress.ts'
import type { FileBytes } from '../../../src/features/tasks/batches/file-source.ts'
import { checkBatch } from '../../../src/features/tasks/check-batch.ts'
import {
  createBatchStoring,
  type RequestPosition,
  type StoreBatchOutput,
  type StoreVerb,
} from '../../../src/features/tasks/store-batch.ts'
import { TaskFailure } from '../../../src/features/tasks/task.ts'
import type { NewLine } from '../../../src/storage/batches.ts'
import { openStore } from '../../../src/storage/open.ts'
import type { Store } from '../../../src/storage/store.ts'
import { atCall, type Fails, failingStore } from '../../support/failing-store.ts'
import { fileOf } from './file-bytes.ts'

const ID = `batch_${'a'.repeat(24)}`
const LEASE_MS = 60_000
const NOW_MS = Date.UTC(2026, 10, 22)
const OWNER = { organizationId: 'org', keyHash: 'a'.repeat(64) }
const OPENING = { id: ID, ...OWNER, idempotencyKey: null, leaseUntilMs: NOW_MS + LEASE_MS }

async function start(t: Test, fails: Fails = () => null) {
  const store = await openStore('sqlite::memory:')
  t.teardown(() => store.close())
  const groups: (readonly NewLine[])[] = []
  const noted: Store = {
    ...store,
    batches: {
      ...store.batches,
      async addLines(id, lines) {
        await store.batches.addLines(id, lines)
        groups.push(lines)
      },
    },
  }
  const failing = failingStore(noted, fails)
  let closed = 0
  // It closes what it was given after each job; the store of the test stays open.
  const run = createBatchStoring(async () => ({
    ...failing.store,
    close: async () => {
      closed++
    },
  }))
  return {
    store,
    groups,
    calls: failing.calls,
    get closed() {
      return closed
    },
    run: (verb: StoreVerb): Promise<StoreBatchOutput> => run({ ...verb, storageUrl: '' }),
    /** Adds all requests of a file; each job ends when its budget is over. */
    async addAll(file: FileBytes, budgetMs = 0): Promise<{ output: StoreBatchOutput; jobs: number }> {
      let from: RequestPosition = { position: firstRequest(file), number: 0 }
      for (let jobs = 1; ; jobs++) {
        const output = await run({
          verb: 'add',
          storageUrl: '',
          id: ID,
          file,
          form: 'requests',
          from,
          leaseUntilMs: LEASE_MS,
          budgetMs,
        })
        if (output.outcome !== 'added' || output.next === null) return { output, jobs }
        from = structuredClone(output.next)
      }
    },
  }
}

function firstRequest(file: FileBytes) {
  const checked = checkBatch({ file, progress: BATCH_START, budgetMs: 60_000 })
  if (checked.outcome !== 'whole') throw new Error(checked.outcome)
  return checked.firstRequest
}

const batch = (requests: readonly string[]) =>
  `{"requests": [${requests.join(',\n')}],"endpoint":"/v1/responses","model":"m"}`
const request = (id: string, body: string) => `{"custom_id":${JSON.stringify(id)},"body":${body}}`

function accepted(total: number) {
  return {
    id: ID,
    ...OWNER,
    workspaceId: 'ws',
    endpoint: '/v1/responses',
    model: 'm',
    preferences: null,
    dataRegion: null,
    withMetadata: false,
    inputFile: null,
    total,
    createdAt: '2026-11-22T00:00:00.000Z',
    expiresAt: '2026-11-23T00:00:00.000Z',
    bodyHash: '',
  } as const
}

/** As the runner gets them. */
async function stored(store: Store, total: number): Promise<readonly NewLine[]> {
  const batch = await store.batches.accept(accepted(total))
  if (batch === null) throw new Error('it was taken for abandoned')
  return await store.batches.work.uncheckedLines(ID, { limit: 100_000 })
}

t.test('lines have the bytes of the bodies, in order', async t => {
  const { run, addAll, store, closed } = await start(t)
  const bodies = ['{ "input" : "é😀\\u00e9" }', '{"n":12345678901234567890,"m":1e400}', '{"a":1,"a":2}', '{}']
  const file = fileOf(t, batch(bodies.map((body, at) => request(`r-${at} 語`, body))))
  t.same(await run({ verb: 'open', batch: OPENING, nowMs: NOW_MS }), {
    outcome: 'opening',
    opening: { outcome: 'opened' },
  })
  t.same(await addAll(file), { output: { outcome: 'added', next: null }, jobs: 1 })
  t.same(
    await stored(store, bodies.length),
    bodies.map((body, number) => ({ number, customId: `r-${number} 語`, body })),
  )
  t.equal(closed, 0)
})

t.test('groups are small, and any number of jobs adds the same lines', async t => {
  const requests = Array.from({ length: 5_000 }, (_, at) =>
    request(`r${at}`, `{"input":"${'x'.repeat(at % 700)}"}`),
  )
  requests[1_234] = request('large', `{"input":"${'y'.repeat(3_000_000)}"}`)
  for (const budgetMs of [0, 60_000]) {
    const started = await start(t)
    const { run, addAll, groups, store } = started
    const file = fileOf(t, batch(requests))
    await run({ verb: 'open', batch: OPENING, nowMs: NOW_MS })
    const { output, jobs } = await addAll(file, budgetMs)
    t.same(output, { outcome: 'added', next: null })
    t.equal(jobs, budgetMs === 0 ? groups.length : 1)
    t.equal(started.closed, jobs + 1, 'every job closes its store')
    for (const lines of groups) {
      const bytes = lines.reduce((sum, { body }) => sum + body.length, 0)
      t.ok(lines.length <= 1_000)
      t.ok(bytes - (lines.at(-1)?.body.length ?? 0) < 1024 * 1024, `${bytes} bytes`)
    }
    t.equal((await stored(store, 5_000)).length, 5_000)
  }
})

t.test('a body that is too large for any request is not kept, and its neighbours are', async t => {
  const { run, addAll, store, groups } = await start(t)
  const largest = `{"input":"${'x'.repeat(20 * 1024 * 1024 - 12)}"}`
  const tooLarge = `{"input":"${'x'.repeat(20 * 1024 * 1024 - 11)}"}`
  t.equal(largest.length, 20 * 1024 * 1024)
  const bodies = ['{"a":1}', tooLarge, '{"b":2}', largest, tooLarge, '{"c":3}']
  const file = fileOf(t, batch(bodies.map((body, at) => request(`r${at}`, body))))
  await run({ verb: 'open', batch: OPENING, nowMs: NOW_MS })
  t.match(await addAll(file, 60_000), { output: { outcome: 'added', next: null } })
  const lines = await stored(store, bodies.length)
  t.same(
    lines.map(({ body }) => body.length),
    bodies.map(({ length }) => (length > largest.length ? 0 : length)),
  )
  t.equal(lines[2]?.body, '{"b":2}')
  t.ok(lines[3]?.body === largest)
  t.equal(groups.length, 4)
})

t.test('a repeated id is named, near or far', async t => {
  const ids = Array.from({ length: 4_000 }, (_, at) => `r${at}`)
  for (const [first, second] of [
    [0, 1],
    [0, 3_999],
    [10, 999],
    [999, 1_000],
    [1_234, 2_500],
    [3_998, 3_999],
  ] as const) {
    const { run, addAll } = await start(t)
    const repeated = ids.with(second, `r${first}`)
    const file = fileOf(t, batch(repeated.map(id => request(id, '{}'))))
    await run({ verb: 'open', batch: OPENING, nowMs: NOW_MS })
    t.same(
      (await addAll(file, 60_000)).output,
      { outcome: 'repeated', number: second },
      `${first}, ${second}`,
    )
  }
})

t.test('ids that only look the same are different', async t => {
  const ids = ['é', 'e\u0301', 'E', 'e', 'e ', ' e', '\u212b', 'Å', 'ß', 'ss', '１', '1', 'i', 'İ', 'ı', '😀']
  const { run, addAll, store } = await start(t)
  await run({ verb: 'open', batch: OPENING, nowMs: NOW_MS })
  t.same((await addAll(fileOf(t, batch(ids.map(id => request(id, '{}')))))).output, {
    outcome: 'added',
    next: null,
  })
  t.same(
    (await stored(store, ids.length)).map(({ customId }) => customId),
    ids,
  )
})

t.test('a batch that was given up takes no more lines and is not accepted', async t => {
  const { run, addAll } = await start(t)
  const file = fileOf(t, batch([request('a', '{}')]))
  t.same((await addAll(file)).output, { outcome: 'lost' }, 'before it was opened')
  await run({ verb: 'open', batch: OPENING, nowMs: NOW_MS })
  t.same(await run({ verb: 'abandon', id: ID }), { outcome: 'abandoned' })
  t.same((await addAll(file)).output, { outcome: 'lost' })
  t.same(await run({ verb: 'accept', batch: accepted(0) }), { outcome: 'lost' })
})

t.test('a Store that fails is told as such, at every call, and closed', async t => {
  const file = fileOf(t, batch([request('a', '{}'), request('b', '{}')]))
  const all = async (run: Awaited<ReturnType<typeof start>>) => {
    await run.run({ verb: 'open', batch: OPENING, nowMs: NOW_MS })
    await run.addAll(file)
    await run.run({ verb: 'accept', batch: accepted(2) })
    await run.run({ verb: 'abandon', id: ID })
  }
  const sound = await start(t)
  await all(sound)
  t.same(sound.calls, [
    'batches.open',
    'batches.keepOpen',
    'batches.addLines',
    'batches.accept',
    'batches.abandon',
  ])
  for (const [at, verb] of sound.calls.entries()) {
    // `find` looks whether an acceptance took effect.
    const fails: Fails = call =>
      atCall(at + 1)(call) ?? (call.verb === 'batches.find' ? atCall(call.number)(call) : null)
    const failing = await start(t, fails)
    await t.rejects(all(failing), { constructor: TaskFailure, code: 'store', message: 'ECONNREFUSED' }, verb)
    t.ok(failing.closed > 0)
  }
})

t.test('an acceptance whose answer was lost is found again', async t => {
  const file = fileOf(t, batch([request('a', '{}')]))
  for (const tookEffect of [true, false]) {
    const { run, addAll } = await start(t, call =>
      call.verb === 'batches.accept' ? atCall(call.number, undefined, tookEffect)(call) : null,
    )
    await run({ verb: 'open', batch: OPENING, nowMs: NOW_MS })
    await addAll(file)
    const asked = run({ verb: 'accept', batch: accepted(1) })
    if (tookEffect)
      t.match(await asked, { outcome: 'accepted', batch: { id: ID, status: 'validating', total: 1 } })
    else await t.rejects(asked, { code: 'store' })
  }
})

t.test('a Store that cannot be opened is told as such', async t => {
  const run = createBatchStoring(openStore)
  await t.rejects(run({ verb: 'abandon', id: ID, storageUrl: 'sqlite:/dev/null/gateway.db' }), {
    code: 'store',
  })
  await t.rejects(run({ verb: 'abandon', id: ID, storageUrl: 'mysql://' }), { code: 'store' })
})

t.test('credentials of MCP servers are not stored', async t => {
  const { run, addAll, groups } = await start(t)
  const mcp = { type: 'mcp', server_label: 'a', server_url: 'https://a.example', authorization: 'mcp-secret' }
  const requests = [
    { custom_id: 'a', body: { input: 'x', tools: [mcp] } },
    { custom_id: 'b', body: { input: 'y' } },
  ]
  const file = fileOf(
    t,
    Buffer.from(JSON.stringify({ endpoint: '/v1/responses', model: 'acme/fast-1', requests })),
  )
  await run({ verb: 'open', batch: OPENING, nowMs: NOW_MS })
  await addAll(file)
  const lines = groups.flat()
  t.notMatch(JSON.stringify(lines), 'mcp-secret')
  t.same(
    lines.map(({ body }) => body),
    [
      '{"input":"x","tools":[{"type":"mcp","server_label":"a","server_url":"https://a.example","authorization":"removed"}]}',
      '{"input":"y"}',
    ],
  )
})

/** Acceptance as a whole: in order, all or nothing whatever fails, and once for each idempotency key. */

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { GatewayError, toGatewayError } from '../../src/base/errors.ts'
import {
  type AcceptDeps,
  BatchAcceptances,
  type BatchBounds,
  type IncomingBatch,
} from '../../src/batches/accept.ts'
import { Uploads } from '../../src/batches/uploads.ts'
import type { ClientRequest } from '../../src/exchange/exchange.ts'
import { checkBatch } from '../../src/features/tasks/check-batch.ts'
import { hashFile } from '../../src/features/tasks/hash-file.ts'
import { createBatchStoring } from '../../src/features/tasks/store-batch.ts'
import { fromPlain, TaskError, type TaskOutcome, toPlain } from '../../src/features/tasks/task.ts'
import type { BatchRecord } from '../../src/storage/batches.ts'
import { openStore } from '../../src/storage/open.ts'
import type { Store } from '../../src/storage/store.ts'
import { awayError, type Fails, failingStore, fullDiskError } from '../support/failing-store.ts'
import { scriptedContext } from '../support/scripted-attempt.ts'
import { TestClock } from '../support/test-clock.ts'

// Acceptance of batches in one process: real tasks without workers, and a real Store that fails when a test
// says so.

const ORGANIZATION = 'org'
const WORKSPACE = 'ws'
const KEY_HASH = 'a'.repeat(64)

interface InlineAcceptance {
  readonly acceptances: BatchAcceptances
  readonly uploads: Uploads
  readonly clock: TestClock
  /** Never fails. */
  readonly store: Store
  /** Names of jobs, with the verb where there is one. */
  readonly jobs: readonly string[]
  /** Requests whose admission was asked for. */
  readonly asked: readonly ClientRequest[]
  /** Verbs of the Store that jobs called. */
  readonly calls: () => readonly string[]
  accept(body: string, fields?: Partial<IncomingBatch>): Promise<{ batch: BatchRecord; isReplayed: boolean }>
  /** The error; null: it was accepted. */
  refused(body: string, fields?: Partial<IncomingBatch>): Promise<GatewayError | null>
  /** Ids of the batches that the workspace sees. */
  visible(): Promise<readonly string[]>
}

interface InlineOptions {
  readonly fails?: Fails
  readonly admit?: AcceptDeps['admit']
  readonly bounds?: Partial<BatchBounds>
  /** Called before each job with its name; an outcome ends it so. */
  readonly onJob?: (name: string) => Exclude<TaskOutcome, 'ok'> | null
}

async function startInlineAcceptance(t: Test, options: InlineOptions = {}): Promise<InlineAcceptance> {
  const { fails = () => null, onJob = () => null } = options
  const clock = new TestClock()
  const store = await openStore('sqlite::memory:')
  const folder = mkdtempSync(join(tmpdir(), 'sluice-accept-'))
  t.teardown(async () => {
    await store.close()
    rmSync(folder, { recursive: true, force: true })
  })
  const failing = failingStore(store, fails)
  const functions: Readonly<Record<string, (input: never) => unknown>> = {
    'hash-file': hashFile,
    'check-batch': checkBatch,
    'store-batch': createBatchStoring(async () => ({ ...failing.store, close: async () => undefined })),
  }
  const jobs: string[] = []
  const asked: ClientRequest[] = []
  const uploads = new Uploads({ folder, maxBytes: 100_000_000 })
  const acceptances = new BatchAcceptances({
    uploads,
    tasks: {
      async run(name, input) {
        const { verb } = input as { verb?: string }
        const job = verb === undefined ? name : `${name} ${verb}`
        jobs.push(job)
        const outcome = onJob(job)
        if (outcome !== null) throw new TaskError(outcome, outcome === 'failed' ? toPlain(new Error()) : null)
        try {
          // As between threads.
          return structuredClone(await functions[name]?.(structuredClone(input) as never)) as never
        } catch (error) {
          throw fromPlain(toPlain(error))
        }
      },
    },
    async admit(request) {
      asked.push(request)
      return (await options.admit?.(request)) ?? null
    },
    probe: async () => undefined,
    storageUrl: '',
    bounds: {
      maxStored: 10_000,
      maxStoredRequests: 2_000_000,
      maxStoredBytes: 10_737_418_240,
      ...options.bounds,
    },
    clock,
  })
  const accept: InlineAcceptance['accept'] = (body, fields = {}) =>
    acceptances.accept({
      context: scriptedContext(),
      caller: {
        keyHash: KEY_HASH,
        organizationId: ORGANIZATION,
        workspaceId: WORKSPACE,
        memberId: null,
        limit: null,
      },
      workspaceId: WORKSPACE,
      idempotencyKey: null,
      withMetadata: false,
      dataRegion: null,
      openFile: () => Promise.reject(new Error('no file is asked for')),
      read: reader => reader.write(Buffer.from(body), 0),
      announcedBytes: body.length,
      ...fields,
    })
  return {
    acceptances,
    uploads,
    clock,
    store,
    jobs,
    asked,
    calls: () => failing.calls,
    accept,
    async refused(body, fields) {
      try {
        await accept(body, fields)
        return null
      } catch (thrown) {
        return toGatewayError(thrown)
      }
    },
    async visible() {
      const page = await store.batches.list({ organizationId: ORGANIZATION, workspaceId: WORKSPACE }, 100)
      return page?.items.map(({ id }) => id) ?? []
    },
  }
}

const request = (id: string, body = '{"input":"x"}') => `{"custom_id":"${id}","body":${body}}`
const batch = (requests: readonly string[], fields = '') =>
  `{"endpoint":"/v1/responses","model":"acme/fast-1"${fields},"requests":[${requests.join(',')}]}`
const BATCH = batch([request('a'), request('b')])

t.test('a batch is checked, admitted, stored and only then made', async t => {
  const inline = await startInlineAcceptance(t)
  const { batch: made, isReplayed } = await inline.accept(
    batch([request('a'), request('b')], ',"provider":{"only":["acme"],"allow_fallbacks":false}'),
    { dataRegion: 'europe', withMetadata: true },
  )
  t.equal(isReplayed, false)
  t.match(made, {
    id: /^batch_[0-9A-Za-z]{24}$/,
    endpoint: '/v1/responses',
    model: 'acme/fast-1',
    preferences: { only: ['acme'], allowFallbacks: false },
    dataRegion: 'europe',
    withMetadata: true,
    status: 'validating',
    total: 2,
    completed: 0,
    failed: 0,
  })
  t.equal(Date.parse(made.createdAt), inline.clock.nowMs())
  t.equal(Date.parse(made.expiresAt) - Date.parse(made.createdAt), 86_400_000)
  t.same(inline.jobs, [
    'check-batch',
    'store-batch open',
    'store-batch reserve',
    'store-batch add',
    'store-batch accept',
  ])
  t.same(await inline.visible(), [made.id])
  t.equal(inline.uploads.bytes, 0)
  const lines = await inline.store.batches.work.uncheckedLines(made.id, { limit: 10 })
  t.same(
    lines.map(({ customId, body }) => [customId, body]),
    [
      ['a', '{"input":"x"}'],
      ['b', '{"input":"x"}'],
    ],
  )
})

t.test('admission is asked about the model, with the preferences and the region of the batch', async t => {
  const { accept, asked } = await startInlineAcceptance(t)
  await accept(batch([request('a')], ',"provider":{"only":["acme"]}'), { dataRegion: 'us' })
  t.match(asked, [
    {
      dialect: 'responses',
      dataRegion: 'us',
      request: { model: 'acme/fast-1', input: '', provider: { only: ['acme'] } },
    },
  ])
  t.equal(asked.length, 1)
})

t.test('what admission refuses leaves nothing, but a limit that frees itself refuses nothing', async t => {
  for (const code of ['payment_required', 'permission_denied', 'no_endpoints', 'model_not_found'] as const) {
    const inline = await startInlineAcceptance(t, {
      admit: async () => {
        throw new GatewayError(code, 'No')
      },
    })
    t.match(await inline.refused(BATCH, { idempotencyKey: 'k' }), { code, message: 'No' })
    t.same(await inline.visible(), [])
    t.same(inline.jobs, ['hash-file', 'store-batch open', 'check-batch', 'store-batch abandon'])
    t.match(await inline.refused(BATCH), { code })
    t.same(inline.jobs.slice(4), ['check-batch'], 'without an idempotency key it is not even opened')
  }
  const waits = await startInlineAcceptance(t, {
    admit: async () => {
      throw new GatewayError('rate_limit_exceeded', 'reserved')
    },
  })
  t.equal(await waits.refused(BATCH), null)
})

t.test('an endpoint that is not offered is refused', async t => {
  const inline = await startInlineAcceptance(t)
  const body = BATCH.replace('/v1/responses', '/v1/embeddings')
  const refused = await inline.refused(body)
  if (refused !== null) t.match(refused, { code: 'invalid_request', message: /^endpoint: / })
  t.equal((await inline.visible()).length, refused === null ? 1 : 0)
})

t.test('a workspace without room is a conflict, and its other batches stay', async t => {
  for (const [bounds, limit] of [
    [{ maxStored: 1 }, '1 batches'],
    [{ maxStoredRequests: 3 }, '3 batch requests'],
    [{ maxStoredBytes: 200 }, '200 bytes of batch requests and results'],
  ] as const) {
    const inline = await startInlineAcceptance(t, { bounds })
    const { batch: first } = await inline.accept(BATCH)
    t.match(await inline.refused(BATCH, { idempotencyKey: 'k' }), {
      code: 'conflict',
      message: `This batch would exceed the limit of ${limit} per workspace: delete batches that are no longer needed`,
    })
    t.equal(inline.jobs.at(-1), 'store-batch abandon')
    t.same(await inline.visible(), [first.id])
    t.equal(
      await inline.refused(BATCH, { workspaceId: 'other' }),
      null,
      'other workspaces have room of their own',
    )
    await inline.store.batches.work.move(first.id, ['validating'], 'failed', first.createdAt)
    await inline.store.batches.remove(first.organizationId, first.workspaceId, first.id)
    t.equal(await inline.refused(BATCH, { idempotencyKey: 'k' }), null, 'deleting makes room at once')
  }
})

t.test('batches that are made and deleted in turns are stopped until their rows are gone', async t => {
  const inline = await startInlineAcceptance(t, { bounds: { maxStored: 2 } })
  for (let times = 0; times < 4; times++) {
    const { batch: made } = await inline.accept(BATCH)
    await inline.store.batches.work.move(made.id, ['validating'], 'failed', made.createdAt)
    await inline.store.batches.remove(made.organizationId, made.workspaceId, made.id)
  }
  t.match(await inline.refused(BATCH), { code: 'conflict', retryAfterSeconds: 3_600 })
  while ((await inline.store.batches.work.prune('', inline.clock.nowMs(), 100)) > 0);
  t.equal(await inline.refused(BATCH), null)
})

t.test('a batch with a repeated id leaves nothing', async t => {
  const inline = await startInlineAcceptance(t)
  t.match(await inline.refused(batch([request('a'), request('b'), request('a')]), { idempotencyKey: 'k' }), {
    code: 'invalid_request',
    message: /^requests\[2\].custom_id: must be unique/,
  })
  t.same(await inline.visible(), [])
  t.equal(await inline.refused(BATCH, { idempotencyKey: 'k' }), null, 'its idempotency key is free')
})

t.test('an idempotency key makes one batch, and tells it again as it was', async t => {
  const inline = await startInlineAcceptance(t)
  const first = await inline.accept(BATCH, { idempotencyKey: 'k' })
  const again = await inline.accept(BATCH, { idempotencyKey: 'k' })
  t.equal(again.isReplayed, true)
  t.same(again.batch, first.batch)
  t.same(inline.jobs.slice(-2), ['hash-file', 'store-batch open'])
  t.match(await inline.refused(`${BATCH} `, { idempotencyKey: 'k' }), {
    code: 'unprocessable',
    message: /^Idempotency-Key: already used with another body/,
  })
  t.match(await inline.refused('{', { idempotencyKey: 'k' }), { code: 'unprocessable' }, 'valid or not')
  const other = await inline.accept(BATCH, { idempotencyKey: 'other' })
  t.equal(other.isReplayed, false)
  const none = await inline.accept(BATCH)
  t.same((await inline.visible()).toSorted(), [first.batch.id, other.batch.id, none.batch.id].toSorted())
})

t.test('an idempotency key that another instance holds is a conflict until its lease is over', async t => {
  const { store, clock, refused } = await startInlineAcceptance(t)
  await store.batches.open(
    {
      id: 'batch_elsewhere',
      organizationId: 'org',
      keyHash: 'a'.repeat(64),
      idempotencyKey: 'k',
      leaseUntilMs: clock.nowMs() + 10_000,
    },
    clock.nowMs(),
  )
  t.match(await refused(BATCH, { idempotencyKey: 'k' }), { code: 'conflict', retryAfterSeconds: 1 })
  clock.advance(10_001)
  t.equal(await refused(BATCH, { idempotencyKey: 'k' }), null)
})

t.test(
  'a Store that fails at any call, before it takes effect or after, leaves one batch or none',
  async t => {
    const sound = await startInlineAcceptance(t)
    await sound.accept(BATCH, { idempotencyKey: 'k' })
    const calls = sound.calls()
    t.same(calls, [
      'batches.open',
      'batches.reserve',
      'batches.keepOpen',
      'batches.addLines',
      'batches.accept',
    ])
    for (const [at, verb] of calls.entries()) {
      for (const tookEffect of [false, true]) {
        for (const error of [awayError(), fullDiskError()]) {
          for (const idempotencyKey of [null, 'k']) {
            let isAway = false
            const inline = await startInlineAcceptance(t, {
              fails({ number }) {
                if (number === at + 1) isAway = true
                return isAway ? { error, tookEffect: tookEffect && number === at + 1 } : null
              },
            })
            const name = `${verb}, ${error.code}, ${tookEffect ? 'after' : 'before'}, ${idempotencyKey}`
            t.match(
              await inline.refused(BATCH, { idempotencyKey }),
              { code: 'store_unavailable', retryAfterSeconds: 1, cause: { code: error.code } },
              name,
            )
            t.equal(inline.uploads.bytes, 0)
            const isMade = verb === 'batches.accept' && tookEffect
            t.equal((await inline.visible()).length, isMade ? 1 : 0, name)
            isAway = false
            // Nobody could give the batch up, so that its lease has to end.
            inline.clock.advance(200_000)
            t.equal(
              (await inline.accept(BATCH, { idempotencyKey })).isReplayed,
              isMade && idempotencyKey !== null,
            )
            t.equal((await inline.visible()).length, isMade && idempotencyKey === null ? 2 : 1, name)
          }
        }
      }
    }
  },
)

t.test('a client that leaves before any job leaves nothing', async t => {
  const sound = await startInlineAcceptance(t)
  await sound.accept(BATCH, { idempotencyKey: 'k' })
  const { jobs } = sound
  t.equal(jobs.length, 6)
  for (const [at, job] of jobs.entries()) {
    const leaving = new AbortController()
    const reason = new GatewayError('client_closed', 'gone')
    const inline = await startInlineAcceptance(t, {
      onJob() {
        // It leaves while the job before runs.
        if (inline.jobs.length === at) leaving.abort(reason)
        return null
      },
    })
    if (at === 0) leaving.abort(reason)
    t.equal(
      await inline.refused(BATCH, {
        idempotencyKey: 'k',
        context: scriptedContext({ signal: leaving.signal }),
      }),
      reason,
      job,
    )
    t.same(await inline.visible(), [], job)
    t.equal(inline.uploads.bytes, 0)
    t.equal(inline.jobs.includes('store-batch abandon'), at >= 1, job)
    t.equal(await inline.refused(BATCH, { idempotencyKey: 'k' }), null, 'its idempotency key is free')
  }
})

t.test('a job without a worker, or whose worker dies, may be tried again', async t => {
  const jobs = [
    'hash-file',
    'store-batch open',
    'check-batch',
    'store-batch reserve',
    'store-batch add',
    'store-batch accept',
  ]
  for (const job of jobs) {
    for (const outcome of ['overloaded', 'timeout', 'crashed', 'failed'] as const) {
      let isBroken = true
      const inline = await startInlineAcceptance(t, {
        onJob: name => (isBroken && name === job ? outcome : null),
      })
      const error = await inline.refused(BATCH, { idempotencyKey: 'k' })
      t.equal(error?.code, outcome === 'failed' ? 'internal' : 'service_unavailable', `${job}, ${outcome}`)
      t.same(await inline.visible(), [])
      isBroken = false
      t.equal(await inline.refused(BATCH, { idempotencyKey: 'k' }), null)
    }
  }
})

t.test('a body that takes long to check keeps its idempotency key meanwhile', async t => {
  const line = JSON.stringify({
    custom_id: 'a',
    method: 'POST',
    url: '/v1/responses',
    body: { model: 'm', input: 'x' },
  })
  const others: Promise<unknown>[] = []
  const inline = await startInlineAcceptance(t, {
    onJob(name) {
      if (name !== 'check-batch') return null
      inline.clock.advance(60_000)
      const other = {
        id: `batch_other${others.length}`,
        organizationId: 'org',
        keyHash: KEY_HASH,
        idempotencyKey: 'k',
      }
      const nowMs = inline.clock.nowMs()
      others.push(inline.store.batches.open({ ...other, leaseUntilMs: nowMs + 1_000 }, nowMs))
      return null
    },
  })
  const body = JSON.stringify({
    endpoint: '/v1/responses',
    input_file_id: 'file-a',
    completion_window: '24h',
  })
  async function* chunks() {
    yield Buffer.from(line)
  }
  const openFile = async () => ({ bytes: line.length, chunks })
  const { isReplayed } = await inline.accept(body, { idempotencyKey: 'k', openFile })
  t.equal(isReplayed, false)
  t.match(await Promise.all(others), [{ outcome: 'taken' }, { outcome: 'taken' }])
  t.ok(inline.jobs.includes('store-batch renew'))
})

t.test('a batch that took so long that it was taken for abandoned may be sent again', async t => {
  const inline = await startInlineAcceptance(t, {
    onJob(name) {
      if (name === 'store-batch accept' && inline.jobs.length < 6) inline.clock.advance(1_000_000)
      return null
    },
  })
  const { store, clock } = inline
  const open = store.batches.open.bind(store.batches)
  const refused = inline.refused(BATCH, { idempotencyKey: 'k' })
  t.equal(await refused, null, 'nobody has taken it over')
  const other = await open(
    {
      id: 'batch_other',
      organizationId: 'org',
      keyHash: 'a'.repeat(64),
      idempotencyKey: 'k',
      leaseUntilMs: clock.nowMs() + 1_000,
    },
    clock.nowMs(),
  )
  t.equal(other.outcome, 'known')
})

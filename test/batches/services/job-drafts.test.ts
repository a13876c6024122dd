/** Drafts of jobs: what they take, when they are ready, and what becomes of their lines, bytes and reservations. */
import t from 'tap'
import { JobDrafts, lineNumber, release } from '../../../src/batches/services/job-drafts.ts'
import type { BatchService } from '../../../src/batches/services/service.ts'
import { BATCH_SERVICES } from '../../../src/batches/services/table.ts'
import type { Candidate, DeferredCall } from '../../../src/exchange/exchange.ts'
import type { Endpoint } from '../../../src/protocol/provider.ts'
import type { Reservation, Spending } from '../../../src/protocol/records.ts'
import type { BatchRecord, ClaimedLine } from '../../../src/storage/batches.ts'
import { scriptedEndpoint, scriptedExchange, scriptedRecord } from '../../support/scripted-attempt.ts'
import { TestClock } from '../../support/test-clock.ts'
import { wireFor } from './batch-service.ts'

const MODEL = 'acme/scripted'
const MIB = 1024 * 1024
const QUIET_MS = 3_000
const AGE_MS = 60_000
/** As the service of the format has it. */
const JOB_MAX_BYTES = 16 * MIB

const BATCH = {
  id: 'batch_one',
  model: MODEL,
  service: { provider: 'acme' },
} as Partial<BatchRecord> as BatchRecord
const SERVED: Endpoint = withService(scriptedEndpoint('openai-chat'))

function withService(endpoint: Endpoint): Endpoint {
  return { ...endpoint, provider: { ...endpoint.provider, batch: { priceFactor: 500_000 } } }
}

function line(number: number, fields: Partial<ClaimedLine> = {}): ClaimedLine {
  return { batchId: BATCH.id, number, customId: `line-${number}`, body: '{}', fence: 1, tries: 0, ...fields }
}

/** A reservation that tells what it was settled with. */
class Reserved implements Reservation {
  readonly allowance = null
  readonly settled: Spending[] = []

  settle(spent: Spending): void {
    this.settled.push(spent)
  }
}

interface CallFields {
  readonly endpoint?: Endpoint
  readonly credential?: Candidate['credential']
  readonly text?: string
  readonly reservation?: Reservation
  readonly others?: readonly Endpoint[]
  readonly headers?: Readonly<Record<string, string>>
}

function call({
  endpoint = SERVED,
  credential = null,
  text = 'Hello',
  reservation,
  others = [],
  headers,
}: CallFields = {}): DeferredCall {
  const exchange = scriptedExchange()
  exchange.candidates = [endpoint, ...others].map(each => ({ endpoint: each, credential }))
  exchange.reservation = reservation ?? null
  const wire = wireFor('openai-chat', text)
  return {
    exchange,
    attempt: scriptedRecord({ endpoint, credential }),
    wire: headers === undefined ? wire : { ...wire, headers },
    reservedAmount: 7,
  }
}

function start() {
  const clock = new TestClock()
  const state = { held: 0 }
  const drafts = new JobDrafts({
    clock,
    countMemory: bytes => {
      state.held += bytes
    },
  })
  return { clock, drafts, state }
}

/** A text of so many bytes. */
const large = (bytes: number): string => 'x'.repeat(bytes)

t.test('lines of one kind share a draft, which is ready when no more of them come', async t => {
  const { clock, drafts } = start()
  for (const number of [0, 1]) t.ok(drafts.add(BATCH, line(number, { tries: number }), call()))
  t.same(drafts.ready(), [])
  clock.advance(QUIET_MS - 1)
  t.ok(drafts.add(BATCH, line(2), call()))
  clock.advance(QUIET_MS - 1)
  t.same(drafts.ready(), [], 'one came a moment ago')
  clock.advance(1)
  const ready = drafts.ready()
  t.match(ready, [
    {
      batch: BATCH,
      facts: {
        provider: 'acme',
        credentialId: null,
        upstreamModel: 'scripted',
        format: 'openai-chat',
        path: '/chat/completions',
      },
      mark: /^one-[A-Za-z0-9]+$/,
      lines: [
        { line: { batchId: BATCH.id, number: 0, fence: 1, tries: 0 }, reserved: 7 },
        { line: { number: 1, tries: 1 } },
        { line: { number: 2 } },
      ],
    },
  ])
  t.equal(ready.length, 1)
  t.equal(drafts.ready().length, 1, 'it stays until it is removed')
})

t.test('lines that come one by one do not wait for ever', async t => {
  const { clock, drafts } = start()
  for (let ms = 0; ms < AGE_MS; ms += QUIET_MS / 2) {
    t.ok(drafts.add(BATCH, line(ms), call()))
    t.same(drafts.ready(), [])
    clock.advance(QUIET_MS / 2)
  }
  t.match(drafts.ready(), [{ lines: { length: AGE_MS / (QUIET_MS / 2) } }])
})

t.test('lines of other batches, keys, models and paths make drafts of their own', async t => {
  const { clock, drafts } = start()
  const other = { ...BATCH, id: 'batch_two' }
  const own = { id: 'cred-1', name: null, label: 'sk-…1', declaredRegion: null, declaredZdr: null }
  t.ok(drafts.add(BATCH, line(0), call()))
  t.ok(drafts.add(other, line(0, { batchId: other.id }), call()))
  t.ok(drafts.add(BATCH, line(1), call({ credential: own })))
  t.ok(drafts.add(BATCH, line(2), call({ endpoint: { ...SERVED, upstreamModel: 'larger' } })))
  t.ok(drafts.add(BATCH, line(3), call({ endpoint: { ...SERVED, format: 'openai-responses' } })))
  clock.advance(QUIET_MS)
  const ready = drafts.ready()
  t.equal(ready.length, 5)
  t.equal(new Set(ready.map(({ mark }) => mark)).size, 5)
  t.same(
    ready.map(({ facts }) => facts.credentialId).filter(id => id !== null),
    [own.id],
  )
})

t.test('a service gets only what it can run, and what may go nowhere else', async t => {
  const { drafts, state } = start()
  const elsewhere = { ...SERVED.provider, slug: 'other' }
  const refused: Readonly<Record<string, readonly [BatchRecord, DeferredCall]>> = {
    'of a batch without a service': [{ ...BATCH, service: null }, call()],
    'of a batch with another service': [{ ...BATCH, service: { provider: 'other' } }, call()],
    'whose provider has no service any more': [BATCH, call({ endpoint: scriptedEndpoint('openai-chat') })],
    'that may go to another provider': [BATCH, call({ others: [{ ...SERVED, provider: elsewhere }] })],
    'for another model': [BATCH, call({ endpoint: { ...SERVED, modelId: 'acme/another' } })],
    'with a header of its own': [BATCH, call({ headers: { 'x-beta': '1' } })],
    'in a format without a service': [BATCH, call({ endpoint: { ...SERVED, format: 'openai-embeddings' } })],
    'that no job has room for': [BATCH, call({ text: large(JOB_MAX_BYTES) })],
  }
  for (const [name, [batch, asked]] of Object.entries(refused)) {
    const reservation = new Reserved()
    asked.exchange.reservation = reservation
    t.equal(drafts.add(batch, line(0), asked), false, name)
    t.equal(asked.exchange.reservation, reservation, `${name}: its reservation stays`)
  }
  t.same(drafts.lines, [])
  t.equal(state.held, 0)
})

t.test('a draft that has no room for a line makes way for the next one', async t => {
  const { clock, drafts } = start()
  for (const number of [0, 1, 2]) t.ok(drafts.add(BATCH, line(number), call({ text: large(6 * MIB) })))
  const [first, ...more] = drafts.ready()
  t.same(more, [], 'the last line waits for others')
  t.ok(first !== undefined && first.bytes <= JOB_MAX_BYTES)
  t.match(first?.lines, { length: 2 })
  clock.advance(QUIET_MS)
  const both = drafts.ready()
  t.same(
    both.map(({ lines }) => lines.map(({ line: { number } }) => number)),
    [[0, 1], [2]],
  )
  for (const { mark, lines } of both)
    for (const { line: of, text } of lines) {
      const { custom_id: id } = JSON.parse(text)
      t.equal(lineNumber(mark, id), of.number, 'a line has the id of the draft that it is in')
    }
})

t.test('a draft never has more lines than its service takes', async t => {
  const service = BATCH_SERVICES['openai-chat'] as { limits: BatchService['limits'] }
  const { limits } = service
  t.teardown(() => {
    service.limits = limits
  })
  service.limits = { ...limits, lines: 3 }
  const { clock, drafts } = start()
  for (let number = 0; number < 7; number++) t.ok(drafts.add(BATCH, line(number), call()))
  clock.advance(QUIET_MS)
  t.same(
    drafts.ready().map(({ lines }) => lines.length),
    [3, 3, 1],
  )
})

t.test('beyond the memory for all drafts the largest is ready at once, and no more should come', async t => {
  const { drafts, state } = start()
  const batches = [3, 12, 7].map((size, at) => ({ size, batch: { ...BATCH, id: `batch_${at}` } }))
  let number = 0
  while (!drafts.isFull) {
    for (const { size, batch } of batches) {
      drafts.add(batch, line(number, { batchId: batch.id }), call({ text: large(size * MIB) }))
    }
    number++
  }
  const before = drafts.lines.length
  const full = drafts.ready()
  t.ok(full.length > 0)
  t.equal(drafts.lines.length, before, 'none is lost on the way')
  for (const draft of [...full]) {
    drafts.remove(draft)
    release(draft)
  }
  t.equal(drafts.isFull, false)
  drafts.drop(() => true)
  t.equal(state.held, 0, 'all memory is free again')
})

t.test('a dropped draft gives its lines back, and what they had reserved', async t => {
  const { clock, drafts, state } = start()
  const reservations = [0, 1, 2].map(() => new Reserved())
  const other = { ...BATCH, id: 'batch_two' }
  for (const [number, reservation] of reservations.entries()) {
    const asked = call({ reservation })
    t.ok(drafts.add(number === 2 ? other : BATCH, line(number), asked))
    t.equal(asked.exchange.reservation, null, 'the exchange does not settle it any more')
  }
  clock.advance(QUIET_MS)
  drafts.ready()
  t.ok(drafts.add(BATCH, line(3), call()), 'one that is full, and one that is not')
  t.ok(drafts.has(BATCH.id))
  const dropped = drafts.drop(({ batch }) => batch.id === BATCH.id)
  t.same(
    dropped.map(({ number }) => number).toSorted((one, next) => one - next),
    [0, 1, 3],
  )
  t.match(dropped[0], { batchId: BATCH.id, fence: 1, tries: 0 })
  t.equal(drafts.has(BATCH.id), false)
  t.ok(drafts.has(other.id))
  const NOTHING = { cost: 0, isByok: false, tokens: 0 }
  t.same(
    reservations.map(({ settled }) => settled),
    [[NOTHING], [NOTHING], []],
  )
  t.match(drafts.ready(), [{ batch: { id: other.id } }])
  drafts.drop(() => true)
  t.equal(state.held, 0)
})

t.test('lines that others have leave their draft, and nobody else does', async t => {
  const { clock, drafts, state } = start()
  const reservations = [0, 1, 2].map(() => new Reserved())
  for (const [number, reservation] of reservations.entries())
    t.ok(drafts.add(BATCH, line(number, { fence: 4 }), call({ reservation })))
  drafts.dropLost([
    { batchId: BATCH.id, number: 1, fence: 4 },
    { batchId: BATCH.id, number: 2, fence: 3 },
    { batchId: 'batch_two', number: 0, fence: 4 },
  ])
  t.same(
    drafts.lines.map(({ number }) => number),
    [0, 2],
  )
  t.same(
    reservations.map(({ settled }) => settled.length),
    [0, 1, 0],
  )
  clock.advance(QUIET_MS)
  const [draft] = drafts.ready()
  if (draft === undefined) throw new Error('no draft')
  drafts.remove(draft)
  release(draft)
  t.equal(state.held, 0, 'the memory of all lines is free')
  t.same(
    reservations.map(({ settled }) => settled.length),
    [1, 1, 1],
    'each is settled once',
  )
})

t.test('a name of a line is that of its job, or none', async t => {
  t.equal(lineNumber('one-abc', 'one-abc-17'), 17)
  for (const id of ['one-abc', 'one-abc-', 'one-abc-x', 'one-abc--1', 'one-abc-1e3', 'one-ab-1', 'ONE-abc-1'])
    t.equal(lineNumber('one-abc', id), null, id)
  t.equal(lineNumber('one-abc', 'one-abc-1234567890'), null, 'longer than any number of a line')
  t.equal(lineNumber('one', 'one-abc-1'), null)
})

import t, { type Test } from 'tap'
import { Feed, ROWS_MAX } from '../../../src/apps/console/feed.ts'
import type { RequestRow } from '../../../src/apps/console/request-row.ts'
import type { SpanFigures } from '../../../src/apps/console/series.ts'
import type { EndedRequest } from '../../../src/protocol/ended-request.ts'
import { openStore } from '../../../src/storage/open.ts'
import { SERVICE_ORGANIZATION_ID, type UsageRecord } from '../../../src/storage/usage.ts'
import { someUsage } from '../../storage/usage.ts'
import { TestClock } from '../../support/test-clock.ts'

interface Event {
  readonly name: string
  readonly rows: readonly RequestRow[]
  readonly spans: readonly SpanFigures[]
  readonly unlisted?: number
}

async function setUp(t: Test) {
  const clock = new TestClock()
  const store = await openStore('sqlite::memory:')
  const watched: boolean[] = []
  const feed = new Feed({ store, clock, onWatched: is => void watched.push(is) })
  t.teardown(async () => {
    feed.close()
    await store.close()
  })
  const watch = async (organizationId = 'org_1') => {
    const events: Event[] = []
    const leave = await feed.watch(organizationId, {
      send: (name, data) => void events.push({ name, ...(structuredClone(data) as Omit<Event, 'name'>) }),
    })
    return { events, leave }
  }
  const createdAt = new Date(clock.nowMs()).toISOString()
  const usage = (more: Partial<UsageRecord> = {}): UsageRecord => ({ ...someUsage(), createdAt, ...more })
  const ended = (more: Partial<EndedRequest> = {}): EndedRequest => ({
    id: 'gen-1',
    route: '/responses',
    status: 200,
    outcome: 'completed',
    durationMs: 120,
    organization: 'org_1',
    workspace: null,
    endedAt: createdAt,
    stages: { parse: 20, stream: 100 },
    ...more,
  })
  return { clock, store, feed, watched, watch, usage, ended }
}

t.test('a record and what its thread told become one row, whichever comes first', async t => {
  const { clock, feed, watch, usage, ended } = await setUp(t)
  const { events } = await watch()
  feed.record([usage({ id: 'gen-a', error: null, outcome: 'completed' })])
  feed.ended([
    ended({ id: 'gen-a', status: 200 }),
    ended({ id: 'gen-b', status: 429, error: 'rate_limit_exceeded' }),
  ])
  feed.record([usage({ id: 'gen-b', outcome: 'failed', error: 'rate_limit_exceeded' })])
  clock.advance(500)
  t.equal(events.length, 2, 'the first rows, and one event for all changes')
  const rows = new Map(events[1]?.rows.map(row => [row.id, row]))
  t.same([...rows.keys()], ['gen-a', 'gen-b'])
  for (const row of rows.values()) {
    t.same(row.stages, { parse: 20, stream: 100 })
    t.not(row.cost, null)
  }
  t.equal(rows.get('gen-b')?.status, 429)
  clock.advance(5_000)
  t.equal(events.length, 2, 'nothing is sent twice')
})

t.test('a record that is shipped again counts once', async t => {
  const { clock, feed, watch, usage } = await setUp(t)
  const record = usage({ outcome: 'completed' })
  const { events } = await watch()
  feed.record([record, record])
  feed.record([record])
  clock.advance(500)
  t.equal(events[1]?.rows.length, 1)
  t.equal(
    events[1]?.spans.reduce((sum, { requests }) => sum + requests, 0),
    1,
  )
  clock.advance(500)
  t.equal(events.length, 2)
})

t.test('each organization has its own, and requests of the gateway are nobody’s', async t => {
  const { clock, feed, watch, usage, ended } = await setUp(t)
  const [one, other] = [await watch('org_1'), await watch('org_2')]
  feed.record([
    usage({ id: 'gen-1', organizationId: 'org_1' }),
    usage({ id: 'gen-2', organizationId: 'org_2' }),
    usage({ id: 'gen-3', organizationId: SERVICE_ORGANIZATION_ID }),
  ])
  feed.ended([ended({ id: 'gen-4', organization: 'org_2' })])
  clock.advance(500)
  t.same(
    one.events.flatMap(({ rows }) => rows.map(({ id }) => id)),
    ['gen-1'],
  )
  t.same(
    other.events.flatMap(({ rows }) => rows.map(({ id }) => id)),
    ['gen-2', 'gen-4'],
  )
})

t.test('threads are told when the first viewer comes and the last one goes', async t => {
  const { watched, watch } = await setUp(t)
  const one = await watch('org_1')
  const other = await watch('org_2')
  t.same(watched, [true])
  one.leave()
  one.leave()
  t.same(watched, [true])
  other.leave()
  t.same(watched, [true, false])
})

t.test('what is kept and sent is bounded, and the charts count all', async t => {
  const { clock, feed, watch, usage } = await setUp(t)
  const { events } = await watch()
  const count = ROWS_MAX + 200
  feed.record(Array.from({ length: count }, (_, at) => usage({ id: `gen-${at}`, outcome: 'completed' })))
  clock.advance(500)
  t.equal(events[1]?.rows.length, 100)
  t.equal(events[1]?.unlisted, count - 100)
  t.equal(
    events[1]?.spans.reduce((sum, { requests }) => sum + requests, 0),
    count,
  )
  const later = await watch()
  t.equal(later.events[0]?.rows.length, ROWS_MAX)
  t.equal(later.events[0]?.rows.at(-1)?.id, `gen-${count - 1}`)
})

t.test('a page that opens gets what the database has, before what came meanwhile', async t => {
  const { store, feed, watch, usage, ended } = await setUp(t)
  const before = [usage({ id: 'gen-1', outcome: 'failed' }), usage({ id: 'gen-2' })]
  await store.ledger.add([...before, usage({ id: 'gen-theirs', organizationId: 'org_2' })])
  const opening = watch()
  t.equal(feed.isWatched, true)
  feed.ended([ended({ id: 'gen-2' }), ended({ id: 'gen-4' })])
  feed.record([usage({ id: 'gen-3' })])
  const { events, leave } = await opening
  const rows = events[0]?.rows ?? []
  t.same(
    rows.map(({ id }) => id),
    ['gen-1', 'gen-2', 'gen-4', 'gen-3'],
  )
  t.ok(rows.find(({ id }) => id === 'gen-2')?.stages, 'with what its thread told')
  t.equal(
    events[0]?.spans.reduce((sum, { requests }) => sum + requests, 0),
    3,
  )
  t.equal(
    events[0]?.spans.reduce((sum, { failed }) => sum + failed, 0),
    1,
  )
  leave()
  t.equal(feed.isWatched, false)
  feed.record([usage({ id: 'gen-5' })])
  t.equal((await watch()).events[0]?.rows.length, 2, 'nothing is kept when nobody watches')
})

t.test('fees of a request are cost, and no request', async t => {
  const { clock, feed, watch, usage } = await setUp(t)
  const { events } = await watch()
  const parent = usage({ id: 'gen-1', cost: 2e12 })
  feed.record([
    parent,
    { ...parent, id: 'gen-1-fees', parent: 'gen-1', model: null, attempts: [], cost: 1e12 },
  ])
  clock.advance(500)
  t.same(
    events[1]?.rows.map(({ id }) => id),
    ['gen-1'],
  )
  t.equal(
    events[1]?.spans.reduce((sum, { cost }) => sum + cost, 0),
    3,
  )
})

t.test('other operations than those that ask models are not listed', async t => {
  const { clock, feed, watch, ended } = await setUp(t)
  const { events } = await watch()
  feed.ended([ended({ route: '/keys' }), ended({ route: '/files' })])
  clock.advance(500)
  t.equal(events.length, 1)
})

t.test('a summary says how far back it counts', async t => {
  const { clock, feed, store, usage } = await setUp(t)
  clock.advance(20_000)
  const createdAt = (at: number) => new Date(clock.nowMs() - at).toISOString()
  const earlier = Array.from({ length: ROWS_MAX }, (_, at) =>
    usage({ id: `gen-${at}`, createdAt: createdAt(at === 0 ? 12_000 : 5_000) }),
  )
  await store.ledger.add(earlier.slice(1))
  t.match(await feed.summary('org_1'), { windowSeconds: 900, requests: ROWS_MAX - 1 })
  clock.advance(60_000)
  await store.ledger.add(earlier.slice(0, 1))
  t.match(await feed.summary('org_1'), { windowSeconds: 72, requests: ROWS_MAX }, 'there may be more before')
})

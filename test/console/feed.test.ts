import t, { type Test } from 'tap'
import { Feed, ROWS_MAX } from '../../src/console/feed.ts'
import type { RequestRow } from '../../src/console/request-row.ts'
import type { SpanFigures } from '../../src/console/series.ts'
import type { EndedRequest } from '../../src/protocol/ended-request.ts'
import { openStore } from '../../src/storage/open.ts'
import { SERVICE_ORGANIZATION_ID, type UsageRecord } from '../../src/storage/usage.ts'
import { someUsage } from '../storage/usage.ts'
import { TestClock } from '../support/test-clock.ts'

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
  feed.record([record, record])
  feed.record([record])
  const { events } = await watch()
  t.equal(events[0]?.rows.length, 1)
  t.equal(
    events[0]?.spans.reduce((sum, { requests }) => sum + requests, 0),
    1,
  )
  clock.advance(500)
  t.equal(events.length, 1)
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
  for (let at = 0; at < 200; at++) feed.record([usage({ organizationId: `org_${at + 10}` })])
  t.equal((await watch()).events[0]?.rows.length, ROWS_MAX, 'an organization with viewers stays')
})

t.test('a page that opens also gets what the database has', async t => {
  const { store, feed, watch, usage } = await setUp(t)
  const [before, here] = [usage({ id: 'gen-before' }), usage({ id: 'gen-here' })]
  await store.ledger.add([before, here, usage({ id: 'gen-theirs', organizationId: 'org_2' })])
  feed.record([here])
  const { events } = await watch()
  t.same(events[0]?.rows.map(({ id }) => id).toSorted(), ['gen-before', 'gen-here'])
})

t.test('fees of a request are cost, and no request', async t => {
  const { feed, watch, usage } = await setUp(t)
  const parent = usage({ id: 'gen-1', cost: 2e12 })
  feed.record([
    parent,
    { ...parent, id: 'gen-1-fees', parent: 'gen-1', model: null, attempts: [], cost: 1e12 },
  ])
  const { events } = await watch()
  t.same(
    events[0]?.rows.map(({ id }) => id),
    ['gen-1'],
  )
  t.equal(
    events[0]?.spans.reduce((sum, { cost }) => sum + cost, 0),
    3,
  )
})

t.test('other operations than those that ask models are not listed', async t => {
  const { feed, watch, ended } = await setUp(t)
  feed.ended([ended({ route: '/keys' }), ended({ route: '/files' })])
  t.same((await watch()).events[0]?.rows, [])
})

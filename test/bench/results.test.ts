/** Which rows of a bench count. */
import t from 'tap'
import { bytesPerStream, costOf, judge, LIMITS, workOf } from '../../bench/results.ts'
import { json, row, scenario, streams } from './sample.ts'

const relay = scenario('relay-256-tls')

t.test('a sound row counts', async t => {
  t.same(judge(row({}), relay), { rejected: [], withoutCost: [], marks: [] })
})

t.test('each rule of rejection takes a row out and says why', async t => {
  const cases = [
    [{ cores: { subject: 0.3, load: 0.91, upstream: 0.2, others: 0 } }, /load used 0\.91/],
    [{ cores: { subject: 0.3, load: 0.2, upstream: 0.95, others: 0 } }, /upstream used 0\.95/],
    [{ streams: streams({ lost: 1 }) }, /1 events lost/],
    [{ streams: streams({ wrong: 2 }) }, /2 streams with a wrong checksum/],
    [{ streams: streams({ errors: 3 }) }, /3 broken connections/],
    [{ streams: streams({ refused: 4 }) }, /4 requests refused/],
    [{ streams: streams({ silent: 5 }) }, /5 streams gone silent/],
    [{ streams: streams({ events: 0, readsWithEvents: 0 }) }, /no events/],
    [{ streams: null, json: json({ errors: 1 }) }, /1 failed requests/],
    [{ streams: null, json: json({ wrong: 1 }) }, /1 replies with a wrong text/],
    [{ streams: null, json: json({ requests: 0 }) }, /no requests/],
    [{ leftOpen: 6 }, /6 upstream streams left open/],
  ] as const
  for (const [fields, reason] of cases) {
    const { rejected } = judge(row(fields), relay)
    t.equal(rejected.length, 1, String(reason))
    t.match(rejected[0], reason)
  }
})

t.test('a limit itself is within the limit', async t => {
  const cores = {
    subject: LIMITS.subjectCores,
    load: LIMITS.loadCores,
    upstream: 0,
    others: LIMITS.othersCores,
  }
  t.same(judge(row({ cores }), relay), { rejected: [], withoutCost: [], marks: [] })
  const readsWithEvents = 100_000 / LIMITS.eventsPerRead.max
  t.same(judge(row({ streams: streams({ events: 100_000, readsWithEvents }) }), relay).rejected, [])
})

t.test('events per read only take the cost away, and only where costs are compared', async t => {
  const merged = { streams: streams({ events: 50_000, readsWithEvents: 40_000 }) }
  t.same(judge(row(merged), scenario('relay-20')), {
    rejected: [],
    withoutCost: [],
    marks: ['1.25 events per read'],
  })
  t.same(judge(row({ ...merged, cpuMicros: null }), relay).withoutCost, [])
  const late = judge(row(merged), relay)
  t.same(
    late,
    { rejected: [], withoutCost: ['1.25 events per read'], marks: [] },
    'delays of late rows count',
  )
})

t.test('closed-loop JSON may bring the load to its limit; its throughput is marked', async t => {
  const busy = {
    streams: null,
    json: json({}),
    cores: { subject: 0.5, load: 0.7, upstream: 0.25, others: 0 },
  }
  t.same(judge(row(busy), scenario('json-64')), {
    rejected: [],
    withoutCost: [],
    marks: ['throughput bounded by the load'],
  })
  const full = { ...busy, cores: { ...busy.cores, load: 0.95 } }
  t.same(judge(row(full), scenario('json-64')).rejected, [])
  t.equal(judge(row(full), scenario('json-1')).rejected.length, 1)
})

t.test('where texts are cut anew, how many a read brings is no matter', async t => {
  const cut = { streams: streams({ events: 50_000, readsWithEvents: 3_000 }) }
  t.same(judge(row(cut), scenario('guard-relay-20')), { rejected: [], withoutCost: [], marks: [] })
})

t.test(
  'a row with task workers that were not busy, or whose requests failed, counts for nothing',
  async t => {
    const busy = { requests: 100, errors: 0, wrong: 0, cores: 0.9, share: 0.95 }
    const judged = (fields: Partial<typeof busy>) => judge(row({ busy: { ...busy, ...fields } }), guarded)
    const guarded = scenario('guard-busy-64')
    t.same(judged({}), { rejected: [], withoutCost: [], marks: [] })
    t.same(judged({ share: LIMITS.busyShare }).rejected, [])
    t.match(judged({ share: 0.5 }).rejected, [/task workers were busy 0\.50 of the time/])
    t.match(judged({ errors: 3 }).rejected, [/3 failed requests beside the streams/])
    t.match(judged({ wrong: 2 }).rejected, [/2 replies with a wrong text beside the streams/])
  },
)

t.test('task workers take no room from the thread that serves', async t => {
  const cores = { subject: 1.5, load: 0.1, upstream: 0.1, others: 0 }
  const busy = { requests: 100, errors: 0, wrong: 0, cores: 0.9, share: 0.95 }
  t.same(judge(row({ cores, busy }), scenario('guard-busy-64')).marks, [])
  t.match(judge(row({ cores }), scenario('guard-busy-64')).marks, [/no CPU left/])
  t.equal(
    costOf({ ...row({ busy }), rejected: [], marks: [] }),
    null,
    'what one event of two loads costs cannot be told',
  )
  t.equal(bytesPerStream({ ...row({ busy }), rejected: [], marks: [] }, scenario('guard-busy-64')), null)
})

t.test('a subject without room, and a noisy machine, are marked', async t => {
  const { rejected, marks } = judge(
    row({ cores: { subject: 0.97, load: 0.1, upstream: 0.1, others: 0.5 } }),
    relay,
  )
  t.same(rejected, [])
  t.match(marks, [/no CPU left/, /others used 0\.50/])
})

t.test('figures of a row', async t => {
  const one = {
    ...row({ cpuMicros: 1_000_000, idleRssBytes: 100, rssBytes: 5_000_100 }),
    rejected: [],
    marks: [],
  }
  t.equal(workOf(one), 50_000)
  t.equal(costOf(one), 20)
  t.equal(bytesPerStream(one, scenario('relay-5000')), 1000)
  t.equal(
    bytesPerStream(one, relay),
    null,
    'what 256 streams need is lost in what the process holds beside them',
  )
  t.equal(costOf({ ...one, cpuMicros: null }), null)
  t.equal(bytesPerStream({ ...one, streams: null, json: json({}) }, scenario('json-64')), null)
})

t.test(
  'streams and requests that end with a lost connection are marked where that is the purpose',
  async t => {
    const cut = { lost: 300, wrong: 16 }
    const few = judge(row({ subject: 'sluice-h2', streams: streams(cut) }), relay)
    t.same([few.rejected, few.marks], [[], ['300 events lost', '16 streams with a wrong checksum or order']])
    const refused = judge(row({ subject: 'sluice-h2', streams: streams({ refused: 100 }) }), relay)
    t.same([refused.rejected, refused.marks], [[], ['100 requests refused']])
    t.same(judge(row({ streams: streams({ refused: 100 }) }), relay).rejected, ['100 requests refused'])
    t.same(judge(row({ streams: streams(cut) }), relay).rejected.length, 2, 'nobody else may lose any')
    const many = { lost: 300, wrong: LIMITS.cutStreams + 1 }
    t.equal(judge(row({ subject: 'sluice-h2', streams: streams(many) }), relay).rejected.length, 2)
    const failed = json({ errors: 9 })
    const whole = { scenario: 'json-64', subject: 'sluice-h2', streams: null, json: failed } as const
    t.match(judge(row(whole), scenario('json-64')), { rejected: [], marks: ['9 failed requests'] })
  },
)

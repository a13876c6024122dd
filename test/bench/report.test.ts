/** The page that is written from raw results. */
import t from 'tap'
import { report } from '../../bench/report.ts'
import type { Row, Start } from '../../bench/results.ts'
import { json, quantiles, row, run, streams } from './sample.ts'

/** Lines of tables that begin with this cell, as lists of cells. */
function lines(page: string, first: string): string[][] {
  return page
    .split('\n')
    .filter(line => line.startsWith(`| ${first} |`))
    .map(line => line.slice(2, -2).split(' | '))
}

function pair(round: number, nginxMicros: number, sluiceMicros: number, fields: Partial<Row> = {}): Row[] {
  return [
    row({ subject: 'nginx', round, cpuMicros: nginxMicros * 50_000 }),
    row({ subject: 'sluice', round, cpuMicros: sluiceMicros * 50_000, ...fields }),
  ]
}

t.test('ratios are formed within a round, and their median is held against the target', async t => {
  // By medians 30/20 would be 1.5; within the rounds it is 1, 2 and 3.
  const page = report(run([...pair(0, 30, 30), ...pair(1, 20, 40), ...pair(2, 10, 30)]))
  t.same(lines(page, 'sluice')[0]?.slice(1, 3), ['30.0 (30.0–40.0)', '2.00 (1.00–3.00)'])
  t.same(lines(page, 'nginx').at(-1)?.slice(1, 3), ['20.0 (10.0–30.0)', '1'])
  const [claim] = lines(page, 'relay over TLS, CPU per event against nginx')
  t.same(claim?.slice(2), ['at most 1.5 ×', '2.00 (1.00–3.00) ×', '**missed**'])
  const good = report(run(pair(0, 20, 24)))
  t.same(lines(good, 'relay over TLS, CPU per event against nginx')[0]?.at(-1), 'held')
})

t.test('a rejected row counts for nothing and is told with its reason', async t => {
  const rows = [
    ...pair(0, 20, 24),
    ...pair(1, 20, 200, { rejected: ['7 events lost'], streams: streams({ lost: 7 }) }),
  ]
  const page = report(run(rows))
  t.same(lines(page, 'sluice')[0]?.slice(1, 3), ['24.0', '1.20'])
  t.equal(lines(page, 'sluice')[0]?.at(-1), '1 of 2')
  t.match(page, /- relay-256-tls, sluice, round 2: 7 events lost/)
})

t.test('a scenario of which every row is rejected still stands in the page, without figures', async t => {
  const page = report(run(pair(0, 20, 24, { rejected: ['no events'] })))
  t.equal(lines(page, 'sluice')[0]?.at(-1), '0 of 1')
  t.equal(lines(page, 'relay over TLS, CPU per event against nginx')[0]?.at(-1), 'not measured')
})

t.test('lost events count against the target even though their row is rejected', async t => {
  const lossy = row({ scenario: 'relay-5000', rejected: ['3 events lost'], streams: streams({ lost: 3 }) })
  const page = report(run([lossy]))
  t.same(lines(page, 'events lost, rejected rows included')[0]?.slice(3), ['3.00', '**missed**'])
})

t.test('targets that are least values, and those that compare with the direct way', async t => {
  const page = report(
    run([
      row({ scenario: 'json-64', subject: 'sluice', streams: null, json: json({ requests: 12_000 }) }),
      row({ scenario: 'json-64', subject: 'portkey', streams: null, json: json({ requests: 1_000 }) }),
      row({ scenario: 'relay-20', subject: 'direct', cpuMicros: null, streams: streams({}) }),
      row({ scenario: 'relay-20', streams: streams({ firstEvent: quantiles(1_800) }) }),
    ]),
  )
  t.same(lines(page, 'JSON, requests per second against Portkey')[0]?.slice(2), [
    'at least 8 ×',
    '12.0 ×',
    'held',
  ])
  t.same(lines(page, 'time to the first event p50, added to the direct way')[0]?.slice(3), [
    '1.50 ms',
    '**missed**',
  ])
  t.equal(lines(page, 'direct')[0]?.[1], '–', 'nobody stands between, so nothing has a cost')
})

t.test(
  'guards on output are held against one window, busy task workers against the lag of the event loop',
  async t => {
    const busy = { requests: 400, errors: 0, wrong: 0, cores: 0.9, share: 0.95 }
    const relay = { scenario: 'guard-relay-20' } as const
    const beside = { scenario: 'guard-busy-64' } as const
    const page = report(
      run([
        row({ ...relay, streams: streams({ firstEvent: quantiles(1_000) }) }),
        row({
          ...relay,
          subject: 'sluice-windowed',
          streams: streams({ firstEvent: quantiles(421_000) }),
        }),
        row({ ...beside, lagMicros: quantiles(90), streams: streams({ delay: quantiles(100) }) }),
        row({
          ...beside,
          subject: 'sluice-busy',
          busy,
          lagMicros: quantiles(700),
          streams: streams({ delay: quantiles(300) }),
        }),
      ]),
    )
    const target = (text: string) => lines(page, text)[0]?.slice(2)
    t.same(target('time to the first event p50, added by guards on output: one window and 5 ms'), [
      'at most 431 ms',
      '420 ms',
      'held',
    ])
    t.same(target('lag of the event loop p99 while all task workers are busy'), [
      'at most 5 ms',
      '7.00 ms',
      '**missed**',
    ])
    t.same(
      target('delay of an event p99 of streams without guardrails, added while all task workers are busy'),
      ['at most 5 ms', '2.00 ms', 'held'],
    )
    t.same(lines(page, 'sluice')[1]?.slice(-5, -1), ['0.09', '0.90', '–', '–'])
    t.same(lines(page, 'sluice-busy')[0]?.slice(-5, -1), ['0.70', '7.00', '0.95', '100'])
    t.equal(lines(page, 'sluice-busy')[0]?.[1], '–', 'the cost of two loads at once is not told')
  },
)

t.test('guards on requests are held against the latency that they add', async t => {
  const one = { scenario: 'guard-json-1', streams: null } as const
  const serial = (p50: number) => json({ serialMicros: { p50, p99: p50 * 2 } })
  const page = report(
    run([
      row({ ...one, json: serial(400) }),
      row({ ...one, subject: 'sluice-guarded', json: serial(1_500) }),
    ]),
  )
  t.same(lines(page, 'latency of a JSON request p50, added by guards')[0]?.slice(2), [
    'at most 1 ms',
    '1.10 ms',
    '**missed**',
  ])
})

t.test('machine, versions, commit, noise, marks, absent subjects and failures are told', async t => {
  const rows = [
    ...pair(0, 20, 24, { marks: ['others used 0.50 of a core'] }),
    row({ subject: 'sluice-again', cpuMicros: 26 * 50_000 }),
  ]
  const page = report(
    run(rows, {
      dirty: true,
      absent: { portkey: 'no registry' },
      failures: ['aborts, nginx, round 1: gone'],
    }),
    ['## Soak\n\nFlat.\n'],
  )
  for (const part of [
    'commit abc1234 with uncommitted changes',
    '2 × Some CPU',
    '| nginx | 1.22.1 |',
    'relay-256-tls 1.08',
    'sluice #1: others used 0.50 of a core',
    '- portkey is absent: no registry',
    '- aborts, nginx, round 1: gone',
    '## Soak\n\nFlat.',
  ])
    t.ok(page.includes(part), part)
  t.notMatch(page, /NaN|undefined|Infinity/)
})

t.test('cold starts are told by state, and held to their targets from the second start on', async t => {
  const start = (state: Start['state'], round: number, readyMs: number): Start => ({
    state,
    round,
    readyMs,
    tokenMs: readyMs + 100,
    idleRssBytes: state === 'second' ? 140 * 1024 ** 2 : null,
  })
  const starts = [start('first', 0, 1_900), start('second', 0, 900), start('second', 1, 1_000)]
  const page = report(run([row({})], { starts }))
  t.match(
    page,
    /ready, from the second start on \| cold-start \| at most 1200 ms \| 950 \(900–1000\) ms \| held \|/,
  )
  t.match(page, /\| first \| 1900 \| 2000 \| – \| 1 \|/)
  t.match(page, /\| second \| 950 \(900–1000\) \| 1050 \(1000–1100\) \| 140 \(140–140\) \| 2 \|/)
  t.notMatch(report(run([row({})])), 'cold-start')
})

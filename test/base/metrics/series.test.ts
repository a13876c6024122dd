/** Our series beside those of the library they stand in for: whoever scrapes must not be able to tell them apart. */
import {
  AggregatorRegistry,
  Counter as LibraryCounter,
  Histogram as LibraryHistogram,
  Registry,
} from 'prom-client'
import t from 'tap'
import { Counter, Histogram } from '../../../src/base/metrics/series.ts'

const BUCKETS = [0.001, 0.01, 0.1, 1, 60]
/** On, between and beyond the bounds, and before the first. */
const VALUES = [0, -1, 0.0005, 0.001, 0.0010001, 0.01, 0.5, 1, 59.9, 60, 61, 1e9, 5e-324]

const counter = { name: 'a_total', help: 'With a \\ and a\nline break', labelNames: ['x', 'y', 'z'] as const }
const plain = { name: 'plain_total', help: 'Without labels' }
const histogram = { name: 'a_seconds', help: 'Times', labelNames: ['stage'] as const, buckets: BUCKETS }
const bare = { name: 'bare_seconds', help: 'Times', buckets: BUCKETS }

/** The labels of each count. Two of them share the first label, two the last. */
const COUNTED = [
  { x: 'one', y: 'two', z: 'three' },
  { x: 'one', y: 'two', z: 'four' },
  { x: 'one', y: 'quote " and \\ and\nbreak', z: 'four' },
  { x: 'o', y: 'netwo', z: 'four' },
  { x: '', y: '', z: '' },
]

function ours(observed: boolean): Registry {
  const registry = new Registry()
  const families = {
    counter: new Counter({ ...counter, registry }),
    plain: new Counter({ ...plain, registry }),
    histogram: new Histogram({ ...histogram, registry }),
    bare: new Histogram({ ...bare, registry }),
  }
  families.counter.of('never', 'added', 'to')
  families.histogram.of('never observed')
  if (!observed) return registry
  for (const [at, { x, y, z }] of COUNTED.entries()) {
    families.counter.of(x, y, z).inc(at)
    families.counter.inc({ z, y, x })
  }
  families.plain.inc()
  families.plain.inc(0.25)
  for (const [at, value] of VALUES.entries()) {
    const stage = at % 2 === 0 ? 'even' : 'odd'
    if (at % 3 === 0) families.histogram.observe({ stage }, value)
    else families.histogram.of(stage).observe(value)
    families.bare.observe(value)
  }
  return registry
}

function theirs(observed: boolean): Registry {
  const registry = new Registry()
  const registers = [registry]
  const families = {
    counter: new LibraryCounter({ ...counter, registers }),
    plain: new LibraryCounter({ ...plain, registers }),
    histogram: new LibraryHistogram({ ...histogram, registers }),
    bare: new LibraryHistogram({ ...bare, registers }),
  }
  if (!observed) return registry
  for (const [at, labels] of COUNTED.entries()) {
    families.counter.inc(labels, at)
    families.counter.inc(labels)
  }
  families.plain.inc()
  families.plain.inc(0.25)
  for (const [at, value] of VALUES.entries()) {
    families.histogram.observe({ stage: at % 2 === 0 ? 'even' : 'odd' }, value)
    families.bare.observe(value)
  }
  return registry
}

t.test(
  'a scrape reads as if the library had counted, before and after there was something to count',
  async t => {
    for (const observed of [false, true]) {
      t.equal(await ours(observed).metrics(), await theirs(observed).metrics())
    }
  },
)

t.test('the snapshots of threads add up as those of the library do', async t => {
  const page = async (registries: readonly Registry[]) => {
    const snapshots = registries.map(async registry => structuredClone(await registry.getMetricsAsJSON()))
    return AggregatorRegistry.aggregate(await Promise.all(snapshots)).metrics()
  }
  const expected = await page([theirs(true), theirs(false), theirs(true)])
  t.equal(await page([ours(true), ours(false), ours(true)]), expected)
  t.equal(await page([ours(true), theirs(false), theirs(true)]), expected, 'even mixed')
})

t.test('a snapshot stays as it was when counting goes on', async t => {
  const registry = new Registry()
  const counts = new Counter({ ...counter, registry })
  const times = new Histogram({ ...histogram, registry })
  counts.of('a', 'b', 'c').inc()
  times.of('a').observe(1)
  const before = await registry.getMetricsAsJSON()
  const copy = structuredClone(before)
  counts.of('a', 'b', 'c').inc()
  times.of('a').observe(1)
  t.same(before, copy)
})

t.test('a series is the same one for ever, also after all were set to zero', async t => {
  const registry = new Registry()
  const counts = new Counter({ ...counter, registry })
  const times = new Histogram({ ...histogram, registry })
  const [count, time] = [counts.of('a', 'b', 'c'), times.of('a')]
  t.equal(counts.labels({ x: 'a', y: 'b', z: 'c' }), count)
  t.equal(times.labels({ stage: 'a' }), time)
  t.not(counts.of('a', 'b', 'd'), count)
  count.inc(5)
  time.observe(5)
  registry.resetMetrics()
  t.same((await counts.get()).values, [])
  t.same((await times.get()).values, [])
  count.inc(2)
  time.observe(2)
  t.same((await counts.get()).values, [{ value: 2, labels: { x: 'a', y: 'b', z: 'c' } }])
  t.match((await times.get()).values.at(-2), {
    metricName: 'a_seconds_sum',
    value: 2,
    labels: { stage: 'a' },
  })
})

t.test('what would spoil a sum for ever is refused, as by the library', async t => {
  const registry = new Registry()
  const counts = new Counter({ ...plain, registry })
  const times = new Histogram({ ...bare, registry })
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY, -1])
    t.throws(() => counts.inc(value), RangeError)
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])
    t.throws(() => times.observe(value), RangeError)
  t.same((await counts.get()).values, [{ value: 0, labels: {} }])
  t.ok((await times.get()).values.every(({ value }) => value === 0))
})

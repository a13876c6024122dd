import t from 'tap'
import type { RequestRow } from '../../../src/apps/console/request-row.ts'
import { Series, SPAN_SECONDS, SPANS_MAX } from '../../../src/apps/console/series.ts'

const NOW_MS = Date.UTC(2026, 0, 2, 3, 4, 5)

function row(more: Partial<RequestRow> = {}): RequestRow {
  return {
    id: 'gen-1',
    at: new Date(NOW_MS).toISOString(),
    model: 'sim/echo',
    provider: 'sim',
    status: 200,
    outcome: 'completed',
    error: null,
    cause: null,
    firstTokenMs: 10,
    durationMs: 0,
    inputTokens: 1,
    outputTokens: 1,
    cost: 0.5,
    attempts: [],
    stages: null,
    workspace: null,
    isInner: false,
    ...more,
  }
}

t.test('requests count in the span in which they ended', async t => {
  const series = new Series()
  series.add(row({ durationMs: 7_000 }), NOW_MS + 7_000)
  series.add(row({ outcome: 'failed', firstTokenMs: null }), NOW_MS + 7_000)
  const from = Math.floor(NOW_MS / 1000 / SPAN_SECONDS) * SPAN_SECONDS
  t.same(series.all(), [
    { from, requests: 1, failed: 1, cost: 0.5, p50: null, p95: null },
    { from: from + SPAN_SECONDS, requests: 1, failed: 0, cost: 0.5, p50: 10, p95: 10 },
  ])
})

t.test('percentiles are by nearest rank, of the last 256 requests of a span', async t => {
  const series = new Series()
  for (let ms = 1; ms <= 100; ms++) series.add(row({ firstTokenMs: ms }), NOW_MS)
  t.match(series.all(), [{ p50: 50, p95: 95 }])
  for (let at = 0; at < 256; at++) series.add(row({ firstTokenMs: 7 }), NOW_MS)
  t.match(series.all(), [{ requests: 356, p50: 7, p95: 7 }])
})

t.test('inner calls cost, but nobody waits for them', async t => {
  const series = new Series()
  series.add(row({ isInner: true }), NOW_MS)
  t.match(series.all(), [{ requests: 0, cost: 0.5, p50: null }])
})

t.test('spans are bounded; what is older, or has no time, is left out', async t => {
  const series = new Series()
  for (let at = 0; at < 3 * SPANS_MAX; at++) {
    const nowMs = NOW_MS + at * SPAN_SECONDS * 1000
    series.add(row({ at: new Date(nowMs).toISOString() }), nowMs)
  }
  t.ok(series.all().length <= SPANS_MAX + 1)
  const before = series.all().length
  series.add(row(), NOW_MS + 3 * SPANS_MAX * SPAN_SECONDS * 1000)
  series.add(row({ at: 'never' }), NOW_MS)
  t.equal(series.all().length, before)
})

t.test('only changed spans are taken', async t => {
  const series = new Series()
  series.add(row(), NOW_MS)
  t.equal(series.takeChanged().length, 1)
  t.same(series.takeChanged(), [])
})

import t from 'tap'
import type { EndedTrace } from '../../../src/base/telemetry/ended-trace.ts'
import { callerContext } from '../../../src/base/telemetry/trace-context.ts'
import { TracedStopwatch, Tracing, type TracingTerms } from '../../../src/base/telemetry/tracing.ts'
import { EXCHANGE_LINE } from '../../support/exchange-line.ts'
import { TestClock } from '../../support/test-clock.ts'

const ODD = '0af7651916cd43dd8448eb211c80319c'

function start(terms: Partial<TracingTerms> = {}) {
  const kept: EndedTrace[] = []
  let dropped = 0
  const tracing = new Tracing(
    {
      clock: new TestClock(0),
      send: (traces, more) => {
        kept.push(...traces)
        dropped += more
      },
    },
    { share: 0, keepSlowerThanMs: 1_000, trust: 'keys', ...terms },
  )
  const end = (header: string | null, line: object = {}, isTrusted = false): boolean => {
    const trace = tracing.begin()
    trace.isTrusted = isTrusted
    const context = header === null ? null : callerContext(header)
    if (context !== null) trace.join(context)
    kept.length = 0
    const ended = { ...EXCHANGE_LINE, outcome: 'completed', error: null, durationMs: 1, ...line }
    tracing.endTrace(trace, ended, new TracedStopwatch(0), 1)
    tracing.flush()
    return kept.length === 1
  }
  return { tracing, end, dropped: () => dropped, kept }
}

t.test('failed, refused and slow requests are kept, and the chosen share of the rest', t => {
  const { end } = start()
  t.equal(end(null), false)
  t.equal(end(null, { outcome: 'failed' }), true)
  t.equal(end(null, { outcome: 'refused', status: 400 }), true)
  t.equal(end(null, { error: 'upstream_timeout' }), true)
  t.equal(end(null, { durationMs: 1_001 }), true)
  t.equal(start({ share: 1 }).end(null), true)
  t.end()
})

t.test('the share is chosen by the trace id, so that all instances choose alike', t => {
  const some = start({ share: 0.5 })
  const idOf = (last: string) => `00-0af7651916cd43dd844${last}-b7ad6b7169203331-00`
  t.equal(some.end(idOf('0000000000000')), true)
  t.equal(some.end(idOf('7ffffffffffff')), true)
  t.equal(some.end(idOf('8000000000000')), false)
  t.end()
})

t.test("a caller's flag counts where callers are trusted, and hides no failure", t => {
  const sampled = `00-${ODD}-b7ad6b7169203331-01`
  const hidden = `00-${ODD}-b7ad6b7169203331-00`
  const trusting = start({ trust: 'always', share: 1 })
  t.equal(trusting.end(hidden), false)
  t.equal(trusting.end(hidden, { durationMs: 9_000 }), false)
  t.equal(trusting.end(hidden, { outcome: 'failed' }), true)
  t.equal(start({ trust: 'always' }).end(sampled), true)
  for (const trust of ['keys', 'never'] as const) {
    t.equal(start({ trust }).end(sampled), false, 'a stranger does not choose what is kept')
    t.equal(start({ trust, share: 1 }).end(hidden), true)
  }
  t.end()
})

t.test('the flag of a trusted key counts where keys are trusted', t => {
  const sampled = `00-${ODD}-b7ad6b7169203331-01`
  const hidden = `00-${ODD}-b7ad6b7169203331-00`
  t.equal(start().end(sampled, {}, true), true)
  t.equal(start({ share: 1 }).end(hidden, {}, true), false)
  t.equal(start({ share: 1 }).end(hidden, { outcome: 'failed' }, true), true)
  t.equal(start({ trust: 'never' }).end(sampled, {}, true), false)
  t.equal(start({ trust: 'never', share: 1 }).end(hidden, {}, true), true)
  t.end()
})

t.test('a thread keeps a bounded number for its next message, and counts the others', t => {
  const { tracing, kept, dropped } = start({ share: 1 })
  for (let at = 0; at < 1_200; at++)
    tracing.endTrace(tracing.begin(), { ...EXCHANGE_LINE }, new TracedStopwatch(0), 1)
  tracing.flush()
  t.equal(kept.length, 1_000)
  t.equal(dropped(), 200)
  t.end()
})

t.test('a key that fails as fast as it can leaves room for the failures of others', t => {
  const { tracing, kept, dropped } = start()
  const fail = (key?: string) => {
    const line = { ...EXCHANGE_LINE, outcome: 'refused' as const, error: null, key }
    tracing.endTrace(tracing.begin(), line, new TracedStopwatch(0), 1)
  }
  for (let request = 0; request < 2_000; request++) fail('loud')
  for (let request = 0; request < 2_000; request++) fail()
  fail('quiet')
  tracing.flush()
  t.equal(kept.filter(({ line }) => line.key === 'quiet').length, 1)
  t.equal(kept.length, 201)
  t.equal(dropped(), 3_800)
  kept.length = 0
  fail('loud')
  tracing.flush()
  t.equal(kept.length, 1, 'the next message has room again')
  t.end()
})

t.test('a key in the place of the name of a model is not shown', t => {
  const { tracing } = start()
  const opened = (model: string) =>
    tracing.begin().open({ id: 'gen-1', watch: { startedMs: 0 }, request: { model } }, 'chat', 'a'.repeat(16))
      .notes.requestedModel
  t.equal(opened('anthropic/claude-sonnet-4.5:thinking'), 'anthropic/claude-sonnet-4.5:thinking')
  t.equal(opened('sk-gw-v1-0123456789abcdef'), null)
  t.equal(opened('tell me a secret'), null)
  t.end()
})

t.test('who chooses an id that is kept does not fill the collector', t => {
  const many = (terms: Partial<TracingTerms>) => {
    const { tracing, kept } = start(terms)
    for (let request = 0; request < 300; request++) {
      const trace = tracing.begin()
      const context = callerContext(`00-${'a'.repeat(16)}${'0'.repeat(16)}-b7ad6b7169203331-01`)
      if (context !== null) trace.join(context)
      tracing.endTrace(
        trace,
        { ...EXCHANGE_LINE, outcome: 'completed', error: null },
        new TracedStopwatch(0),
        1,
      )
    }
    tracing.flush()
    return kept.length
  }
  t.equal(many({ share: 0.01 }), 100)
  t.equal(many({ share: 1 }), 300)
  t.equal(many({ trust: 'always' }), 300)
  t.end()
})

t.test('what nobody pays costs nothing anywhere, also where an attempt has a price', t => {
  const { tracing } = start()
  const request = tracing.begin()
  const spans = request.open({ id: 'gen-1', watch: { startedMs: 0 }, request: {} }, 'chat', null)
  const endpoint = { provider: { slug: 'acme' }, modelId: 'm', upstreamModel: 'm' }
  const attempt = spans.attempt(endpoint, { kind: 'first', isByok: false, turn: 0 }, 0)
  const end = { status: 200, error: null, isOutrun: false, upstreamId: null, finish: 'stop', usage: null }
  spans.endAttempt(attempt, end, 1_000, 1)
  spans.charge(0, 1, 'left', null, 2)
  t.same([attempt.cost, spans.notes.cost], [0, 0])
  t.equal(spans.notes.outcome, 'left')
  t.end()
})

import t from 'tap'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { BLOCKED, FAILING, PROBE_DUE, SHAKY, STEADY } from '../../../src/providers/health/endpoint-state.ts'
import { EndpointHealth } from '../../../src/providers/health/health.ts'
import { type HealthNote, readNotes } from '../../../src/providers/health/notes.ts'
import { SharedHealth } from '../../../src/providers/health/shared-health.ts'
import { scriptedEndpoint } from '../../support/scripted-attempt.ts'
import { TestClock } from '../../support/test-clock.ts'

const endpoint = scriptedEndpoint('openai-chat')
const metrics = createMetrics({
  thread: 'serve-0',
  models: [endpoint.modelId],
  providers: [endpoint.provider.slug],
})

function setup(more: Partial<ConstructorParameters<typeof EndpointHealth>[0]> = {}) {
  const clock = new TestClock()
  clock.advance(1_000)
  const health = new EndpointHealth({ clock, ...more })
  const state = health.of(endpoint, null)
  const attempt = () => health.begin(state)
  const fails = (count: number): void => {
    for (let at = 0; at < count; at++) attempt()?.countEnd('failed', clock.monotonicMs())
  }
  const succeeds = (count: number): void => {
    for (let at = 0; at < count; at++) attempt()?.countEnd('ok', clock.monotonicMs())
  }
  return { clock, health, state, attempt, fails, succeeds, standing: () => health.standing(state) }
}

t.test('five failures in a row open the breaker, also after good times', async t => {
  const { fails, succeeds, standing } = setup()
  succeeds(1_000)
  fails(4)
  t.equal(standing(), STEADY)
  succeeds(1)
  fails(4)
  t.equal(standing(), STEADY, 'an answer between begins the row anew')
  fails(1)
  t.equal(standing(), BLOCKED)
})

t.test('a breaker that is switched off never opens', async t => {
  const { fails, standing } = setup({ breakerFailures: null })
  fails(50)
  t.equal(standing(), STEADY)
})

t.test(
  'one probe at a time; its failure doubles the wait up to eight seconds, its answer ends it',
  async t => {
    const { clock, attempt, fails, standing, state } = setup()
    fails(5)
    for (const waitMs of [1_000, 2_000, 4_000, 8_000, 8_000]) {
      t.equal(state.waitMs(clock.monotonicMs()), waitMs)
      clock.advance(waitMs - 1)
      t.equal(attempt(), null)
      clock.advance(1)
      t.equal(standing(), PROBE_DUE)
      const probe = attempt()
      t.ok(probe)
      t.equal(attempt(), null, 'nobody beside it')
      probe?.countEnd('failed', clock.monotonicMs())
    }
    clock.advance(8_000)
    const probe = attempt()
    probe?.noteFirstContent(clock.monotonicMs())
    t.equal(standing(), STEADY, 'at its first content')
    t.ok(attempt())
  },
)

t.test('a probe without a word leaves its place, at once or after eight seconds', async t => {
  const { clock, attempt, fails, standing } = setup()
  fails(5)
  clock.advance(1_000)
  attempt()?.countEnd('none', clock.monotonicMs())
  t.equal(standing(), PROBE_DUE, 'its caller has left')
  const silent = attempt()
  clock.advance(7_999)
  t.equal(attempt(), null)
  clock.advance(1)
  const second = attempt()
  t.ok(second)
  silent?.countEnd('failed', clock.monotonicMs())
  t.equal(standing(), BLOCKED)
  second?.noteFirstContent(clock.monotonicMs())
  t.equal(standing(), STEADY, 'the later one knows better')
})

t.test('what began before the breaker changed says nothing about now', async t => {
  const { clock, attempt, fails, standing } = setup()
  const early = Array.from({ length: 20 }, () => attempt())
  clock.advance(10)
  fails(5)
  clock.advance(1_000)
  attempt()?.noteFirstContent(clock.monotonicMs())
  for (const each of early) each?.countEnd('failed', clock.monotonicMs())
  t.equal(standing(), STEADY)
})

t.test('an answer that breaks takes its success back', async t => {
  const { clock, attempt, state } = setup({ breakerFailures: null })
  const entry = attempt()
  entry?.noteFirstContent(clock.monotonicMs())
  t.same([state.window?.ok, state.window?.failed], [1, 0])
  entry?.countEnd('failed', clock.monotonicMs())
  t.same([state.window?.ok, state.window?.failed], [0, 1])
  entry?.countEnd('failed', clock.monotonicMs())
  t.same([state.window?.ok, state.window?.failed], [0, 1], 'it ends once')
})

t.test('uptime counts from a hundred attempts on, over thirty seconds', async t => {
  const mixed = (failures: number) => {
    const made = setup({ breakerFailures: null })
    made.fails(failures)
    made.succeeds(100 - failures)
    return made
  }
  t.equal(mixed(5).standing(), STEADY)
  t.equal(mixed(6).standing(), SHAKY)
  t.equal(mixed(20).standing(), SHAKY)
  const failing = mixed(21)
  t.equal(failing.standing(), FAILING)
  failing.clock.advance(28_000)
  t.equal(failing.standing(), FAILING)
  failing.clock.advance(2_000)
  t.equal(failing.standing(), STEADY, 'its failures are past')
  const few = setup({ breakerFailures: null })
  few.fails(50)
  few.succeeds(49)
  t.equal(few.standing(), STEADY)
})

t.test('a wait that the provider asks for is kept, up to an hour', async t => {
  const { clock, attempt, standing, state } = setup()
  attempt()?.countEnd('limited', clock.monotonicMs(), 30_000)
  t.equal(standing(), BLOCKED)
  t.ok(state.isLimited(clock.monotonicMs()))
  clock.advance(29_999)
  t.equal(attempt(), null)
  clock.advance(1)
  t.equal(standing(), STEADY, 'without a probe')
  attempt()?.countEnd('failed', clock.monotonicMs(), 1e12)
  t.equal(state.waitMs(clock.monotonicMs()), 3_600_000)
  t.notOk(state.isLimited(clock.monotonicMs()), 'it was busy, not over a limit')
})

t.test('latency and speed of the last five minutes', async t => {
  const { clock, attempt, state } = setup()
  const measure = (latencyMs: number, tokens: number, spanMs: number): void => {
    const entry = attempt()
    if (entry != null) entry.sentMs = clock.monotonicMs()
    clock.advance(latencyMs)
    entry?.noteFirstContent(clock.monotonicMs())
    clock.advance(spanMs)
    entry?.countEnd('ok', clock.monotonicMs())
    entry?.countSpeed(clock.monotonicMs(), tokens, true, metrics, endpoint)
  }
  for (let at = 0; at < 9; at++) measure(200, 100, 1_000)
  measure(2_000, 10, 1_000)
  clock.advance(1_000)
  const near = (value: number | undefined, wanted: number): boolean =>
    value !== undefined && Math.abs(value - wanted) <= wanted * 0.03
  const latency = state.latency?.percentiles(clock.monotonicMs())
  t.ok(near(latency?.p50, 200), `${latency?.p50}`)
  t.ok(near(latency?.p99, 200) || near(latency?.p99, 2_000), `${latency?.p99}`)
  t.ok(near(state.throughput?.percentiles(clock.monotonicMs())?.p50, 100))
  measure(100, 3, 1_000)
  t.ok(near(state.throughput?.percentiles(clock.monotonicMs())?.p50, 100), 'few tokens tell no speed')
  clock.advance(360_000)
  t.equal(state.latency?.percentiles(clock.monotonicMs()), null, 'nothing was measured lately')

  const { firstToken, perToken } = metrics.speeds.of(endpoint.provider.slug, endpoint.modelId)
  t.equal(firstToken.count, 11, 'metrics have each once')
  t.ok(Math.abs(firstToken.sum - (9 * 0.2 + 2 + 0.1)) < 1e-9)
  t.equal(perToken.count, 10)
  t.ok(Math.abs(perToken.sum - (9 * 0.01 + 0.1)) < 1e-9)
})

t.test('own keys have a state of their own, and the table is bounded', async t => {
  const { health, state } = setup({ max: 2 })
  const own = health.of(endpoint, 'key')
  t.not(own, state)
  t.equal(health.of(endpoint, 'key'), own)
  t.equal(health.of(endpoint, null), state)
  health.of(endpoint, 'other')
  t.ok(state.isForgotten)
  t.not(health.of(endpoint, null), state, 'a forgotten one begins anew')
})

t.test(
  'threads and instances know of each other, and a thread that begins knows what was before',
  async t => {
    const clock = new TestClock()
    clock.advance(500)
    const wires = new Set<(text: string) => void>()
    const instance = () =>
      new SharedHealth({
        clock,
        open: onMessage => {
          wires.add(onMessage)
          return {
            // As publish and subscribe have it: the sender hears itself.
            send: async text => void [...wires].map(each => each(text)),
            close: async () => void wires.delete(onMessage),
          }
        },
      })
    const [here, there] = [instance(), instance()]
    const thread = (shared: SharedHealth) => {
      // Each thread counts its time from another zero.
      const own = new TestClock()
      own.advance(wires.size * 10_000 + 77)
      const connected = shared.connect(notes => health.apply(notes))
      const health = new EndpointHealth({ clock: own, send: notes => connected.receive(notes) })
      health.apply(shared.snapshot())
      return { own, health, state: health.of(endpoint, null) }
    }
    const [one, two, far] = [thread(here), thread(here), thread(there)]
    for (let at = 0; at < 5; at++) one.health.begin(one.state)?.countEnd('failed', one.own.monotonicMs())
    one.health.flush()
    for (const { health, state } of [two, far]) t.equal(health.standing(state), BLOCKED)
    t.same([here.blocked().open, there.blocked().open], [1, 1])
    const late = thread(here)
    t.equal(late.health.standing(late.state), BLOCKED, 'it learned it when it began')
    for (const { own } of [one, two, far, late]) own.advance(1_000)
    const probe = far.health.begin(far.state)
    t.ok(probe)
    far.health.flush()
    for (const { health, state } of [one, two, late]) t.equal(health.begin(state), null, 'one probe for all')
    probe?.noteFirstContent(far.own.monotonicMs())
    far.health.flush()
    for (const { health, state } of [one, two, late]) t.equal(health.standing(state), STEADY)
    t.same(two.state.window?.ok, 1)
    two.health.begin(two.state)?.countEnd('limited', two.own.monotonicMs(), 5_000)
    two.health.flush()
    t.equal(one.health.standing(one.state), BLOCKED)
    t.same(here.blocked(), { open: 0, limited: 0, resting: 1 })
    await here.close()
  },
)

t.test('an instance passes notes on once, though its own messages come back', async t => {
  const shared = new SharedHealth({
    clock: new TestClock(),
    open: onMessage => ({ send: async text => onMessage(text), close: async () => undefined }),
  })
  const received = { sender: 0, other: 0 }
  const thread = shared.connect(() => received.sender++)
  shared.connect(() => received.other++)
  const health = new EndpointHealth({ clock: new TestClock(), send: notes => thread.receive(notes) })
  health.begin(health.of(endpoint, null))?.countEnd('failed', 0)
  health.flush()
  t.same(received, { sender: 0, other: 1 })
})

t.test('people are told in words how an endpoint stands', async t => {
  const { clock, health, state } = setup()
  const shared = new SharedHealth({ clock })
  t.equal(shared.condition(endpoint), 'untried')
  const own = new EndpointHealth({ clock, send: notes => thread.receive(notes) })
  const thread = shared.connect(() => undefined)
  const ends = (verdict: 'ok' | 'failed' | 'limited', waitMs = 0) => {
    own.begin(own.of(endpoint, null))?.countEnd(verdict, clock.monotonicMs(), waitMs)
    own.flush()
  }
  ends('ok')
  t.equal(shared.condition(endpoint), 'steady')
  for (let at = 0; at < 5; at++) ends('failed')
  t.equal(shared.condition(endpoint), 'blocked')
  clock.advance(1_000)
  t.equal(shared.condition(endpoint), 'probing')
  ends('ok')
  t.equal(shared.condition(endpoint), 'steady')
  ends('limited', 5_000)
  t.equal(shared.condition(endpoint), 'limited')
  t.equal(health.condition(endpoint), 'steady', 'another one knows nothing of it')
  t.same(shared.ownConditions()(endpoint), {}, 'that is the shared key, and no credential was called')
  for (const [credential, verdicts] of [
    ['a', ['ok']],
    ['b', ['ok']],
    ['c', ['failed', 'failed', 'failed', 'failed', 'failed']],
  ] as const) {
    for (const verdict of verdicts)
      own.begin(own.of(endpoint, credential))?.countEnd(verdict, clock.monotonicMs(), 0)
  }
  own.flush()
  t.same(shared.ownConditions()(endpoint), { steady: 2, blocked: 1 })
  t.equal(shared.condition(endpoint), 'limited', 'credentials say nothing about the shared key')
  t.equal(state.isOpen, false)
})

t.test('what must not wait is told at once, the rest together', async t => {
  const sent: (readonly HealthNote[])[] = []
  const { clock, succeeds, fails } = setup({ send: notes => void sent.push(notes) })
  succeeds(10)
  await new Promise(resolve => setImmediate(resolve))
  t.same(sent, [])
  clock.advance(250)
  t.match(sent, [[{ ok: 10, failed: 0 }]])
  fails(5)
  await new Promise(resolve => setImmediate(resolve))
  t.match(sent[1], [{ failed: 5, events: [{ kind: 'open', forMs: 1_000, streak: 1, cause: 'failure' }] }])
})

t.test('notes of another instance are taken only where they are well formed', async t => {
  t.same(readNotes('x'), [])
  t.same(readNotes([null, 1, {}, { key: 7 }, { key: 'x'.repeat(2_000) }]), [])
  const [note] = readNotes([
    {
      key: 'k',
      ok: Number.NaN,
      failed: -3,
      limited: 1e12,
      events: [{ kind: 'open', forMs: 1e15, streak: 'x' }, { kind: 'explode' }, null],
      restMs: -1,
      latencies: [1, 'x', null],
      throughputs: 'x',
    },
  ])
  t.same(note, {
    key: 'k',
    ok: 0,
    failed: 0,
    limited: 1_000_000,
    callers: [],
    goodCalls: 0,
    faultyCalls: 0,
    events: [{ kind: 'open', caller: '', forMs: 3_600_000, streak: 1, cause: 'failure', alone: '' }],
    restMs: 0,
    restCause: 'failure',
    latencies: [1],
    throughputs: [],
  })
})

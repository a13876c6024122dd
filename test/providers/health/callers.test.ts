/** Health by key: the failures of one key are its own; those of two keys, or of the only one, are the endpoint's. */
import t from 'tap'
import type { HealthCaller } from '../../../src/providers/health/caller-states.ts'
import { BLOCKED, PROBE_DUE, STEADY } from '../../../src/providers/health/endpoint-state.ts'
import { EndpointHealth } from '../../../src/providers/health/health.ts'
import { readNotes } from '../../../src/providers/health/notes.ts'
import { SharedHealth } from '../../../src/providers/health/shared-health.ts'
import { scriptedEndpoint } from '../../support/scripted-attempt.ts'
import { TestClock } from '../../support/test-clock.ts'

const endpoint = scriptedEndpoint('openai-chat')
const SECOND_MS = 1_000

function callerOf(key: number, workspaceId: string | null = null): HealthCaller {
  return { keyHash: key.toString(16).padStart(4, '0').repeat(16), organizationId: 'o', workspaceId }
}
const [ANN, BEN, CAT] = [callerOf(1), callerOf(2), callerOf(3)]

function setup(more: Partial<ConstructorParameters<typeof EndpointHealth>[0]> = {}) {
  const clock = new TestClock()
  clock.advance(SECOND_MS)
  const health = new EndpointHealth({ clock, ...more })
  const state = health.of(endpoint, null)
  const changes: string[] = []
  health.onChange = (_, change) => void changes.push(change)
  const begin = (caller: HealthCaller) => health.begin(state, caller)
  /** False: the caller may not ask. */
  const ask = (caller: HealthCaller, verdict: 'ok' | 'failed' | 'limited', waitMs = 0): boolean => {
    const entry = begin(caller)
    entry?.countEnd(verdict, clock.monotonicMs(), waitMs)
    return entry !== null
  }
  const fails = (caller: HealthCaller, times: number): void => {
    for (let time = 0; time < times; time++) ask(caller, 'failed')
  }
  return {
    clock,
    health,
    state,
    changes,
    begin,
    ask,
    fails,
    standing: (who: HealthCaller) => health.standing(state, who),
  }
}

t.test('a key whose requests all fail does not take the endpoint from another key', async t => {
  const { clock, state, changes, begin, ask } = setup()
  let [served, refused, reached] = [0, 0, 0]
  for (let quarter = 0; quarter < 48; quarter++) {
    if (ask(BEN, 'ok')) served++
    else refused++
    if (quarter % 2 === 0) {
      const burst = Array.from({ length: 6 }, () => begin(ANN)).filter(entry => entry !== null)
      clock.advance(10)
      for (const entry of burst) entry.countEnd('failed', clock.monotonicMs())
      reached += burst.length
    }
    clock.advance(240)
  }
  t.same([served, refused], [48, 0])
  t.ok(reached < 20, `${reached} of its own 144 requests reached the provider`)
  t.same([changes, state.isOpen], [[], false], 'nothing changes for all')
})

t.test('a dead endpoint is found after five failures, whether one key asks it or two', async t => {
  const two = setup()
  two.ask(ANN, 'ok')
  two.ask(BEN, 'ok')
  for (const caller of [ANN, BEN, ANN, BEN]) two.ask(caller, 'failed')
  t.equal(two.standing(CAT), STEADY)
  two.ask(ANN, 'failed')
  t.equal(two.standing(CAT), BLOCKED)
  t.same(two.changes, ['opened'])

  const many = setup()
  for (let key = 10; key < 15; key++) many.ask(callerOf(key), 'failed')
  t.equal(many.standing(CAT), BLOCKED, 'five keys, a failure of each')

  const one = setup()
  one.ask(ANN, 'ok')
  one.fails(ANN, 5)
  t.equal(one.state.isOpen, true, 'nobody else had a success')
  t.same(one.changes, ['opened'])
})

t.test('two failures in a row of a second key confirm those of the first, one does not', async t => {
  const { clock, state, ask, fails, standing } = setup()
  ask(BEN, 'ok')
  fails(ANN, 5)
  t.same([standing(ANN), standing(BEN)], [BLOCKED, STEADY])
  ask(BEN, 'failed')
  t.equal(standing(BEN), STEADY)
  ask(BEN, 'ok')
  ask(BEN, 'failed')
  t.equal(standing(BEN), STEADY, 'a success between begins the row anew')
  clock.advance(SECOND_MS)
  ask(ANN, 'failed')
  ask(BEN, 'failed')
  ask(BEN, 'failed')
  ask(BEN, 'failed')
  ask(BEN, 'failed')
  t.equal(state.isOpen, true, 'both fail')
})

t.test('a key’s breaker is one for all as soon as no other key had a success for 30 s', async t => {
  const { clock, state, ask, fails } = setup()
  ask(BEN, 'ok')
  fails(ANN, 5)
  t.equal(state.isOpen, false)
  let seconds = 0
  while (!state.isOpen && seconds < 60) {
    clock.advance(SECOND_MS)
    seconds++
    ask(ANN, 'failed')
  }
  t.ok(seconds >= 30 && seconds <= 39, `its probe after ${seconds} s`)
})

t.test('the first request of another key is the probe at once where one key alone has failed', async t => {
  const { clock, begin, ask, fails, standing, changes } = setup()
  fails(ANN, 5)
  t.same([standing(ANN), standing(BEN)], [BLOCKED, PROBE_DUE])
  const probe = begin(BEN)
  t.ok(probe)
  t.equal(begin(CAT), null, 'one probe at a time')
  probe?.countEnd('ok', clock.monotonicMs())
  t.same([standing(ANN), standing(BEN), standing(CAT)], [STEADY, STEADY, STEADY])
  fails(ANN, 5)
  t.same([standing(ANN), standing(BEN)], [BLOCKED, STEADY], 'now it is known whose failures they are')
  t.same(changes, ['opened', 'probed', 'closed'])
  t.equal(ask(BEN, 'ok'), true)
})

t.test('the probe of a key that fails alone holds up nobody', async t => {
  const { clock, begin, fails, standing } = setup()
  fails(ANN, 5)
  clock.advance(SECOND_MS)
  t.ok(begin(ANN), 'its own probe, and no answer yet')
  t.equal(standing(BEN), PROBE_DUE)
})

t.test('the key that failed last leaves the probe to other keys that ask, for a second', async t => {
  const { clock, ask, begin, standing, state } = setup()
  for (const caller of [ANN, BEN, ANN, BEN, ANN]) ask(caller, 'failed')
  clock.advance(SECOND_MS)
  t.same([standing(ANN), standing(BEN)], [BLOCKED, PROBE_DUE])
  t.equal(begin(ANN), null)
  t.equal(state.waitMs(clock.monotonicMs(), ANN), SECOND_MS)
  clock.advance(SECOND_MS)
  t.equal(standing(ANN), PROBE_DUE, 'no other key came')
  const alone = setup()
  alone.fails(ANN, 5)
  alone.clock.advance(SECOND_MS)
  t.equal(alone.standing(ANN), PROBE_DUE, 'it is the only one')
})

t.test('keys of one workspace are one caller while another workspace is served', async t => {
  const mine = [callerOf(1, 'mine'), callerOf(2, 'mine'), callerOf(3, 'mine')]
  const theirs = callerOf(4, 'theirs')
  const shared = setup()
  shared.ask(theirs, 'ok')
  for (let time = 0; time < 6; time++) for (const caller of mine) shared.ask(caller, 'failed')
  t.same([shared.standing(theirs), shared.state.isOpen], [STEADY, false])
  for (const caller of mine) t.equal(shared.standing(caller), BLOCKED)
  const own = setup()
  for (let time = 0; time < 3; time++) for (const caller of mine) own.ask(caller, 'failed')
  t.equal(own.state.isOpen, true, 'nobody else uses the endpoint')
})

t.test(
  'keys of several workspaces that fail together do not take the endpoint from keys that are served',
  async t => {
    const mine = [callerOf(1, 'one'), callerOf(2, 'two'), callerOf(3, 'three')]
    const theirs = callerOf(4, 'four')
    const { clock, begin, ask, standing, state, changes } = setup()
    let [served, reached] = [0, 0]
    for (let quarter = 0; quarter < 48; quarter++) {
      if (ask(theirs, 'ok')) served++
      if (quarter >= 6) {
        const burst = mine.flatMap(caller =>
          [1, 2, 3, 4].map(() => begin(caller)).filter(entry => entry !== null),
        )
        clock.advance(10)
        for (const entry of burst) entry.countEnd('failed', clock.monotonicMs())
        reached += burst.length
      }
      clock.advance(240)
    }
    t.same([served, changes, state.isOpen], [48, [], false])
    t.ok(reached < 60, `${reached} of their own 504 requests reached the provider`)
    for (const caller of mine) t.equal(standing(caller), BLOCKED)
  },
)

t.test('a key that asks seldom is the probe at once where only others have failed', async t => {
  const { clock, ask, standing, state, changes } = setup()
  ask(CAT, 'ok')
  clock.advance(10 * SECOND_MS)
  for (const caller of [ANN, BEN, ANN, BEN, ANN]) ask(caller, 'failed')
  t.equal(state.isOpen, true)
  t.same([standing(ANN), standing(BEN), standing(CAT)], [BLOCKED, BLOCKED, PROBE_DUE])
  ask(CAT, 'ok')
  t.same(changes, ['opened', 'probed', 'closed'])
})

t.test(
  'an endpoint that dies is closed for all once the keys that were served fail, or have not asked for 2 s',
  async t => {
    const fast = setup()
    for (let time = 0; time < 20; time++) for (const caller of [ANN, BEN, CAT]) fast.ask(caller, 'ok')
    for (const caller of [ANN, BEN, ANN, BEN, ANN]) fast.ask(caller, 'failed')
    t.equal(fast.state.isOpen, false)
    fast.ask(CAT, 'failed')
    t.equal(fast.state.isOpen, true)
    const slow = setup()
    for (let time = 0; time < 20; time++) for (const caller of [ANN, BEN, CAT]) slow.ask(caller, 'ok')
    slow.clock.advance(2 * SECOND_MS)
    for (const caller of [ANN, BEN, ANN, BEN, ANN]) slow.ask(caller, 'failed')
    t.equal(slow.state.isOpen, true)
  },
)

t.test('an endpoint that fails more often than not, for many keys, is closed for all', async t => {
  const { ask, state } = setup()
  for (let round = 0; round < 3; round++) {
    for (let key = 1; key <= 12; key++) ask(callerOf(key), key % 3 === 0 ? 'ok' : 'failed')
  }
  t.equal(state.isOpen, true)
})

t.test('a wait that the provider asks one key for holds for all once a second key has to wait', async t => {
  const { clock, ask, standing, state } = setup()
  ask(BEN, 'ok')
  ask(CAT, 'ok')
  ask(ANN, 'limited', 30_000)
  t.same([standing(ANN), standing(BEN), standing(CAT)], [BLOCKED, STEADY, STEADY])
  t.same([state.waitMs(clock.monotonicMs(), ANN), state.isLimited(clock.monotonicMs(), ANN)], [30_000, true])
  t.equal(state.waitMs(clock.monotonicMs(), BEN), 0)
  ask(BEN, 'limited', 20_000)
  t.equal(standing(CAT), BLOCKED)
  clock.advance(20_000)
  t.same([standing(ANN), standing(CAT)], [BLOCKED, STEADY])
})

t.test('waits of several keys do not hold for all while another key is served', async t => {
  const { ask, standing } = setup()
  for (let time = 0; time < 5; time++) ask(CAT, 'ok')
  ask(ANN, 'limited', 30_000)
  ask(BEN, 'limited', 30_000)
  t.same([standing(ANN), standing(BEN), standing(CAT)], [BLOCKED, BLOCKED, STEADY])
  ask(CAT, 'limited', 30_000)
  t.equal(standing(callerOf(4)), BLOCKED, 'now nobody is served')
})

t.test('eight keys have a name at an endpoint, all further ones are one caller', async t => {
  const { clock, ask, state } = setup()
  for (let key = 1; key <= 200; key++) ask(callerOf(key), 'ok')
  const { callers } = state.breakers
  t.equal(callers.named.length, 8)
  const late = callerOf(300)
  ask(late, 'ok')
  t.equal(callers.find(late), null)
  clock.advance(30_000)
  ask(late, 'ok')
  t.equal(callers.named.length, 8)
  t.ok(callers.find(late), 'a key that was silent for 30 s makes room')
})

t.test(
  'keys that fail have names before those that do not, so none of them fails among the others',
  async t => {
    const evil = (key: number) => callerOf(key, 'evil')
    const honest = callerOf(99, 'honest')
    const { clock, state, ask, begin, standing } = setup()
    let [served, refused] = [0, 0]
    for (let round = 0; round < 120; round++) {
      // Nine keys: eight hold the names by a request now and then, and two of them fail in bursts.
      if (round % 60 === 0) for (let key = 1; key <= 8; key++) ask(evil(key), 'ok')
      if (ask(honest, 'ok')) served++
      else refused++
      if (round % 4 === 0) {
        for (const key of [1, 9]) {
          const burst = Array.from({ length: 6 }, () => begin(evil(key))).filter(entry => entry !== null)
          clock.advance(5)
          for (const entry of burst) entry.countEnd('failed', clock.monotonicMs())
        }
      }
      clock.advance(250)
    }
    t.same([served, refused], [120, 0])
    t.equal(state.isOpen, false)
    t.equal(standing(honest), STEADY)
    t.equal(state.breakers.callers.named.length, 8)
  },
)

t.test('an endpoint that fails for many keys is still found out', async t => {
  const { clock, state, ask } = setup()
  for (let key = 1; key <= 200; key++) ask(callerOf(key), 'ok')
  clock.advance(2 * SECOND_MS)
  for (let key = 201; key <= 206; key++) ask(callerOf(key), 'failed')
  t.equal(state.isOpen, true)
})

t.test('figures of an endpoint are those of most keys, however many values one of them brings', async t => {
  const told: number[] = []
  const { clock, health, state, ask } = setup({
    send: notes => void told.push(...notes.flatMap(({ latencies }) => latencies)),
  })
  const measure = (caller: HealthCaller, times: number, latencyMs: number, tokensPerSecond: number): void => {
    for (let time = 0; time < times; time++) {
      ask(caller, 'ok')
      health.measure(state, caller, clock.monotonicMs(), latencyMs, tokensPerSecond)
    }
  }
  const p50 = () => {
    clock.advance(SECOND_MS)
    const { latencyLast30m, throughputLast30m } = health.figures(endpoint) ?? {}
    return [latencyLast30m?.p50, throughputLast30m?.p50].map(value => Math.round((value ?? 0) / 100) * 100)
  }
  measure(ANN, 50, 9_000, 100)
  t.same(p50(), [9_000, 100], 'of one key that asks alone all count')
  clock.advance(30 * 60 * SECOND_MS)
  for (const caller of [BEN, CAT, ANN])
    measure(caller, 10, caller === ANN ? 9_000 : 400, caller === ANN ? 100 : 2_000)
  health.flush()
  told.length = 0
  measure(ANN, 1_000, 9_000, 100)
  t.same(p50(), [400, 2_000])
  health.flush()
  t.same(told, [], 'other threads get the first ones of each key')
})

t.test('threads and instances tell each other whose failures they saw', async t => {
  const clock = new TestClock()
  clock.advance(SECOND_MS)
  const shared = new SharedHealth({ clock })
  const thread = () => {
    const connected = shared.connect(notes => health.apply(readNotes(JSON.parse(JSON.stringify(notes)))))
    const health = new EndpointHealth({ clock, send: notes => connected.receive(notes) })
    health.apply(shared.snapshot())
    const state = health.of(endpoint, null)
    const ask = (caller: HealthCaller, verdict: 'ok' | 'failed' | 'limited', waitMs = 0): void => {
      health.begin(state, caller)?.countEnd(verdict, clock.monotonicMs(), waitMs)
      health.flush()
    }
    return { health, state, ask, standing: (who: HealthCaller) => health.standing(state, who) }
  }
  const [one, two] = [thread(), thread()]
  two.ask(BEN, 'ok')
  for (let time = 0; time < 5; time++) one.ask(ANN, 'failed')
  t.same([two.standing(ANN), two.standing(BEN)], [BLOCKED, STEADY])
  t.equal(shared.blocked().open, 0, 'figures tell the state that holds for all')
  const late = thread()
  t.same([late.standing(ANN), late.standing(BEN)], [BLOCKED, STEADY], 'a thread that starts later knows it')
  two.ask(BEN, 'failed')
  two.ask(BEN, 'failed')
  for (const { standing } of [one, two, late]) t.equal(standing(CAT), BLOCKED, 'two keys, on two threads')
  t.equal(shared.blocked().open, 1)
  clock.advance(2 * SECOND_MS)
  one.ask(CAT, 'ok')
  for (const { standing } of [one, two, late]) t.same([standing(ANN), standing(BEN)], [STEADY, STEADY])
  one.ask(ANN, 'limited', 5_000)
  t.same([two.standing(ANN), two.standing(CAT)], [BLOCKED, STEADY])
  for (const note of shared.snapshot()) {
    t.ok(note.callers.length <= 8)
    t.ok(note.callers.every(({ name, owner }) => name.length === 10 && owner.length === 8))
  }
})

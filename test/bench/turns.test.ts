/** Turns of the event loop are counted by their CPU, and a profile is told for the long ones alone. */
import type { Profiler } from 'node:inspector'
import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { TurnWatch } from '../../bench/profile/turn-watch.ts'
import { countPauses, countTurns, entries, within, withinTurns } from '../../bench/profile/turns.ts'

const ROOT = 'file:///gateway/src/'

function node(id: number, functionName: string, url: string, children: number[] = []): Profiler.ProfileNode {
  return { id, callFrame: { functionName, url, scriptId: '1', lineNumber: 0, columnNumber: 0 }, children }
}

/** A sample each millisecond from the time 1,000,000 µs on. */
const PROFILE: Profiler.Profile = {
  nodes: [
    node(1, '(root)', '', [2, 5]),
    node(2, 'onread', 'node:net', [3]),
    node(3, 'read', `${ROOT}providers/upstream/client/connection.ts`, [4]),
    node(4, 'write', `${ROOT}server/uws-socket.ts`),
    node(5, '(idle)', ''),
  ],
  startTime: 1_000_000,
  endTime: 1_012_000,
  samples: [5, 5, 3, 4, 4, 4, 4, 4, 4, 4, 5, 5],
  timeDeltas: Array.from({ length: 12 }, () => 1000),
}

const TURNS = [
  { endMicros: 1_001_500, activeMicros: 500, cpuMicros: 400 },
  { endMicros: 1_010_500, activeMicros: 8000, cpuMicros: 7600 },
]

t.test('turns are counted by length, with their share of all CPU', async t => {
  t.match(countTurns(TURNS), [
    { aboveMs: 1, turns: 1, share: 0.95 },
    { aboveMs: 5, turns: 1, share: 0.95 },
    { aboveMs: 20, turns: 0, share: 0 },
    { aboveMs: 100, turns: 0 },
  ])
})

t.test(
  'of a profile what lies in long turns is told, by the function that began it, by stage and by function',
  async t => {
    const tree = withinTurns(PROFILE, TURNS, 5, ROOT)
    t.equal(tree.total, 8000)
    t.same(entries(tree), [['read providers/upstream/client/connection.ts:1', 8000]])
    const { stages, functions } = within(tree)
    t.same(stages, [
      ['server', 7000],
      ['providers/upstream', 1000],
    ])
    t.equal(functions[0]?.[0], 'write server/uws-socket.ts:1')
    t.equal(withinTurns(PROFILE, TURNS, 100, ROOT).total, 0, 'none is so long')
  },
)

t.test('pauses of the collector are counted by kind, the longest sum first', async t => {
  const pauses = [
    { kind: 'young', micros: 3 },
    { kind: 'old', micros: 10 },
    { kind: 'young', micros: 4 },
  ]
  t.same(countPauses(pauses), [
    ['old', 1, 10, 10],
    ['young', 2, 7, 4],
  ])
})

t.test('each turn of the loop is noted once, until it is taken', async t => {
  const watch = new TurnWatch()
  watch.start()
  for (let at = 0; at < 5; at++) await turn()
  const { turns } = watch.take()
  t.ok(turns.length >= 4 && turns.length <= 6, String(turns.length))
  for (const [at, one] of turns.entries()) {
    t.ok(one.activeMicros >= 0 && one.cpuMicros >= 0)
    t.ok(one.endMicros >= (turns[at - 1]?.endMicros ?? 0), 'in their order')
  }
  await turn()
  t.same(watch.take(), { turns: [], pauses: [] }, 'and none after that')
})

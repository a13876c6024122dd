/** Combines turns of the event loop with a profile of the same time, and reports what ran in the long turns. Pure. */
import type { Profiler } from 'node:inspector'
import { type CallNode, ofTime, shares } from './profile.ts'
import type { Pause, Turn } from './turn-watch.ts'

/** Lengths in the report, in milliseconds. */
const TURN_LENGTHS_MS = [1, 5, 20, 100] as const

interface TurnCount {
  readonly aboveMs: number
  readonly turns: number
  /** Of the CPU of all turns. */
  readonly share: number
}

/** By CPU, so that what other processes did on the core is no turn of ours. */
export function countTurns(turns: readonly Turn[]): TurnCount[] {
  const all = sum(turns.map(({ cpuMicros }) => cpuMicros))
  return TURN_LENGTHS_MS.map(aboveMs => {
    const long = turns.filter(({ cpuMicros }) => cpuMicros > aboveMs * 1000)
    return { aboveMs, turns: long.length, share: sum(long.map(({ cpuMicros }) => cpuMicros)) / all }
  })
}

/** The part of a profile that lies in turns above this length. @param root see `ofTime` */
export function withinTurns(
  profile: Profiler.Profile,
  turns: readonly Turn[],
  aboveMs: number,
  root: string,
): CallNode {
  const long = turns
    .filter(({ cpuMicros }) => cpuMicros > aboveMs * 1000)
    .map(({ endMicros, activeMicros }) => [endMicros - activeMicros, endMicros] as const)
  const { samples = [], timeDeltas = [] } = profile
  const longSamples: { readonly id: number; readonly micros: number }[] = []
  let atMicros = profile.startTime
  let turn = 0
  for (const [at, id] of samples.entries()) {
    atMicros += timeDeltas[at] ?? 0
    while (turn < long.length && (long[turn]?.[1] ?? 0) < atMicros) turn++
    const [from = Number.POSITIVE_INFINITY] = long[turn] ?? []
    if (atMicros >= from) longSamples.push({ id, micros: timeDeltas[at + 1] ?? 0 })
  }
  // `ofTime` takes the delta of the next sample.
  return ofTime(
    {
      ...profile,
      samples: longSamples.map(({ id }) => id),
      timeDeltas: [0, ...longSamples.map(({ micros }) => micros)],
    },
    root,
  )
}

/** Time below the first function of ours on each stack, greatest first: what the turn was for. */
export function entries(tree: CallNode): [name: string, micros: number][] {
  const sums = new Map<string, number>()
  const add = (node: CallNode): void => {
    if (/ [a-z][\w/-]*\.ts:\d+$/.test(node.name)) sums.set(node.name, (sums.get(node.name) ?? 0) + node.total)
    else {
      if (node.own > 0) sums.set(node.name, (sums.get(node.name) ?? 0) + node.own)
      node.children.forEach(add)
    }
  }
  add(tree)
  return [...sums].sort((a, b) => b[1] - a[1])
}

/** Stages and functions by their own time. */
export function within(tree: CallNode): {
  readonly stages: [string, number][]
  readonly functions: [string, number][]
} {
  return { stages: shares(tree, ({ stage }) => stage), functions: shares(tree, ({ name }) => name) }
}

/** Pauses by kind: how many, all of them, the longest; greatest sum first. */
export function countPauses(
  pauses: readonly Pause[],
): [kind: string, count: number, micros: number, most: number][] {
  const byKind = Map.groupBy(pauses, ({ kind }) => kind)
  return [...byKind]
    .map(([kind, all]): [string, number, number, number] => {
      const micros = all.map(one => one.micros)
      return [kind, all.length, sum(micros), Math.max(...micros)]
    })
    .sort((a, b) => b[2] - a[2])
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}

/**
 * Measurements in addition to the checks: time to the first bytes of a stream, alternating between calls through the
 * gateway and direct ones, and CPU time of the gateway's processes per event. They do not affect the verdict.
 */
import { readdirSync, readFileSync } from 'node:fs'
import type { Dialect } from './dialects.ts'
import { isNoAnswer } from './faults.ts'
import type { ProbeAnswer, Tester } from './tester.ts'

export interface Spread {
  readonly samples: number
  readonly medianMs: number
  readonly p95Ms: number
}

export interface FirstEventFigure {
  readonly dialect: string
  readonly gateway: Spread
  /** Null: there was nothing to compare with. */
  readonly direct: Spread | null
  /** Difference of the medians. */
  readonly addedMs: number | null
}

export interface CpuFigure {
  readonly pid: number
  readonly dialect: string
  readonly streams: number
  readonly events: number
  readonly cpuMs: number
  readonly microsPerEvent: number
}

const SAMPLE_PAIRS = { full: 15, alone: 5 } as const
const CPU_STREAMS = 10

export function firstEventSends(hasDirect: boolean): number {
  return hasDirect ? SAMPLE_PAIRS.full * 2 : SAMPLE_PAIRS.alone
}

export const CPU_SENDS = CPU_STREAMS

/** @param direct calls the provider behind the gateway; null: unknown */
export async function firstEvents(
  gateway: Tester,
  direct: Tester | null,
  dialect: Dialect,
): Promise<FirstEventFigure | null> {
  const times: { gateway: number[]; direct: number[] } = { gateway: [], direct: [] }
  for (let sample = 0; sample < (direct === null ? SAMPLE_PAIRS.alone : SAMPLE_PAIRS.full); sample++) {
    // In turns, so that a moment of load affects both.
    for (const [name, tester] of [['gateway', gateway] as const, ['direct', direct] as const]) {
      const ms = tester === null ? null : await firstTextMs(tester, dialect)
      if (ms !== null) times[name].push(ms)
    }
  }
  const gatewaySpread = spreadOf(times.gateway)
  const directSpread = spreadOf(times.direct)
  if (gatewaySpread === null) return null
  return {
    dialect: dialect.name,
    gateway: gatewaySpread,
    direct: directSpread,
    addedMs: directSpread === null ? null : gatewaySpread.medianMs - directSpread.medianMs,
  }
}

async function firstTextMs(tester: Tester, dialect: Dialect): Promise<number | null> {
  try {
    const { reply } = await tester.ask(dialect, { stream: true })
    return reply.status === 200 ? reply.firstMs : null
  } catch (error) {
    if (isNoAnswer(error)) return null
    throw error
  }
}

function spreadOf(values: readonly number[]): Spread | null {
  if (values.length === 0) return null
  const sorted = values.toSorted((a, b) => a - b)
  const percentile = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0
  return { samples: sorted.length, medianMs: percentile(0.5), p95Ms: percentile(0.95) }
}

/** The CPU time of a process and its children while streams with many events run. */
export async function cpuPerEvent(tester: Tester, dialect: Dialect, pid: number): Promise<CpuFigure | null> {
  const beforeMs = cpuMs(pid)
  if (beforeMs === null) return null
  let events = 0
  for (let index = 0; index < CPU_STREAMS; index++) {
    const answer: ProbeAnswer = await tester.ask(dialect, { stream: true, script: 'many' })
    events += answer.stream.events.length
  }
  const afterMs = cpuMs(pid)
  if (afterMs === null || events === 0) return null
  const spentMs = afterMs - beforeMs
  return {
    pid,
    dialect: dialect.name,
    streams: CPU_STREAMS,
    events,
    cpuMs: spentMs,
    microsPerEvent: (spentMs * 1000) / events,
  }
}

/** Linux counts in hundredths of a second. */
const TICK_MS = 10

/** Null: there is no such process, or no /proc. */
function cpuMs(pid: number): number | null {
  const processes = readProcesses()
  if (!processes.has(pid)) return null
  let sum = 0
  for (const id of processes.keys())
    if (id === pid || descends(id, pid, processes)) sum += processes.get(id)?.ticks ?? 0
  return sum * TICK_MS
}

interface Process {
  readonly parent: number
  readonly ticks: number
}

function readProcesses(): Map<number, Process> {
  const processes = new Map<number, Process>()
  for (const name of processIds()) {
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8')
      const cells = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
      processes.set(Number(name), { parent: Number(cells[1]), ticks: Number(cells[11]) + Number(cells[12]) })
    } catch {
      // The process has ended in the meantime.
    }
  }
  return processes
}

function processIds(): string[] {
  try {
    return readdirSync('/proc').filter(name => /^\d+$/.test(name))
  } catch {
    return []
  }
}

function descends(id: number, from: number, processes: ReadonlyMap<number, Process>): boolean {
  let parent = processes.get(id)?.parent ?? 0
  while (parent > 1 && parent !== from) parent = processes.get(parent)?.parent ?? 0
  return parent === from
}

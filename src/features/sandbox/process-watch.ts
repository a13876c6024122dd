/**
 * Watches the memory and CPU time of a process and its descendants through `/proc`: V8's limits do not cover
 * WebAssembly, and system limits apply to each process separately. Main thread.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import type { Clock, Timer } from '../../base/clock.ts'

interface ProcessWatch {
  close(): void
}

interface ProcessWatchOptions {
  readonly pid: number
  readonly memoryBytes: number
  readonly cpuSeconds: number
  readonly clock: Clock
  /** Called once. */
  readonly onExceeded: (limit: 'memory' | 'cpu') => void
}

/** A program can fill about 1 GB of memory per second: 50 MB between two checks. */
const CHECK_INTERVAL_MS = 50
const PAGE_BYTES = 4_096
const TICKS_PER_SECOND = 100
/** Maximum processes that are counted; a run with more exceeds other limits. */
const MAX_PROCESSES = 256
/** When memory runs out, the kernel first kills processes with this score. */
const FIRST_KILLED_SCORE = '1000'

/** True if the system reports the memory of processes. */
export function canWatch(): boolean {
  return existsSync('/proc/self/statm') && existsSync('/proc/self/oom_score_adj')
}

/** Makes the process and its future children the first to be killed when memory runs out. */
export function killFirst(pid: number): void {
  try {
    writeFileSync(`/proc/${pid}/oom_score_adj`, FIRST_KILLED_SCORE)
  } catch {
    // The process has ended.
  }
}

export function watchProcess(options: ProcessWatchOptions): ProcessWatch {
  const { pid, memoryBytes, cpuSeconds, clock, onExceeded } = options
  let timer: Timer = clock.after(CHECK_INTERVAL_MS, check)

  function check(): void {
    const { bytes, seconds } = usageOf(pid)
    if (bytes > memoryBytes) onExceeded('memory')
    else if (seconds > cpuSeconds) onExceeded('cpu')
    else timer = clock.after(CHECK_INTERVAL_MS, check)
  }

  return { close: () => timer.cancel() }
}

interface Usage {
  readonly bytes: number
  readonly seconds: number
}

/** Sums over the process and all its descendants. */
function usageOf(pid: number): Usage {
  const pendingPids = [pid]
  let bytes = 0
  let ticks = 0
  let count = 0
  for (let next = pendingPids.pop(); next !== undefined && count < MAX_PROCESSES; next = pendingPids.pop()) {
    count++
    bytes += residentBytes(next)
    ticks += ticksOf(next)
    pendingPids.push(...childrenOf(next))
  }
  return { bytes, seconds: ticks / TICKS_PER_SECOND }
}

/** The children of a process, which `/proc` lists by thread. */
function childrenOf(pid: number): number[] {
  try {
    return readdirSync(`/proc/${pid}/task`).flatMap(task =>
      textOf(`/proc/${pid}/task/${task}/children`).split(' ').filter(Boolean).map(Number),
    )
  } catch {
    return []
  }
}

/** Resident memory. */
function residentBytes(pid: number): number {
  const pages = Number(textOf(`/proc/${pid}/statm`).split(' ')[1])
  return Number.isNaN(pages) ? 0 : pages * PAGE_BYTES
}

/** CPU time of the process and its ended children. */
function ticksOf(pid: number): number {
  const stat = textOf(`/proc/${pid}/stat`)
  // The program name, in parentheses, may contain spaces and parentheses.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0)
}

/** Empty if the process has ended. */
function textOf(path: string): string {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return ''
  }
}

/**
 * The cost of processes, read from /proc: CPU time, resident memory and threads; and the activity of the machine
 * meanwhile.
 */
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'

const MICROS_PER_TICK = 1_000_000 / clockTicks()

function clockTicks(): number {
  try {
    return Number(execFileSync('getconf', ['CLK_TCK'], { encoding: 'utf8' })) || 100
  } catch {
    return 100
  }
}

/** One process, or the sum over several. Missing processes count as nothing. */
export interface Usage {
  readonly cpuMicros: number
  readonly rssBytes: number
  readonly threads: number
}

const NOTHING: Usage = { cpuMicros: 0, rssBytes: 0, threads: 0 }

/** The fields of /proc/PID/stat after the command name, which may hold anything. Pure. */
export function parseStat(text: string, pageBytes: number): Usage {
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  // Fields 14 and 15 (user and system ticks), 20 (threads), 24 (resident pages); the first here is number 3.
  const at = (number: number): number => Number(fields[number - 3] ?? 0)
  return {
    cpuMicros: (at(14) + at(15)) * MICROS_PER_TICK,
    rssBytes: at(24) * pageBytes,
    threads: at(20),
  }
}

const PAGE_BYTES = 4096

/** `stat` counts in ticks of 10 ms, but also the time of threads that have ended. */
function usageOf(pid: number): Usage {
  try {
    const coarse = parseStat(readFileSync(`/proc/${pid}/stat`, 'utf8'), PAGE_BYTES)
    const fine = threadMicros(pid)
    const ended = coarse.cpuMicros > fine + ENDED_TICKS * MICROS_PER_TICK
    return ended ? coarse : { ...coarse, cpuMicros: fine }
  } catch {
    return NOTHING
  }
}

/** User and system time are rounded each. */
const ENDED_TICKS = 2

/** Microseconds that the living threads of a process have run, to the nanosecond. */
function threadMicros(pid: number): number {
  return readdirSync(`/proc/${pid}/task`)
    .map(tid => Number(readFileSync(`/proc/${pid}/task/${tid}/schedstat`, 'utf8').split(' ', 1)[0]) / 1000)
    .reduce((sum, micros) => sum + micros, 0)
}

/** Threads of a process that run JavaScript: those that Node has not named after another purpose. */
export function scriptThreads(pid: number): number[] {
  const nameOf = (tid: number): string => readFileSync(`/proc/${pid}/task/${tid}/comm`, 'utf8')
  try {
    const own = nameOf(pid)
    return readdirSync(`/proc/${pid}/task`)
      .map(Number)
      .filter(tid => nameOf(tid) === own)
  } catch {
    return []
  }
}

/** The process and all its descendants. */
export function family(pid: number): number[] {
  let children: number[] = []
  try {
    children = readdirSync(`/proc/${pid}/task`).flatMap(task =>
      readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
    )
  } catch {
    return [pid]
  }
  return [pid, ...children.flatMap(family)]
}

export function usage(pids: readonly number[]): Usage {
  return pids.map(usageOf).reduce(
    (sum, one) => ({
      cpuMicros: sum.cpuMicros + one.cpuMicros,
      rssBytes: sum.rssBytes + one.rssBytes,
      threads: sum.threads + one.threads,
    }),
    NOTHING,
  )
}

/** Microseconds in which each core was not idle, since boot. */
export function busyMicros(): number[] {
  return parseMachine(readFileSync('/proc/stat', 'utf8'))
}

/** The lines cpu0, cpu1, … of /proc/stat. Pure. */
export function parseMachine(text: string): number[] {
  return text
    .split('\n')
    .filter(line => /^cpu\d/.test(line))
    .map(line => {
      const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = line
        .trim()
        .split(/\s+/)
        .slice(1)
        .map(Number)
      return (user + nice + system + irq + softirq + steal) * MICROS_PER_TICK
    })
}

/**
 * The kinds of threads that the supervisor keeps running: how many of each, and the pauses before a dead one is started
 * again. A new kind is one row and its entry file.
 */
import type { Config } from '../config/settings.ts'

/** The interval at which a thread reports that its event loop is running. */
export const PULSE_INTERVAL_MS = 1_000

export type ThreadKindName = 'serve' | 'batch'

export interface ThreadKind {
  readonly name: ThreadKindName
  /** The module that a thread of this kind runs. */
  readonly entry: URL
  /** How many there are; their names are the kind's with a number, e.g. `serve-0`. */
  readonly count: (config: Config) => number
  /** True if it starts on demand, and not with the process. */
  readonly startsOnDemand: boolean
  /** True if it takes traffic: the gateway is ready only while at least one such thread is up. */
  readonly takesTraffic: boolean
  /** True if it is informed of the load of threads that take traffic, and yields to them. */
  readonly yields: boolean
  readonly restart: RestartRule
}

interface RestartRule {
  /** A thread that died is restarted after this time, and after twice as long each time it dies again soon. */
  readonly firstDelayMs: number
  readonly maxDelayMs: number
  /** If a thread lived this long, its death counts as a new problem. */
  readonly settledMs: number
}

const RESTART: RestartRule = { firstDelayMs: 500, maxDelayMs: 30_000, settledMs: 60_000 }

/** Unbuilt and built sources have different file extensions. */
function entryOf(name: string): URL {
  return new URL(import.meta.url.endsWith('.ts') ? `./${name}.ts` : `./${name}.js`, import.meta.url)
}

/** All kinds of threads, in the order in which they are started. */
export const THREAD_KINDS: readonly ThreadKind[] = [
  {
    name: 'serve',
    entry: entryOf('serve'),
    count: config => config.threads.serve,
    startsOnDemand: false,
    takesTraffic: true,
    yields: false,
    restart: RESTART,
  },
  {
    name: 'batch',
    entry: entryOf('batch'),
    count: () => 1,
    startsOnDemand: true,
    takesTraffic: false,
    yields: true,
    restart: RESTART,
  },
]

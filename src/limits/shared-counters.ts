/** The counters of an instance as they are built: in memory or in Redis, with credits, kept in line with the ledger. */
import type { Clock, Timer } from '../clock.ts'
import type { Log } from '../log/log.ts'
import type { Counters, Spending } from './counters.ts'
import { CreditedCounters } from './credited-counters.ts'
import { LocalCounters } from './local-counters.ts'
import { RedisCounters } from './redis-counters.ts'

export interface SharedCounterSettings {
  /** Null: counted in memory. */
  readonly redis: { readonly url: string; readonly prefix: string } | null
  /** How many instances share the limits. */
  readonly nodes: number
  readonly spending: Spending
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  /** See RedisCounters. */
  readonly aliveMs?: number
  readonly silenceMs?: number
}

export interface SharedCounters extends Counters {
  /** Whether limits go on by this instance's share, because Redis is away. */
  readonly degraded: boolean
  close(): Promise<void>
}

/** What got lost on the way, when an instance died, is found in the ledger after this. */
const RECONCILE_MS = 600_000

export function openCounters(settings: SharedCounterSettings): SharedCounters {
  const { redis, nodes, spending, clock, log } = settings
  const local = new LocalCounters({ clock, spending, nodes })
  const remote = redis === null ? null : new RedisCounters({ ...settings, ...redis, local })
  const counters = new CreditedCounters(remote ?? local, { clock, spending })
  let isFailing = false
  let timer: Timer
  /** One after the other: it is nobody's turn that waits for it. */
  const reconcile = async (): Promise<void> => {
    for (const entry of local.inUse(RECONCILE_MS)) {
      if (entry.origin === null) continue
      if (remote === null) local.raise(entry.id, await spending.spent(entry.origin))
      else await remote.reconcile(entry)
    }
  }
  const schedule = (): void => {
    timer = clock.after(RECONCILE_MS, () => {
      void reconcile()
        .then(
          () => {
            isFailing = false
          },
          (error: unknown) => {
            if (!isFailing) log.fault('limits cannot be compared with the ledger', error)
            isFailing = true
          },
        )
        .then(() => {
          if (!closed) schedule()
        })
    })
  }
  let closed = false
  schedule()
  return {
    get degraded() {
      return remote?.degraded ?? false
    },
    take: entries => counters.take(entries),
    give: (entries, used) => counters.give(entries, used),
    async close() {
      closed = true
      timer.cancel()
      await remote?.close()
      local.close()
    },
  }
}

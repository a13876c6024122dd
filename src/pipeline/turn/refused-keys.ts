/** Log lines about provider keys that their provider refuses: for each key, at most one in ten minutes. */
import { LRUCache } from 'lru-cache'
import type { Clock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import type { AttemptRecord } from '../../exchange/exchange.ts'

/** The same key is logged again after this time. */
const LOG_INTERVAL_MS = 600_000
/** Own keys of workspaces may be many. */
const MAX_LOGGED_KEYS = 1_000

export class RefusedKeys {
  readonly #deps: { readonly clock: Pick<Clock, 'monotonicMs'>; readonly log: Pick<Log, 'notice'> }
  /** Monotonic milliseconds of the last line, by key. */
  readonly #lastLogMs = new LRUCache<string, number>({ max: MAX_LOGGED_KEYS })

  constructor(deps: { readonly clock: Pick<Clock, 'monotonicMs'>; readonly log: Pick<Log, 'notice'> }) {
    this.#deps = deps
  }

  /** Call it after an attempt that failed because of the account behind its key. */
  note({ endpoint, credential, status }: AttemptRecord): void {
    const { clock, log } = this.#deps
    const nowMs = clock.monotonicMs()
    const provider = endpoint.provider.slug
    const key = `${provider}\n${credential?.id ?? ''}`
    const lastMs = this.#lastLogMs.get(key)
    if (lastMs !== undefined && nowMs - lastMs < LOG_INTERVAL_MS) return
    this.#lastLogMs.set(key, nowMs)
    log.notice('providers', 'a provider refuses a key: check it, its credit and its permissions', {
      provider,
      ...(status === null ? {} : { status }),
      ...(credential === null ? { key: 'shared' } : { key: 'own', credential: credential.id }),
    })
  }
}

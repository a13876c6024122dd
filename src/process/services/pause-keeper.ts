/**
 * The pauses of providers, as the main thread knows them: for the log, the metrics, `/readyz` and the console. Removes
 * pauses that have ended. Serve threads read the pauses themselves.
 */
import { type Clock, isoInstant, type Timer } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { isPausedBy } from '../../pipeline/routing/pauses.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'
import { StoreList } from '../../storage/invalidation/store-list.ts'
import type { PauseRecord, PauseStore } from '../../storage/pauses.ts'

interface PauseKeeperDeps {
  readonly store: { readonly pauses: Pick<PauseStore, 'list' | 'prune'> }
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
}

export class PauseKeeper {
  readonly #deps: PauseKeeperDeps
  readonly #list: StoreList<PauseRecord>
  #running: ReadonlyMap<string, PauseRecord> = new Map()
  #timer: Timer | null = null

  constructor(deps: PauseKeeperDeps) {
    this.#deps = deps
    this.#list = new StoreList({
      read: () => deps.store.pauses.list(),
      onRead: records => this.#set(records),
      component: 'providers',
      failure: 'cannot read the paused providers; known pauses stay in effect',
      clock: deps.clock,
      log: deps.log,
    })
  }

  /** Slugs of the paused providers. */
  get paused(): readonly string[] {
    return [...this.#running.keys()]
  }

  /** True if requests do not go to this provider. */
  isPaused(slug: string): boolean {
    return this.paused.some(paused => isPausedBy(paused, slug))
  }

  /** Call it when the store is ready for the first time. Never rejects. */
  refresh(): Promise<void> {
    return this.#list.refresh()
  }

  invalidate({ kind }: Invalidation): void {
    if (kind === 'pauses' || kind === 'all') void this.refresh()
  }

  close(): void {
    this.#list.close()
    this.#timer?.cancel()
  }

  #set(records: readonly PauseRecord[]): void {
    const { clock, log, store } = this.#deps
    const nowMs = clock.nowMs()
    const before = this.#running
    this.#running = new Map(
      records.filter(({ untilMs }) => untilMs > nowMs).map(record => [record.provider, record]),
    )
    for (const [provider, { sinceMs, untilMs, actor }] of this.#running) {
      if (before.get(provider)?.sinceMs === sinceMs) continue
      log.notice('providers', 'a provider is paused: no request goes to it', {
        provider,
        until: isoInstant(untilMs),
        by: actor,
      })
    }
    for (const provider of before.keys())
      if (!this.#running.has(provider))
        log.notice('providers', 'a paused provider is in service again', { provider })
    // Records that are not removed now are removed after the next pause.
    if (this.#running.size < records.length) store.pauses.prune(nowMs).catch(() => undefined)
    this.#timer?.cancel()
    this.#timer = null
    if (this.#running.size === 0) return
    const runningPauses = [...this.#running.values()]
    const nextMs = Math.min(...runningPauses.map(({ untilMs }) => untilMs))
    this.#timer = clock.after(nextMs - nowMs, () => this.#set(runningPauses))
  }
}

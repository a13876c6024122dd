/**
 * Providers out of service, as one thread knows them. The Store has them, and they are read again when one has changed.
 * Each pause ends at its time by itself, also while the Store is unavailable. Hot path: `filter`.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { StoreList } from '../../storage/invalidation/store-list.ts'
import type { PauseRecord, PauseStore } from '../../storage/pauses.ts'
import type { Filter } from './candidate.ts'

export const PROVIDER_PAUSED = 'provider_paused'

interface PausesDeps {
  readonly store: { readonly pauses: Pick<PauseStore, 'list'> }
  readonly clock: Pick<Clock, 'after' | 'nowMs'>
  readonly log: Pick<Log, 'fault'>
  /** Called when other providers than before may be out of service. */
  readonly onChange: () => void
}

export class Pauses {
  /** Leaves out the candidates of paused providers; null: none is paused. */
  filter: Filter | null = null
  readonly #deps: PausesDeps
  readonly #list: StoreList<PauseRecord>
  #activePauses: readonly PauseRecord[] = []
  #timer: Timer | null = null

  constructor(deps: PausesDeps) {
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

  /** Unix milliseconds: when the pause of a provider ends; null: it is not paused. */
  endOf(slug: string): number | null {
    let endMs: number | null = null
    for (const { provider, untilMs } of this.#activePauses)
      if (isPausedBy(provider, slug)) endMs = Math.max(endMs ?? 0, untilMs)
    return endMs
  }

  /** Never rejects. */
  refresh(): Promise<void> {
    return this.#list.refresh()
  }

  close(): void {
    this.#list.close()
    this.#timer?.cancel()
  }

  #set(records: readonly PauseRecord[]): void {
    const { clock, onChange } = this.#deps
    const nowMs = clock.nowMs()
    const hadNone = this.#activePauses.length === 0
    this.#activePauses = records.filter(({ untilMs }) => untilMs > nowMs)
    this.#timer?.cancel()
    this.#timer = null
    if (this.#activePauses.length === 0) {
      this.filter = null
      if (!hadNone) onChange()
      return
    }
    const slugs = this.#activePauses.map(({ provider }) => provider)
    this.filter = {
      excludedBy: PROVIDER_PAUSED,
      admits: ({ endpoint: { provider } }) => !slugs.some(slug => isPausedBy(slug, provider.slug)),
    }
    const nextMs = Math.min(...this.#activePauses.map(({ untilMs }) => untilMs))
    this.#timer = clock.after(nextMs - nowMs, () => this.#set(this.#activePauses))
    onChange()
  }
}

/** True if a pause of `pausedSlug` applies to the provider `slug`, which may be one of its regions. */
export function isPausedBy(pausedSlug: string, slug: string): boolean {
  return slug === pausedSlug || slug.startsWith(`${pausedSlug}/`)
}

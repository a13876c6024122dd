/** Builds the console from main-thread services and the supervisor's state. Main thread. */

import { Console } from '../../apps/console/console.ts'
import type { ProcessFacts } from '../../apps/console/view.ts'
import type { DecisionCount } from '../../apps/console/views.ts'
import { systemClock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import type { SharedHealth } from '../../providers/health/shared-health.ts'
import type { PackedCatalogue } from '../../providers/shared-catalogue.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'
import type { Store } from '../../storage/store.ts'
import type { Config } from '../config/settings.ts'
import { CatalogueHolder } from '../services/live-catalogue.ts'
import type { PauseKeeper } from '../services/pause-keeper.ts'
import type { StoreWatch } from '../services/store-watch.ts'
import type { Scraper } from '../threads/process-metrics.ts'

interface ProcessSourceDeps {
  readonly scraper: Pick<Scraper, 'values'>
  readonly version: string
  readonly publicUrl: string
  readonly unreadyReason: () => string | null
  readonly degraded: () => readonly string[]
  readonly onWatched: (isWatched: boolean) => void
  /** Announces a change made through the console. */
  readonly publish: (change: Invalidation) => void
}

export const IN_FLIGHT = 'gateway_requests_in_flight'
const OPEN_STREAMS = 'gateway_open_streams'
const GUARDRAIL_DECISIONS = 'gateway_guardrail_decisions_total'

/** The process data that the console shows: state, and figures from the metrics of all threads. */
export class ProcessSource {
  readonly publicUrl: string
  readonly onWatched: (isWatched: boolean) => void
  readonly publish: (change: Invalidation) => void
  readonly #deps: ProcessSourceDeps

  constructor(deps: ProcessSourceDeps) {
    this.publicUrl = deps.publicUrl
    this.onWatched = deps.onWatched
    this.publish = deps.publish
    this.#deps = deps
  }

  async decisions(): Promise<readonly DecisionCount[]> {
    const values = await this.#deps.scraper.values(GUARDRAIL_DECISIONS)
    return values.map(({ value, labels: { guardrail = '', action = '' } }) => ({
      guardrail: String(guardrail),
      action: String(action),
      count: value,
    }))
  }

  async facts(): Promise<ProcessFacts> {
    const { version, unreadyReason, degraded } = this.#deps
    return {
      version,
      unreadyReason: unreadyReason(),
      degraded: degraded(),
      openStreams: await this.#total(OPEN_STREAMS),
      inFlight: await this.#total(IN_FLIGHT),
    }
  }

  async #total(name: string): Promise<number> {
    return (await this.#deps.scraper.values(name)).reduce((sum, { value }) => sum + value, 0)
  }
}

interface ConsoleServices {
  readonly store: Store
  readonly watch: Pick<StoreWatch<unknown>, 'state'>
  readonly catalogue: { readonly packed: PackedCatalogue }
  readonly health: SharedHealth
  readonly pauses: Pick<PauseKeeper, 'isPaused'>
}

export function buildConsole(
  { byok: { feePercent }, listen: { tls }, console: { publicUrl, oidc } }: Config,
  log: Log,
  { store, watch, catalogue, health, pauses }: ConsoleServices,
  source: ProcessSource,
): Console {
  // Unpacked only for viewers: the threads have catalogues of their own.
  let unpacked: { readonly from: PackedCatalogue; readonly holder: CatalogueHolder } | null = null
  return new Console({
    store,
    log,
    health: {
      condition: endpoint =>
        pauses.isPaused(endpoint.provider.slug) ? 'paused' : health.condition(endpoint),
      ownConditions: () => health.ownConditions(),
      figures: endpoint => health.figures(endpoint),
    },
    clock: systemClock,
    byokFeePercent: feePercent,
    publicUrl: source.publicUrl,
    certificateFile: tls?.cert ?? null,
    isReady: () => watch.state !== 'new',
    catalog() {
      const { packed } = catalogue
      if (unpacked?.from !== packed) unpacked = { from: packed, holder: new CatalogueHolder(packed) }
      return unpacked.holder.catalog
    },
    decisions: () => source.decisions(),
    process: () => source.facts(),
    onWatched: source.onWatched,
    changes: source,
    signIn: publicUrl === null || oidc === null ? null : { origin: new URL(publicUrl).origin, oidc },
  })
}

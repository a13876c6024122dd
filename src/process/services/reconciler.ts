/**
 * Once a day, compares the ledger with the usage reports that `reconcile` names: a log line, a metric, and an alert if
 * they differ. Main thread; only if the configuration has such rows.
 */
import { type Clock, isoInstant, type Timer } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import type { AlertEvent } from '../alerts/alert-body.ts'
import {
  isDrift,
  type ProviderDay,
  type ReconcileDeps,
  type ReconcileRow,
  reconcileDay,
} from '../reconcile/reconcile.ts'

interface ReconcilerOptions extends ReconcileDeps {
  readonly rows: readonly ReconcileRow[]
  readonly raise: (event: AlertEvent) => void
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
}

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
/** Providers complete the report of a day some hours after it has ended. */
const REPORT_DELAY_MS = 6 * HOUR_MS
/** After the start, when records of an earlier process are in the ledger. */
const FIRST_DELAY_MS = 60_000
const REPORT_TIMEOUT_MS = 300_000

export class Reconciler {
  readonly #options: ReconcilerOptions
  readonly #closing = new AbortController()
  /** The day that was compared last, by provider. */
  readonly #days = new Map<string, string>()
  /** By provider; without those whose last report could not be read. */
  readonly #drifts = new Map<string, number>()
  /** Providers whose last report could not be read. Each is logged once. */
  readonly #failing = new Set<string>()
  #timer: Timer
  #running: Promise<void> = Promise.resolve()

  constructor(options: ReconcilerOptions) {
    this.#options = options
    this.#timer = options.clock.after(FIRST_DELAY_MS, () => this.#start())
  }

  /** The drift of the last day by provider: 0 to 1. A provider whose report could not be read is missing. */
  get drifts(): ReadonlyMap<string, number> {
    return this.#drifts
  }

  /** Compares the last complete day, unless that has been done. Never rejects: a failure is tried again in an hour. */
  async check(): Promise<void> {
    const { clock, rows } = this.#options
    const day = isoInstant(clock.nowMs() - REPORT_DELAY_MS - DAY_MS).slice(0, 10)
    for (const row of rows) {
      if (this.#closing.signal.aborted) return
      if (this.#days.get(row.provider) !== day) await this.#compare(row, day)
    }
  }

  async close(): Promise<void> {
    this.#closing.abort(new Error('the gateway stops'))
    this.#timer.cancel()
    await this.#running
  }

  #start(): void {
    this.#running = this.check().then(() => {
      if (this.#closing.signal.aborted) return
      this.#timer = this.#options.clock.after(HOUR_MS, () => this.#start())
    })
  }

  async #compare(row: ReconcileRow, day: string): Promise<void> {
    const { clock, log } = this.#options
    const { provider } = row
    const late = new AbortController()
    const timer = clock.after(REPORT_TIMEOUT_MS, () =>
      late.abort(new Error('the usage report took too long')),
    )
    try {
      const signal = AbortSignal.any([late.signal, this.#closing.signal])
      this.#note(await reconcileDay(this.#options, row, day, signal))
      this.#days.set(provider, day)
      this.#failing.delete(provider)
    } catch (error) {
      this.#drifts.delete(provider)
      if (!this.#failing.has(provider) && !this.#closing.signal.aborted)
        log.fault('ledger', 'cannot compare the ledger with the usage report of a provider', error, {
          provider,
          day,
        })
      this.#failing.add(provider)
    } finally {
      timer.cancel()
    }
  }

  #note(result: ProviderDay): void {
    const { log, raise } = this.#options
    const { provider, day, drift, driftUsd, reportedUsd, ledgerUsd, models } = result
    this.#drifts.set(provider, drift)
    const [worst] = models
    const data = {
      day,
      drift: Math.round(drift * 1e4) / 1e4,
      drift_usd: cents(driftUsd),
      reported_usd: cents(reportedUsd),
      ledger_usd: cents(ledgerUsd),
      ...(worst === undefined ? {} : { largest: worst.model }),
    }
    log.notice('ledger', 'compared the ledger with the usage report of a provider', { provider, ...data })
    if (!isDrift(result)) return
    raise({
      type: 'ledger.drift',
      object: { kind: 'provider', id: provider, name: provider, workspaceId: null },
      window: day,
      data,
    })
  }
}

function cents(usd: number): number {
  return Math.round(usd * 100) / 100
}

/**
 * Alerts of this process: receivers, outbox and watches. Built only if the configuration names a receiver. Main thread.
 */
import { hostname } from 'node:os'
import type { Clock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { ConfigError } from '../../base/settings/check.ts'
import type { SharedHealth } from '../../providers/health/shared-health.ts'
import type { Store } from '../../storage/store.ts'
import type { UsageRecord } from '../../storage/usage.ts'
import type { AlertEvent } from '../alerts/alert-body.ts'
import { Outbox } from '../alerts/outbox.ts'
import { createReceiver, ReceiverError } from '../alerts/receiver.ts'
import { AlertWatches, type RequestCounts } from '../alerts/watches.ts'
import type { Config } from '../config/settings.ts'

export interface Alerts {
  /** Sends an alert about an event that another service has found. */
  raise(event: AlertEvent): void
  /** Takes records that are in the Store. */
  receive(records: readonly UsageRecord[]): void
  close(): Promise<void>
}

interface AlertsDeps {
  readonly config: Config
  readonly store: Store
  readonly health: Pick<SharedHealth, 'downProviders'>
  readonly counts: () => Promise<RequestCounts>
  readonly spoolBytes: () => number
  readonly certificateExpiresMs: () => number | null
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
}

/** @throws ConfigError for a receiver that cannot be used */
export function startAlerts({ config, store, health, clock, log, ...sources }: AlertsDeps): Alerts {
  const receivers = config.alerts.map((row, index) => {
    try {
      return createReceiver(row, clock)
    } catch (error) {
      if (!(error instanceof ReceiverError)) throw error
      throw new ConfigError(`alerts[${index}]: ${error.message}`)
    }
  })
  const outbox = new Outbox({ store, receivers, gateway: config.region, clock, log })
  const watches = new AlertWatches({
    ...sources,
    store,
    raise: event => outbox.raise(event),
    node: hostname(),
    byokFeePercent: config.byok.feePercent,
    creditsLowUsd: config.credits.lowUsd,
    downProviders: () => health.downProviders(),
    clock,
  })
  return {
    raise: event => void outbox.raise(event),
    receive: records =>
      watches.noteUsed(records.map(({ keyHash, organizationId }) => ({ hash: keyHash, organizationId }))),
    async close() {
      await watches.close()
      await outbox.close()
    },
  }
}

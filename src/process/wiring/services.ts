/** Access to provider batch services, for one thread. Composition root. */

import type { Clock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { accessService, type ServiceAccessDeps } from '../../batches/services/service-access.ts'
import type { ServiceRunnerDeps } from '../../batches/services/service-runner.ts'
import { createTransports, proxiesOf } from '../../providers/upstream/egress.ts'
import type { Transport } from '../../providers/upstream/transport.ts'
import type { Config } from '../config/settings.ts'

export interface Services {
  readonly access: ServiceRunnerDeps['access']
  close(): Promise<void>
}

interface ServicesOptions extends Omit<ServiceAccessDeps, 'client' | 'timeouts'> {
  readonly config: Config
  readonly clock: Clock
  readonly log: Log
}

/** A job's results are all its replies in one; anything larger is not a valid result. */
const RESULTS_MAX_BYTES = 8 * 1024 * 1024 * 1024

/** Creates access to batch services. Connections are opened when a service is first called. */
export function buildServices({ config, ...deps }: ServicesOptions): Services {
  const { clock, log } = deps
  let client: Transport | null = null
  const transport = (): Transport => {
    client ??= createTransports({
      clock,
      log,
      ...config.upstream,
      maxResponseBytes: RESULTS_MAX_BYTES,
      proxies: proxiesOf(config),
      undici: true,
    })
    return client
  }
  return {
    access: (batch, job, signal) =>
      accessService({ ...deps, client: transport(), timeouts: config.timeouts }, batch, job, signal),
    close: async () => client?.close(),
  }
}

/** Figures of the main thread, read for each scrape: store, keys, batches, certificate, configuration, health. */

import type { MetricSample } from '../../base/metrics/exposition.ts'
import { BATCH_STATUSES } from '../../protocol/management/batches.ts'
import { ALL_PERCENT } from '../../protocol/rollout.ts'
import type { SharedHealth } from '../../providers/health/shared-health.ts'
import type { TranscriptStore } from '../../storage/transcripts/transcript-store.ts'
import type { RequestCounts } from '../alerts/watches.ts'
import { RELOAD_OUTCOMES } from '../services/certificate-keeper.ts'
import { DEGRADABLE_PARTS, type ProcessMetrics, type Scraper } from '../threads/process-metrics.ts'
import type { SupervisorOptions } from '../threads/supervision.ts'

export function updateFigures(
  metrics: ProcessMetrics,
  options: SupervisorOptions,
  transcripts: TranscriptStore,
  health: SharedHealth,
): void {
  metrics.quotaDegraded.set(options.counters?.degraded === true ? 1 : 0)
  metrics.storageUp.set(options.storageUp?.() === false ? 0 : 1)
  metrics.storageProbe.set(options.storageProbeSeconds?.() ?? 0)
  const degradedParts = options.degraded?.() ?? []
  for (const part of DEGRADABLE_PARTS)
    metrics.degraded.set({ what: part }, degradedParts.includes(part) ? 1 : 0)
  updateExports(metrics, options)
  updateDrifts(metrics, options)
  updateRollouts(metrics, options)
  updatePaused(metrics, options)
  metrics.spoolBytes.set(options.spoolBytes?.() ?? 0)
  metrics.resumableStreams.set(transcripts.count)
  metrics.resumableBytes.set(transcripts.bytes)
  updateSealedCounts(metrics, options)
  updateBatchCounts(metrics, options)
  updateBlocked(metrics, health)
  updateCertificate(metrics, options)
  updateConfigReload(metrics, options)
}

function updateSealedCounts({ credentials }: ProcessMetrics, { sealedCounts }: SupervisorOptions): void {
  credentials.reset()
  for (const [key_id, count] of sealedCounts?.() ?? []) credentials.set({ key_id }, count)
}

function updateBlocked({ blocked }: ProcessMetrics, health: SharedHealth): void {
  const { open, limited, resting } = health.blocked()
  blocked.set({ reason: 'failures' }, open)
  blocked.set({ reason: 'rate_limit' }, limited)
  blocked.set({ reason: 'retry_after' }, resting)
}

function updateCertificate(metrics: ProcessMetrics, { certificate }: SupervisorOptions): void {
  if (certificate === undefined) return
  const { certificateExpiry, certificateReloads } = metrics
  certificateExpiry.set(certificate.expiresAtMs / 1000)
  certificateReloads.reset()
  for (const outcome of RELOAD_OUTCOMES) certificateReloads.inc({ outcome }, certificate.reloads[outcome])
}

function updateConfigReload(metrics: ProcessMetrics, { configReload }: SupervisorOptions): void {
  if (configReload === undefined) return
  metrics.configReloaded.set(configReload.successful ? 1 : 0)
  metrics.configReloadedAt.set(configReload.loadedAtMs / 1000)
}

function updateExports(
  { exportLag, exportWaiting, exportLost }: ProcessMetrics,
  { exports }: SupervisorOptions,
): void {
  if (exports === undefined) return
  exportLag.set(exports.lagSeconds)
  exportWaiting.set(exports.waitingBytes)
  exportLost.reset()
  exportLost.inc(exports.lostRecords)
}

function updateDrifts({ reconcileDrift }: ProcessMetrics, { drifts }: SupervisorOptions): void {
  reconcileDrift.reset()
  for (const [provider, drift] of drifts?.() ?? []) reconcileDrift.set({ provider }, drift)
}

function updateRollouts(
  { rolloutShare, rolloutState, shadowBudget }: ProcessMetrics,
  { rollouts }: SupervisorOptions,
): void {
  rolloutShare.reset()
  rolloutState.reset()
  shadowBudget.reset()
  for (const { route, share, shadowUsed, state } of rollouts?.() ?? []) {
    if (shadowUsed !== null) shadowBudget.set({ route }, shadowUsed)
    rolloutShare.set({ route }, share / ALL_PERCENT)
    rolloutState.set({ route, state }, 1)
  }
}

function updatePaused({ paused }: ProcessMetrics, options: SupervisorOptions): void {
  paused.reset()
  for (const provider of options.paused?.() ?? []) paused.set({ provider }, 1)
}

function updateBatchCounts({ batches }: ProcessMetrics, { batchCounts }: SupervisorOptions): void {
  batches.reset()
  const counts = batchCounts?.() ?? null
  if (counts === null) return
  for (const status of BATCH_STATUSES) batches.set({ status }, counts.get(status) ?? 0)
}

/** Counts of all requests since the start, for alerts. */
export async function requestCounts(scraper: Scraper): Promise<RequestCounts> {
  const [requests, shed] = await Promise.all([
    scraper.values('gateway_requests_total'),
    scraper.values('gateway_shed_total'),
  ])
  const total = (values: readonly MetricSample[]) => values.reduce((sum, { value }) => sum + value, 0)
  // As in the alert rules: batch requests are retried, and a key at its own limit is not an overload.
  const liveRequests = requests.filter(({ labels }) => !String(labels['route']).startsWith('batch/'))
  return {
    total: total(liveRequests),
    failed: total(liveRequests.filter(({ labels }) => labels['outcome'] === 'failed')),
    shed: total(shed.filter(({ labels }) => !String(labels['reason']).startsWith('key_'))),
  }
}

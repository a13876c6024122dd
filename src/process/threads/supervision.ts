/** The contract of the thread supervisor: its options and its operations. */

import type { KeyObject } from 'node:crypto'
import type { Console } from '../../apps/console/console.ts'
import type { Log, LogForm } from '../../base/log/log.ts'
import type { OwnerMetrics } from '../../base/metrics/owners.ts'
import type { Counters } from '../../callers/limits/counters.ts'
import type { CaptureKeeper } from '../../features/captures/keeper.ts'
import type { LoopNote } from '../../pipeline/loops.ts'
import type { BatchStatus } from '../../protocol/management/batches.ts'
import type { VaultKey } from '../../providers/credentials/vault-keys.ts'
import type { SharedHealth } from '../../providers/health/shared-health.ts'
import type { PackedCatalogue } from '../../providers/shared-catalogue.ts'
import type { FrontName } from '../../server/http-libraries.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'
import type { MaskTables } from '../../storage/mask-tables.ts'
import type { Pins } from '../../storage/session-affinity/session-affinity.ts'
import type { TranscriptStore } from '../../storage/transcripts/transcript-store.ts'
import type { RequestCounts } from '../alerts/watches.ts'
import type { Config } from '../config/settings.ts'
import type { CertificateKeeper } from '../services/certificate-keeper.ts'
import type { ExplanationKeeper } from '../services/explanation-keeper.ts'
import type { MeasuredRollout } from '../services/rollout-keeper.ts'
import type { EarlyWorkers } from '../start/early-workers.ts'
import type { ProcessSource } from '../wiring/console.ts'
import type { Exports } from '../wiring/exports.ts'
import type { ThreadKindName } from './kinds.ts'

export interface Supervisor {
  readonly url: string
  readonly adminUrl: string
  /** The HTTP front in use. */
  readonly front: FrontName
  /**
   * Stops accepting requests, lets running ones finish within the grace time, then stops everything. A second call with
   * less grace shortens it. False if a thread did not stop, and only the end of the process ends it.
   */
  drain(graceMs: number): Promise<boolean>
  /** Number of running requests, in all threads that answer. */
  openRequests(): Promise<number>
  /** Makes every thread drop its cached copies of a record that was changed elsewhere. */
  invalidate(change: Invalidation): void
  /** Replaces the catalogue of every thread. */
  exchangeCatalogue(packed: PackedCatalogue): void
  /** Counts of all requests since the start, for alerts. */
  requestCounts(): Promise<RequestCounts>
  /**
   * Starts the threads of a kind that starts on demand; call it once. Rejects if they cannot be started; it may then be
   * called again.
   */
  begin(kind: ThreadKindName): Promise<void>
  /** Switches every thread to the certificate of this version. False if not all of them could. */
  renewCertificate(version: string): Promise<boolean>
}

export interface SupervisorOptions {
  readonly config: Config
  readonly simUrl: string | null
  /** The current catalogue. Default: threads build it from the configuration. */
  readonly catalogue?: () => PackedCatalogue
  readonly endUserKey: KeyObject
  /** All master keys; the first one encrypts. */
  readonly vaultKeys: readonly VaultKey[]
  /** Takes explanations of requests. Default: none are kept. */
  readonly explanations?: Pick<ExplanationKeeper, 'add'>
  /** The form of threads' log lines. Default: JSON. */
  readonly logForm?: LogForm
  /** Folder in which threads spool their usage records. */
  readonly spoolFolder: string
  /** Called when a thread has ended, with the name of its spool files. */
  readonly writerGone?: (writer: string) => void
  readonly log: Log
  /** Called with each record that a thread changed, after all threads here, to inform other instances. */
  readonly onChange?: (change: Invalidation) => void
  /** Called with each loop of an agent that a thread has found. */
  readonly onLoop?: (note: LoopNote) => void
  /** Counters of all threads. Without them, requests with limits are refused. */
  readonly counters?: Counters & { readonly degraded: boolean }
  /** Pins of conversations for all threads. Default: pins of this instance only. */
  readonly pins?: Pins
  /** Placeholders of sessions for all threads. Default: only this instance's placeholders. */
  readonly masks?: MaskTables
  /** Keeps captures for all threads. Default: nothing is captured. */
  readonly captures?: CaptureKeeper
  /** Resumable streams of all threads. Default: only this instance's streams. */
  readonly transcripts?: TranscriptStore
  /** Endpoint health for all threads. Default: only this instance's health. */
  readonly health?: SharedHealth
  /** Until it resolves, requests are rejected with 503, because the store is not ready. Default: the store is ready. */
  readonly prepared?: Promise<unknown>
  /** The reason that no traffic may arrive yet, apart from threads; null if it may. */
  readonly unreadyReason?: () => string | null
  /** Names of unavailable dependencies while traffic may still arrive. */
  readonly degraded?: () => readonly string[]
  /** Duration of the Store's last probe. Default: zero. */
  readonly storageProbeSeconds?: () => number
  /** True while the Store can be reached. Default: it can. */
  readonly storageUp?: () => boolean
  /** Exports of usage. Default: there are none. */
  readonly exports?: Pick<Exports, 'lagSeconds' | 'waitingBytes' | 'lostRecords'>
  /** Drifts between ledger and usage reports, by provider; null if no report is configured. Default: null. */
  readonly drifts?: () => ReadonlyMap<string, number> | null
  /** The rollouts of routes. Default: there are none. */
  readonly rollouts?: () => readonly MeasuredRollout[]
  /** Slugs of providers that operators have paused. Default: none is. */
  readonly paused?: () => readonly string[]
  /** Counts by workspace and by API key. Default: there are none. */
  readonly owners?: readonly OwnerMetrics[]
  /** Bytes of usage records on disk that are not in the Store. Default: none. */
  readonly spoolBytes?: () => number
  /** Number of credentials that each master key wraps; null if unknown. */
  readonly sealedCounts?: () => ReadonlyMap<string, number> | null
  /** Number of batches in each state; null if unknown. */
  readonly batchCounts?: () => ReadonlyMap<BatchStatus, number> | null
  /** Creates the console; absent if there is none. Called again if another port has to be chosen. */
  readonly console?: (source: ProcessSource) => Console
  /** The certificate of the public port. Default: there is none. */
  readonly certificate?: Pick<CertificateKeeper, 'expiresAtMs' | 'reloads'>
  /** If the last reload of the configuration succeeded, and when one last did. Default: nothing is reported. */
  readonly configReload?: { readonly successful: boolean; readonly loadedAtMs: number }
  /** Entries that threads run instead of their kind's own; each must behave like that one. */
  readonly entries?: Partial<Record<ThreadKindName, URL>>
  /** Threads that have begun to load; unused ones are ended. Default: there are none. */
  readonly early?: EarlyWorkers
  /** A thread that is silent for this long counts as hung. Default 10 s: no work of ours takes a tenth of it. */
  readonly hungMs?: number
  /** How long threads may take beyond the grace time to close their files. Default 5 s. */
  readonly stopMs?: number
}

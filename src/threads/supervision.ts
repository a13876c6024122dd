/** The contract of the thread supervisor: its options and its operations. */
import type { KeyObject } from 'node:crypto'
import type { RequestCounts } from '../alerts/watches.ts'
import type { CaptureKeeper } from '../captures/keeper.ts'
import type { Config } from '../config/config.ts'
import type { Console } from '../console/console.ts'
import type { VaultKey } from '../credentials/vault-keys.ts'
import type { SharedHealth } from '../health/shared-health.ts'
import type { Invalidation } from '../invalidation/bus.ts'
import type { Counters } from '../limits/counters.ts'
import type { Log, LogForm } from '../log/log.ts'
import type { WorkspaceMetrics } from '../metrics/workspaces.ts'
import type { Pins } from '../pins/pins.ts'
import type { BatchStatus } from '../protocol/management/batches.ts'
import type { PackedCatalogue } from '../providers/packed.ts'
import type { FrontName } from '../server/fronts.ts'
import type { CertificateKeeper } from '../services/certificate-keeper.ts'
import type { ExplanationKeeper } from '../services/explanation-keeper.ts'
import type { TranscriptStore } from '../transcripts/transcript-store.ts'
import type { ProcessSource } from './build/console.ts'
import type { Exports } from './build/exports.ts'
import type { ThreadKindName } from './kinds.ts'
import type { EarlyWorkers } from './start/early-workers.ts'

export interface Supervisor {
  readonly url: string
  readonly adminUrl: string
  /** The HTTP front that serves. */
  readonly front: FrontName
  /**
   * Stops taking requests, lets running ones finish within the grace time, then stops everything. Called again with
   * less grace, it hurries. False: a thread did not stop, and only the end of the process ends it.
   */
  drain(graceMs: number): Promise<boolean>
  /** How many requests run now, in all threads that answer. */
  openRequests(): Promise<number>
  /** Makes every thread drop its cached copies of a record that was changed elsewhere. */
  changed(change: Invalidation): void
  /** Gives every thread another catalogue. */
  exchangeCatalogue(packed: PackedCatalogue): void
  /** Counts of all requests since the start, for alerts. */
  requestCounts(): Promise<RequestCounts>
  /** Starts the threads of a kind that waits; call it once. Rejects when they cannot be started: call it again. */
  begin(kind: ThreadKindName): Promise<void>
  /** Lets every thread serve with the certificate of this version. False: not all of them could. */
  renewCertificate(version: string): Promise<boolean>
}

export interface SupervisorOptions {
  readonly config: Config
  readonly simUrl: string | null
  /** The catalogue of now. Default: threads make it from the configuration. */
  readonly catalogue?: () => PackedCatalogue
  readonly endUserKey: KeyObject
  /** All master keys; the first one seals. */
  readonly vaultKeys: readonly VaultKey[]
  /** Takes explanations of requests. Default: nobody does. */
  readonly explanations?: Pick<ExplanationKeeper, 'take'>
  /** How threads write their log lines. Default: JSON. */
  readonly logForm?: LogForm
  /** Folder in which threads spool their usage records. */
  readonly spoolFolder: string
  /** Called when a thread has ended, with the name of its spool files. */
  readonly writerGone?: (writer: string) => void
  readonly log: Log
  /** Called with each record that a thread changed, after all threads here: for other instances. */
  readonly onChange?: (change: Invalidation) => void
  /** Counters of all threads. Without them requests with limits are refused. */
  readonly counters?: Counters & { readonly degraded: boolean }
  /** Pins of conversations of all threads. Default: pins of this instance alone. */
  readonly pins?: Pins
  /** Keeps captures of all threads. Default: nothing is captured. */
  readonly captures?: CaptureKeeper
  /** Resumable streams of all threads. Default: those of this instance alone. */
  readonly transcripts?: TranscriptStore
  /** Endpoint health of all threads. Default: that of this instance alone. */
  readonly health?: SharedHealth
  /** Until it resolves, requests get 503, because the store is not ready. Default: the store is ready. */
  readonly prepared?: Promise<unknown>
  /** The reason why no traffic may come yet, apart from threads; null when it may. */
  readonly unreadyReason?: () => string | null
  /** Names of unavailable dependencies while traffic may still come. */
  readonly degraded?: () => readonly string[]
  /** How long the Store took for the last probe. Default: no time. */
  readonly storageProbeSeconds?: () => number
  /** True while the Store can be reached. Default: it can. */
  readonly storageUp?: () => boolean
  /** Exports of usage. Default: there are none. */
  readonly exports?: Pick<Exports, 'lagSeconds' | 'waitingBytes' | 'lostRecords'>
  /** Counts by workspace. Default: there are none. */
  readonly workspaces?: WorkspaceMetrics | null
  /** Bytes of usage records on disk that are not in the Store. Default: none. */
  readonly spoolBytes?: () => number
  /** How many credentials each master key wraps; null when it is not known. */
  readonly sealedCounts?: () => ReadonlyMap<string, number> | null
  /** How many batches are in each state; null when it is not known. */
  readonly batchCounts?: () => ReadonlyMap<BatchStatus, number> | null
  /** Makes the console; absent: there is none. Called again if the port has to be chosen again. */
  readonly console?: (source: ProcessSource) => Console
  /** The certificate of the public port. Default: there is none. */
  readonly certificate?: Pick<CertificateKeeper, 'expiresAtMs' | 'reloads'>
  /** Entries that threads run instead of their kind's own; each must behave as that does. */
  readonly entries?: Partial<Record<ThreadKindName, URL>>
  /** Threads that have begun to load; those that are not taken are ended. Default: there are none. */
  readonly early?: EarlyWorkers
  /** A thread that is silent for this long counts as hanging. Default 10 s: no work of ours takes a tenth of it. */
  readonly hungMs?: number
  /** How long threads may take beyond the grace time to close their files. Default 5 s. */
  readonly stopMs?: number
}

/** The APIs that the main thread and its other threads serve to each other. Types only. */

import type { MetricSnapshot } from '../../base/metrics/exposition.ts'
import type { EndedTrace } from '../../base/telemetry/ended-trace.ts'
import type { LiveLoad } from '../../batches/pressure.ts'
import type { CounterServer } from '../../callers/limits/counter-channel.ts'
import type { CapturedRequest, RunningCaptures } from '../../features/captures/running.ts'
import type { SandboxServer } from '../../features/sandbox/channel.ts'
import type { LoopNote } from '../../pipeline/loops.ts'
import type { EndedRequest } from '../../protocol/ended-request.ts'
import type { EndpointHealth } from '../../providers/health/health.ts'
import type { HealthNote } from '../../providers/health/notes.ts'
import type { PackedCatalogue } from '../../providers/shared-catalogue.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'
import type { NewExplanation } from '../../storage/ledger.ts'
import type { MaskTables } from '../../storage/mask-tables.ts'
import type { Pins } from '../../storage/session-affinity/session-affinity.ts'
import type { TranscriptClient, TranscriptServer } from '../../storage/transcripts/transcript-channel.ts'

/** Services that the main thread keeps for all threads. */
export interface SharedServices {
  readonly counters: Pick<CounterServer, 'reserve' | 'settle'>
  readonly pins: Pins
  readonly masks: MaskTables
  readonly sandbox: Pick<SandboxServer, 'call' | 'abort'>
  readonly transcripts: TranscriptServer
  readonly health: {
    /** Takes the health of endpoints as the thread has seen it. */
    receive(notes: readonly HealthNote[]): void
  }
  readonly reports: {
    /** The thread changed a record: all others drop their copies. */
    changed(change: Invalidation): void
    /** Finished requests, while somebody is watching. */
    ended(requests: readonly EndedRequest[]): void
    /** Explanations of finished requests. */
    explained(explanations: readonly NewExplanation[]): void
    /** Kept traces, while tracing is on; `dropped`: the number of further traces for which there was no room. */
    traced(traces: readonly EndedTrace[], dropped: number): void
    /** The load of a serve thread. */
    loaded(load: LiveLoad): void
    /** An agent runs in a circle or overspends. */
    looped(note: LoopNote): void
  }
}

/** The API of the main thread. */
export interface MainApi extends SharedServices {
  readonly captures: {
    /** Takes the record of one request, for one capture. */
    captured(request: CapturedRequest): void
  }
  readonly supervisor: {
    /** The thread is running; a serve thread accepts requests. */
    started(): void
    /** The thread could not start; `reason` can be shown to the operator. */
    refused(reason: string, portTaken: boolean): void
    /** The thread is alive. */
    pulse(): void
    /** The last call of a thread that ends, with all its metrics. */
    ended(metrics: MetricSnapshot): void
  }
}

/** The API of every other thread. */
export interface WorkerApi {
  readonly work: {
    /** All metrics of the thread. */
    metrics(): Promise<MetricSnapshot>
    /** Drops cached copies of a record. */
    changed(change: Invalidation): void
    /** Replaces the catalogue; its bytes are shared. */
    catalogue(packed: PackedCatalogue): void
    /** Called when the store is ready for use. */
    prepared(): void
    /** Switches to the certificate of this version; false if the previous one stays. */
    certificate(version: string): Promise<boolean> | boolean
    /** Records the load of a serve thread, for threads whose work can wait. */
    live(thread: string, load: LiveLoad): void
    /** The interface description as JSON; null if nothing is served. */
    describe(): string | null
    /** Sets whether somebody watches requests on the console. */
    watched(isWatched: boolean): void
    /** Ends the thread once its running work is done. May be called again with less grace. */
    drain(graceMs: number): void
  }
  readonly transcripts: TranscriptClient
  readonly captures: Pick<RunningCaptures, 'set' | 'freeBytes'>
  readonly health: Pick<EndpointHealth, 'apply'>
}

/**
 * The parts that handlers of model requests use: for answers, summaries, counts, and streams read again. Types only.
 */
import type { Gateway } from '../pipeline/respond.ts'
import type { Summaries } from '../pipeline/summaries.ts'
import type { Transcripts } from '../storage/transcripts/transcripts.ts'
import type { StreamDeps } from './event-sink.ts'
import type { ListingDeps } from './models/models.ts'
import type { ProofDeps } from './proof.ts'
import type { DataRegionOf } from './request-facts.ts'
import type { FrameSeal } from './unmasked-frames.ts'

export interface InferenceParts {
  readonly gateway: Gateway
  readonly summaries: Pick<Summaries, 'seal' | 'inputTokens'>
  readonly stream: StreamDeps
  readonly transcripts: Transcripts
  /** How long an answer with an idempotency key is kept after its end. */
  readonly replayKeptMs: number
  /** The restrictions by guardrails on all requests of a caller; null: there are none. */
  readonly restrictionsOf: ListingDeps['restrictionsOf']
  /** Seals frames of transcripts that have originals of masked values. */
  readonly frameSeal: FrameSeal
  /** How long a stream can be read after its end. */
  readonly resumeWindowMs: number
  /** Finds the region in which the data of a request must stay, from its Host header. */
  readonly dataRegionOf: DataRegionOf
  readonly proofs: ProofDeps
}

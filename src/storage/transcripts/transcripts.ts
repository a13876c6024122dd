/**
 * Transcripts: the stored events of resumable streams, readable from any event onwards, and answers under a name,
 * readable from their beginning: those of requests with an idempotency key, and those of the response cache. This is
 * the contract of their stores, for the writer and the readers of a transcript. The main thread has the transcripts, so
 * that a reader may use any serve thread.
 */

/** A message to the writer of a stream. */
export type TranscriptNotice =
  /** The stream has a reader again. A client that reads nothing any more must not block the stream. */
  | 'read'
  /** The stream had no reader for a whole window: it is abandoned. */
  | 'unread'
  /** The stream did not fit: it is no longer stored. */
  | 'dropped'

/** A slice of the frames of a stream. */
export interface FramesPart {
  readonly kind: 'frames'
  readonly bytes: Uint8Array
  /** Number of frames that this part completes. */
  readonly count: number
  /** False: it ends within a frame, which the next part continues. */
  readonly endsFrame: boolean
  /** True for the last part. */
  readonly isEnd: boolean
}

/** The answer to one read. */
export type TranscriptPart =
  /** A slice of the frames, which may be empty. */
  | FramesPart
  /** This key has no such stream. */
  | { readonly kind: 'unknown' }
  /** The stream has reached its reader limit. */
  | { readonly kind: 'busy' }
  /** The stream was dropped because there was no room. */
  | { readonly kind: 'dropped' }
  /** The stream has ended before the requested event. `last`: number of its last event. */
  | { readonly kind: 'beyond'; readonly last: number }
  /** There will be no more frames, although the stream has not ended. */
  | { readonly kind: 'cut' }

/** Writes one stream. */
export interface TranscriptWriter {
  /** Adds `count` whole frames. */
  add(frames: string, count: number): void
  /** The stream has ended. `isKept`: false if only its current readers may have it. Default: true. */
  end(isKept?: boolean): void
  /** The client that sent the request has left. */
  leave(): void
  /** Deletes the stream. */
  forget(): void
}

/** Selects the part of a stream that a reader wants. */
export interface TranscriptQuestion {
  readonly id: string
  /** The owner: hash of the reader's API key, or of its workspace for an answer of the response cache. */
  readonly keyHash: string
  /** Number of the last event that the reader has; -1: none. */
  readonly after: number
  /** True for an answer under a name. */
  readonly isClaimed?: true
}

/** Claims a name: the first claim writes the answer under it, and later ones read that answer. */
export interface TranscriptClaim {
  /** A new id, which becomes the id of the transcript if this claim is the first. */
  readonly id: string
  /**
   * The owner: hash of the API key, or of the workspace for an answer of the response cache. Each has names of its own,
   * and loses its own oldest answers first.
   */
  readonly keyHash: string
  /** Without secrets: other instances see it. */
  readonly name: string
  /** The digest of the request. A later claim with another digest is a mistake of the client. */
  readonly digest: string
  /** How long it runs on without a reader. */
  readonly unreadMs: number
  /** How long it is kept after its end. */
  readonly keptMs: number
  /** An answer that ended before this time (wall clock) is replaced; a running one is not. Absent: none is. */
  readonly replacesBeforeMs?: number
  /** Bytes of all transcripts of its owner. Absent: as for resumable streams. */
  readonly maxBytes?: number
}

/** The transcript of an earlier request with the same name, and the digest of that request. */
export interface EarlierClaim {
  readonly id: string
  readonly digest: string
  /** Wall clock of its end; null: it runs. */
  readonly endedMs: number | null
}

/** One reader of a stream. */
export interface TranscriptReader {
  /** Requests the next part, after the last one was read. The first part comes without a call. */
  next(): void
  close(): void
}

/** Maximum readers of one stream in an instance: a client, and some that replace a broken connection. */
export const READERS_MAX = 4
/** Maximum readers of one answer under a name in an instance: all clients that send the same request. */
export const CLAIM_READERS_MAX = 1_000

/** True if another request was first. */
export function isEarlierClaim(result: TranscriptWriter | EarlierClaim): result is EarlierClaim {
  return 'digest' in result
}

/** Store of transcripts. Writers and readers are called back in a later turn of the event loop. */
export interface Transcripts {
  /** Starts a transcript; its id is new. */
  open(id: string, keyHash: string, onNotice: (notice: TranscriptNotice) => void): TranscriptWriter
  /**
   * Starts a transcript under a name, unless there is one. One claim of all threads and instances gets the writer; without
   * Redis, or while it is unavailable, one claim of each instance. Rejects with GatewayError `service_unavailable` if the
   * main thread is gone.
   */
  claim(
    claim: TranscriptClaim,
    onNotice: (notice: TranscriptNotice) => void,
  ): Promise<TranscriptWriter | EarlierClaim>
  /** Starts to read. A part that is not `frames`, or is the end, is the last one. */
  read(question: TranscriptQuestion, onPart: (part: TranscriptPart) => void): TranscriptReader
}

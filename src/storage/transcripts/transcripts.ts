/**
 * Transcripts: the stored events of resumable streams, readable from any event onwards. This is the contract of their
 * stores, for the writer and the readers of a stream. The main thread has the transcripts, so that a reader may use any
 * serve thread.
 */

/** A message to the writer of a stream. */
export type TranscriptNotice =
  /** The stream has a reader again. A client that reads nothing any more must not block the stream. */
  | 'read'
  /** The stream had no reader for a whole window: it is abandoned. */
  | 'unread'
  /** There was no room for the stream: nothing of it is stored any more. */
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
  /** The stream has ended. */
  end(): void
  /** The client that sent the request has left. */
  leave(): void
  /** Deletes the stream. */
  forget(): void
}

/** Selects the part of a stream that a reader wants. */
export interface TranscriptQuestion {
  readonly id: string
  /** Hash of the reader's API key. */
  readonly keyHash: string
  /** Number of the last event that the reader has; -1: none. */
  readonly after: number
}

/** One reader of a stream. */
export interface TranscriptReader {
  /** Requests the next part, after the last one was read. The first part comes without a call. */
  next(): void
  close(): void
}

/** Maximum readers of one stream in an instance: a client, and some that replace a broken connection. */
export const READERS_MAX = 4

/** Store of transcripts. Writers and readers are called back in a later turn of the event loop. */
export interface Transcripts {
  /** Starts a transcript; its id is new. */
  open(id: string, keyHash: string, onNotice: (notice: TranscriptNotice) => void): TranscriptWriter
  /** Starts to read. A part that is not `frames`, or is the end, is the last one. */
  read(question: TranscriptQuestion, onPart: (part: TranscriptPart) => void): TranscriptReader
}

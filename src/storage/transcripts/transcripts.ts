/**
 * Transcripts: the stored events of resumable streams, readable from any event onwards. The contract of their stores,
 * for the writer of a stream and for its readers. The transcripts are in the main thread, so that a reader may use any
 * serve thread.
 */

/** A message to the writer of a stream. */
export type TranscriptNotice =
  /** Somebody reads it again: a reader that takes nothing any more must not hold the stream up. */
  | 'read'
  /** Nobody has read it for a whole window: the stream is left. */
  | 'unread'
  /** There was no room for it: nothing of it is kept any more. */
  | 'dropped'

/** A slice of the frames of a stream. */
export interface FramesPart {
  readonly kind: 'frames'
  readonly bytes: Uint8Array
  /** Frames that are whole with it. */
  readonly count: number
  /** False: it ends within a frame, and the next part goes on with that one. */
  readonly endsFrame: boolean
  /** There are no more. */
  readonly isEnd: boolean
}

/** The part that a reader gets for one question. */
export type TranscriptPart =
  /** A slice of the frames, maybe an empty one. */
  | FramesPart
  /** No such stream of this key. */
  | { readonly kind: 'unknown' }
  /** It has as many readers as it may have. */
  | { readonly kind: 'busy' }
  /** It had no room. */
  | { readonly kind: 'dropped' }
  /** The stream has ended before the event that was asked for. `last`: number of its last event. */
  | { readonly kind: 'beyond'; readonly last: number }
  /** There will be no more, although the stream has not ended. */
  | { readonly kind: 'cut' }

/** The end of a stream that writes. */
export interface TranscriptWriter {
  /** Adds whole frames of so many events. */
  add(frames: string, count: number): void
  /** The stream has ended. */
  end(): void
  /** The client that asked for the stream has left. */
  leave(): void
  /** Keeps nothing of it. */
  forget(): void
}

/** Names the part of a stream that a reader wants. */
export interface TranscriptQuestion {
  readonly id: string
  /** Of the key that asks. */
  readonly keyHash: string
  /** Number of the last event that the reader has; -1: none. */
  readonly after: number
}

/** One reader of a stream. */
export interface TranscriptReader {
  /** Asks for the next part, once the last one was taken. The first one comes unasked. */
  next(): void
  close(): void
}

/** Readers that one stream may have at once in an instance: a client and some that replace a broken connection. */
export const READERS_MAX = 4

/** Store of transcripts. Writers and readers are called back in a later turn of the event loop. */
export interface Transcripts {
  /** Begins a transcript; its id is new. */
  open(id: string, keyHash: string, onNotice: (notice: TranscriptNotice) => void): TranscriptWriter
  /** Begins to read. After a part that is not `frames`, or is the end, no other one comes. */
  read(question: TranscriptQuestion, onPart: (part: TranscriptPart) => void): TranscriptReader
}

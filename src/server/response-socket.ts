/** The write side of a client connection. Types only, so that replies are independent of the HTTP library. */
import type { MoreChunks } from '../api/operation.ts'
import type { PausableSocket } from './body.ts'

/**
 * How the chunks of a stream relate to its frames. `events`: each chunk ends with a frame, and a comment may
 * follow it. `slices`: a chunk may end within a frame. `bytes`: there are no frames.
 */
export type StreamForm = 'events' | 'slices' | 'bytes'

/**
 * Takes the answer to one request. Every call is safe after the client has gone; it then does nothing.
 * Header names and values, and the status line, must have been made safe by the caller.
 */
export interface ResponseSocket extends PausableSocket {
  /** Address of the client's connection, as text. */
  readonly address: string
  /** Nothing more can be written: the client is gone, or the answer is complete. */
  readonly dead: boolean
  /** Writes the whole answer. `headers` alternates names and values; `close` ends the connection after it. */
  send(status: string, headers: readonly string[], body: string | Buffer, close: boolean): void
  /** Writes an answer to HEAD: `length` is the body's had it been a GET, null when that is not known. */
  sendHead(status: string, headers: readonly string[], length: number | null, close: boolean): void
  /** Begins an answer of unknown length with its first chunk. False: the reader is slow. */
  open(
    status: string,
    headers: readonly string[],
    chunk: string | Buffer,
    close: boolean,
    form: StreamForm,
  ): boolean
  /**
   * Writes one more chunk; bytes are copied. `endsFrame` counts for slices only. False: the reader is slow, but the
   * chunk was taken.
   */
  write(chunk: string | Buffer, endsFrame?: boolean): boolean
  /**
   * Writes the last chunk of an opened answer. `more` has those that follow it, each made when the one before it has
   * left.
   */
  end(chunk: string | Buffer, more?: MoreChunks): void
  /**
   * Sets what to call when a slow reader has taken something: with true when nothing is waiting any more, with false
   * when more is. One callback; a later call replaces it. `hasDeadline`: the caller aborts if a reader takes nothing
   * for long; otherwise the front does, after some 10 s.
   */
  onProgress(callback: (drained: boolean) => void, hasDeadline?: boolean): void
  /** Drops the connection at once; the request then ends as if the client had gone. */
  abort(): void
}

/** Counts the streams and bytes that answers hold in their thread. */
export interface SocketObserver {
  countStream(change: 1 | -1): void
  /**
   * Bytes that are kept for a slow reader, also of a complete answer; negative when they are let go. `keyHash`: of the
   * key that asked; null: none is known.
   */
  hold(bytes: number, keyHash: string | null): void
  /** An answer is complete, and has not left the process yet. */
  leaving(): void
}

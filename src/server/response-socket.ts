/** The write side of a client connection. Types only, so that replies are independent of the HTTP library. */
import type { MoreChunks } from '../api/operation.ts'
import type { Holder } from '../base/fairness/held-share.ts'
import type { PausableSocket } from './body.ts'

/**
 * The relation of a stream's chunks to its frames. `events`: each chunk ends with a frame, and a comment may follow it.
 * `slices`: a chunk may end within a frame. `bytes`: there are no frames.
 */
export type StreamForm = 'events' | 'slices' | 'bytes'

/**
 * Receives the answer to one request. Every call is safe after the client has left; it then does nothing. The caller
 * must have made header names and values, and the status line, safe.
 */
export interface ResponseSocket extends PausableSocket {
  /** Address of the client's connection, as text. */
  readonly address: string
  /** True if nothing more can be written: the client has left, or the answer is complete. */
  readonly isEnded: boolean
  /** Writes the whole answer. `headers` alternates names and values; `close` ends the connection after it. */
  send(status: string, headers: readonly string[], body: string | Buffer, close: boolean): void
  /** Writes an answer to HEAD. `length`: the body's length in the answer to GET; null if unknown. */
  sendHead(status: string, headers: readonly string[], length: number | null, close: boolean): void
  /** Begins an answer of unknown length with its first chunk. False if the reader is slow. */
  open(
    status: string,
    headers: readonly string[],
    chunk: string | Buffer,
    close: boolean,
    form: StreamForm,
  ): boolean
  /**
   * Writes one more chunk, whose bytes are copied. `endsFrame` matters only for slices. Returns false if the reader is
   * slow; the chunk was accepted anyway.
   */
  write(chunk: string | Buffer, endsFrame?: boolean): boolean
  /**
   * Writes the last chunk of an opened answer. `more` supplies the chunks that follow it, each created when the one
   * before has been sent.
   */
  end(chunk: string | Buffer, more?: MoreChunks): void
  /**
   * Sets the callback for a slow reader that has read something: called with true if nothing is waiting any more,
   * otherwise with false. A later call replaces it. `hasDeadline`: the caller aborts if a reader reads nothing for a
   * long time; otherwise the front does, after about 10 s.
   */
  onProgress(callback: (isDrained: boolean) => void, hasDeadline?: boolean): void
  /** Drops the connection immediately; the request then ends as if the client had left. */
  abort(): void
  /**
   * Drops the connection, even after a complete answer. Called within the callback of a chunk, it is the only way to
   * end the callbacks for the chunks that the HTTP library has already read.
   */
  cutOff(): void
}

/** Counts the streams and bytes that answers hold in their thread. */
export interface SocketObserver {
  countStream(change: 1 | -1): void
  /**
   * Bytes that are kept for a slow reader, even of a complete answer, or of a message that is not a request yet; a
   * negative number frees them. `key`: the request's key; null if none is known.
   */
  countUnread(bytes: number, key: Holder | null): void
  /** Called when an answer is complete but has not left the process yet. */
  leaving(): void
}

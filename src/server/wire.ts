/** What an answer is written to. Types only, so that nothing but `http.ts` has to know the HTTP library. */

/**
 * The answering side of one request. Every call is safe after the client has gone; it then does nothing.
 * Header names and values, and the status line, must have been made safe by the caller.
 */
export interface Wire {
  /** Nothing more can be written: the client is gone, or the answer is complete. */
  readonly dead: boolean
  /** The whole answer at once. `headers` alternates names and values; `close` ends the connection after it. */
  send(status: string, headers: readonly string[], body: string, close: boolean): void
  /** Begins an answer of unknown length with its first chunk. False: the reader is slow. */
  open(status: string, headers: readonly string[], chunk: string | Buffer, close: boolean): boolean
  /** One more chunk of an opened answer; bytes are copied. False: the reader is slow, but the chunk was taken. */
  write(chunk: string | Buffer): boolean
  /** The last chunk of an opened answer. */
  end(chunk: string): void
  /**
   * What to call when a slow reader has taken something: with true when nothing is waiting any more, with false
   * when more is. One callback; a later call replaces it.
   */
  onProgress(callback: (drained: boolean) => void): void
  /** Drops the connection at once; the request then ends as if the client had gone. */
  abort(): void
}

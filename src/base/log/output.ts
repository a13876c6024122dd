/**
 * Log output: writes lines to an open file on a thread of libuv's pool. Lines that cannot be written stay in memory, up
 * to a limit, and are tried again, so a full disk does not stop the gateway. Leaf.
 */
import { fstatSync, write } from 'node:fs'

/** Writes to a pipe are atomic up to this size (PIPE_BUF), so that lines of several threads never mix. */
const PIPE_WRITE_MAX_BYTES = 4096
/** Size of one write to a file, which is atomic at any size; each write wakes a thread of the pool. */
const FILE_WRITE_MAX_BYTES = 64 * 1024
/** Maximum time that a line waits for others. */
const FLUSH_INTERVAL_MS = 100
/** Limit for unwritten lines, about 25,000; further ones are dropped and counted. */
const WAITING_MAX_BYTES = 8 * 1024 * 1024
/** Delay before the next try after a slow reader. */
const SLOW_READER_RETRY_MS = 100
/** Delay before the next try after any other error, such as a full disk. */
const FAILURE_RETRY_MS = 1_000
/** Maximum bytes in UTF-8 of one unit of a text's length: a character of four bytes counts as two. */
const CHAR_MAX_BYTES = 3
/** Maximum time that `close` waits for a reader that does not read. */
const CLOSE_TIMEOUT_MS = 500

/** Writes lines to one file, in batches. */
export class LogOutput {
  readonly #file: number
  readonly #writeMaxBytes: number
  readonly #onLost: (lines: number) => void
  /** Runs only while a line waits, so that it does not wake a thread without lines. */
  readonly #flushing: NodeJS.Timeout
  #isFlushing = true
  /** The next batch. Lines become bytes at once; as text, each would keep alive the strings that it was built from. */
  #batch: Buffer
  #batchBytes = 0
  #lineCount = 0
  /** Batches in the order in which they are written. */
  readonly #waiting: Buffer[] = []
  #waitingBytes = 0
  #lostLines = 0
  /** True while a batch is being written or waits for another try. */
  #isBusy = false
  #retry: NodeJS.Timeout | undefined
  #closing: PromiseWithResolvers<void> | null = null

  /** @param onLost gets the number of dropped lines once all others are written; `file` is a file descriptor */
  constructor(file: number, onLost: (lines: number) => void) {
    this.#file = file
    this.#writeMaxBytes = fstatSync(file).isFile() ? FILE_WRITE_MAX_BYTES : PIPE_WRITE_MAX_BYTES
    this.#batch = Buffer.allocUnsafeSlow(this.#writeMaxBytes)
    this.#onLost = onLost
    this.#flushing = setTimeout(() => {
      this.#isFlushing = false
      this.flush()
    }, FLUSH_INTERVAL_MS).unref()
  }

  /** Adds the line to the next batch. Hot path. */
  write(line: string): void {
    if (line.length * CHAR_MAX_BYTES > this.#batch.length - this.#batchBytes && !this.#makeRoom(line)) return
    this.#batchBytes += this.#batch.write(line, this.#batchBytes)
    this.#lineCount++
    if (this.#isFlushing) return
    this.#isFlushing = true
    this.#flushing.refresh()
  }

  /** Starts to write the batch; returns before it is written. */
  flush(): void {
    if (this.#lineCount === 0) return
    if (this.#waitingBytes + this.#batchBytes > WAITING_MAX_BYTES) this.#lostLines += this.#lineCount
    else this.#wait(Buffer.copyBytesFrom(this.#batch, 0, this.#batchBytes))
    this.#batchBytes = 0
    this.#lineCount = 0
    if (!this.#isBusy) this.#next()
  }

  /**
   * Starts to write the batch if the line does not fit. Returns false for a line longer than any batch: it waits alone,
   * or is lost.
   */
  #makeRoom(line: string): boolean {
    const bytes = Buffer.byteLength(line)
    if (bytes <= this.#batch.length - this.#batchBytes) return true
    this.flush()
    if (bytes <= this.#batch.length) return true
    if (this.#waitingBytes + bytes > WAITING_MAX_BYTES) this.#lostLines++
    else this.#wait(Buffer.from(line))
    if (!this.#isBusy) this.#next()
    return false
  }

  #wait(batch: Buffer): void {
    this.#waiting.push(batch)
    this.#waitingBytes += batch.length
  }

  /** Resolves when all lines are written, after half a second, or at once if writing fails. Never rejects. */
  close(): Promise<void> {
    if (this.#closing !== null) return this.#closing.promise
    clearTimeout(this.#flushing)
    this.flush()
    const closing = Promise.withResolvers<void>()
    this.#closing = closing
    if (!this.#isBusy) closing.resolve()
    else if (this.#retry !== undefined) this.#next()
    const late = setTimeout(closing.resolve, CLOSE_TIMEOUT_MS)
    return closing.promise.finally(() => clearTimeout(late))
  }

  #next(): void {
    clearTimeout(this.#retry)
    this.#retry = undefined
    const [piece] = this.#waiting
    this.#isBusy = piece !== undefined
    if (piece === undefined) {
      this.#whenWritten()
      return
    }
    write(this.#file, piece, (error, bytesWritten) => {
      if (error !== null) {
        this.#failed(error)
        return
      }
      this.#waitingBytes -= bytesWritten
      if (bytesWritten === piece.length) this.#waiting.shift()
      else this.#waiting[0] = piece.subarray(bytesWritten)
      this.#next()
    })
  }

  #whenWritten(): void {
    const lostLines = this.#lostLines
    this.#lostLines = 0
    if (lostLines > 0) this.#onLost(lostLines)
    if (!this.#isBusy) this.#closing?.resolve()
  }

  #failed(error: NodeJS.ErrnoException): void {
    const isSlowReader = error.code === 'EAGAIN'
    if (!isSlowReader) this.#closing?.resolve()
    // The timer does not keep the process alive; `close` waits for it.
    this.#retry = setTimeout(
      () => this.#next(),
      isSlowReader ? SLOW_READER_RETRY_MS : FAILURE_RETRY_MS,
    ).unref()
  }
}

/**
 * An open file for the lines of a log, written by another thread than the one that logs. What cannot be written
 * waits, up to a bound, and ends nothing: a gateway does not stop because its disk is full. Leaf.
 */
import { fstatSync, write } from 'node:fs'

/** Writes to a pipe are whole up to this size (PIPE_BUF), so that lines of several threads never mix. */
const PIPE_WRITE_MAX_BYTES = 4096
/** Appending to a file is whole at any size; this much leaves at once. */
const FILE_WRITE_MAX_BYTES = 8 * 1024
/** How long a line may wait for others. Nobody reads faster. */
const FLUSH_MS = 100
/** What may wait for a reader that does not read; more is left out, and counted. About 25,000 lines. */
const WAITING_MAX_BYTES = 8 * 1024 * 1024
/** A reader that was too slow is given this long before the next try. */
const SLOW_READER_MS = 100
/** A full disk is tried again after this. */
const FAILED_MS = 1_000
/** How long the end waits for a reader that does not read. */
const CLOSE_MS = 500

export class LogOutput {
  readonly #file: number
  readonly #writeMaxBytes: number
  readonly #onLost: (lines: number) => void
  readonly #flushing: NodeJS.Timeout
  /** Lines that leave together. */
  #lines = ''
  #linesBytes = 0
  #lineCount = 0
  /** What has left, to be written one after the other. */
  readonly #waiting: Buffer[] = []
  #waitingBytes = 0
  #lost = 0
  /** Whether something is being written, or will be tried again. */
  #busy = false
  #retry: NodeJS.Timeout | undefined
  #closing: PromiseWithResolvers<void> | null = null

  /** @param onLost hears how many lines were left out, once there is room again; `file` is a file descriptor */
  constructor(file: number, onLost: (lines: number) => void) {
    this.#file = file
    this.#writeMaxBytes = fstatSync(file).isFile() ? FILE_WRITE_MAX_BYTES : PIPE_WRITE_MAX_BYTES
    this.#onLost = onLost
    this.#flushing = setInterval(() => this.flush(), FLUSH_MS).unref()
  }

  /** The line leaves a little later, with others. Hot path. */
  write(line: string): void {
    const bytes = Buffer.byteLength(line)
    if (this.#linesBytes + bytes > this.#writeMaxBytes) this.flush()
    this.#lines += line
    this.#linesBytes += bytes
    this.#lineCount++
  }

  /** What was said so far leaves now; it does not wait until it is written. */
  flush(): void {
    if (this.#lineCount === 0) return
    if (this.#waitingBytes + this.#linesBytes > WAITING_MAX_BYTES) this.#lost += this.#lineCount
    else {
      this.#waiting.push(Buffer.from(this.#lines))
      this.#waitingBytes += this.#linesBytes
    }
    this.#lines = ''
    this.#linesBytes = 0
    this.#lineCount = 0
    if (!this.#busy) this.#next()
  }

  /** Resolves when all is written, or after half a second, or at once when it cannot be: never later, never badly. */
  close(): Promise<void> {
    if (this.#closing !== null) return this.#closing.promise
    clearInterval(this.#flushing)
    this.flush()
    const closing = Promise.withResolvers<void>()
    this.#closing = closing
    if (!this.#busy) closing.resolve()
    else if (this.#retry !== undefined) this.#next()
    const late = setTimeout(closing.resolve, CLOSE_MS)
    return closing.promise.finally(() => clearTimeout(late))
  }

  #next(): void {
    clearTimeout(this.#retry)
    this.#retry = undefined
    const [piece] = this.#waiting
    this.#busy = piece !== undefined
    if (piece === undefined) {
      this.#rest()
      return
    }
    write(this.#file, piece, (error, written) => {
      if (error !== null) {
        this.#failed(error)
        return
      }
      this.#waitingBytes -= written
      if (written === piece.length) this.#waiting.shift()
      else this.#waiting[0] = piece.subarray(written)
      this.#next()
    })
  }

  /** All is written. */
  #rest(): void {
    const lost = this.#lost
    this.#lost = 0
    if (lost > 0) this.#onLost(lost)
    if (!this.#busy) this.#closing?.resolve()
  }

  #failed(error: NodeJS.ErrnoException): void {
    const slowReader = error.code === 'EAGAIN'
    if (!slowReader) this.#closing?.resolve()
    // Not a reason to stay alive: whoever ends has waited for it in `close`.
    this.#retry = setTimeout(() => this.#next(), slowReader ? SLOW_READER_MS : FAILED_MS).unref()
  }
}

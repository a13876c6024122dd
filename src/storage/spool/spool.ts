/**
 * The spool, a journal of usage records: each serve thread writes a record to its file before the caller sees the end
 * of the answer. Written bytes survive a kill of the process, but not a power cut; the supervisor reads them and ships
 * the records to the Store. Hot path: one JSON text for each exchange, and one system call for all records of a turn of
 * the event loop; no sync. The format of a line is in `usage-line.ts`.
 *
 * Files are named `<writer>.<sequence>.jsonl`; each spool has its own writer name. A file is complete once a later
 * sequence exists; the last file, once its thread has ended.
 */
import {
  appendFileSync,
  closeSync,
  fstatSync,
  openSync,
  readdirSync,
  readSync,
  unlinkSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import type { Clock, Timer } from '../../base/clock.ts'
import { randomText } from '../../base/ids.ts'
import type { Log } from '../../base/log/log.ts'
import type { UsageRecord } from '../usage.ts'
import { lineOf, type UsageLine } from './usage-line.ts'

/** The writing side, one per serve thread. */
export interface UsageSpool {
  /**
   * Adds the record to those of this turn of the event loop. Never throws. If the disk refuses the record, it is
   * written later.
   */
  append(record: UsageRecord): void
  /** The line of a record, if it is one of the latest two thousand; otherwise null. */
  find(id: string): string | null
  /** Resolves when all records so far are written, and so survive a kill; null: they already are. Never rejects. */
  whenWritten(): Promise<void> | null
  /** Writes the waiting records and closes the file. */
  close(): void
}

export interface SpoolOptions {
  readonly clock: Clock
  readonly log: Log
  /** Called for each record that is lost because the disk refused it for too long. */
  readonly onLost: (line: string) => void
  /** Called with the number of records that wait in memory because the disk refuses them. Default: no call. */
  readonly onWaiting?: (records: number) => void
  /** Unique name of letters and digits by which the caller recognizes the files. Default: a random name. */
  readonly writer?: string
  /** Size at which a new file begins, so that shipped files can be deleted. Default: 4 MiB, about 8,000 records. */
  readonly fileMaxBytes?: number
}

const FILE_MAX_BYTES = 4 * 1024 * 1024
/** A buffer for the latest records, half a KB each. The garbage collector would copy strings. */
const LATEST_BYTES = 1024 * 1024
/** Maximum UTF-8 bytes of a UTF-16 unit. */
const UNIT_MAX_BYTES = 3
/** Maximum of records in memory while the disk refuses them: a few megabytes. */
const WAITING_RECORDS_MAX = 1_000
const RETRY_DELAY_MS = 1_000
const NEWLINE = 10

/**
 * Opens a spool in the folder.
 * @throws the error of the file system if the first file cannot be created.
 */
export function openSpool(folder: string, options: SpoolOptions): UsageSpool {
  return new FileSpool(folder, options)
}

class FileSpool implements UsageSpool {
  readonly #folder: string
  readonly #options: SpoolOptions
  readonly #writer: string
  /** Lines with their line ends. The byte before the first one is also a line end. */
  readonly #latest = Buffer.alloc(LATEST_BYTES, NEWLINE)
  /** The lines of this turn begin at this byte and end at `#end`. */
  #groupStart = 1
  #end = 1
  /** Number of lines in this turn. */
  #groupLines = 0
  /** Lines that the disk has refused, without their line ends. */
  readonly #waiting: string[] = []
  /** Set if a caller waits until the lines of this turn are written. */
  #groupEnd: PromiseWithResolvers<void> | null = null
  #sequence = 0
  #file: number
  #size = 0
  #isClosed = false
  /** True after a partial write. The next line then begins with a newline, so that only the partial line is invalid. */
  #isTorn = false
  /** The error of the last failed write. */
  #lastError: unknown = null
  #retry: Timer | null = null

  constructor(folder: string, options: SpoolOptions) {
    this.#folder = folder
    this.#options = options
    this.#writer = options.writer ?? randomText(12)
    this.#file = this.#open()
  }

  append(record: UsageRecord): void {
    const line = lineOf(record)
    // The number of a closed file descriptor may already belong to another file.
    if (this.#isClosed) {
      this.#options.onLost(line)
      return
    }
    const lineMaxBytes = line.length * UNIT_MAX_BYTES + 1
    if (this.#end + lineMaxBytes > LATEST_BYTES) this.#begin()
    if (this.#end + lineMaxBytes > LATEST_BYTES) {
      if (this.#waiting.length > 0 || !this.#writeAlone(line)) this.#keepWaiting(line)
      return
    }
    if (this.#groupLines++ === 0) setImmediate(this.#writeGroup)
    this.#end += this.#latest.write(line, this.#end)
    this.#latest[this.#end++] = NEWLINE
  }

  find(id: string): string | null {
    const bytes = this.#latest
    const index = bytes.lastIndexOf(`{"id":${JSON.stringify(id)},`)
    return index === -1 ? null : bytes.toString('utf8', index, bytes.indexOf(NEWLINE, index))
  }

  whenWritten(): Promise<void> | null {
    if (this.#groupLines === 0) return null
    this.#groupEnd ??= Promise.withResolvers()
    return this.#groupEnd.promise
  }

  close(): void {
    if (this.#isClosed) return
    this.#writeGroup()
    this.#isClosed = true
    this.#flush()
    this.#retry?.cancel()
    for (const line of this.#waiting.splice(0)) this.#options.onLost(line)
    closeSync(this.#file)
  }

  #open(): number {
    const name = `${this.#writer}.${String(this.#sequence).padStart(6, '0')}.jsonl`
    return openSync(join(this.#folder, name), 'a', 0o600)
  }

  /** Starts again at the beginning of the buffer and overwrites the oldest lines. */
  #begin(): void {
    this.#writeGroup()
    this.#groupStart = 1
    this.#end = 1
  }

  /** After `close` nothing waits to be written. */
  readonly #writeGroup = (): void => {
    if (this.#groupLines === 0) return
    const start = this.#groupStart
    this.#groupStart = this.#end
    this.#groupLines = 0
    if (this.#waiting.length > 0) this.#flush()
    const writtenBytes = this.#waiting.length > 0 ? 0 : this.#write(this.#latest, start, this.#end)
    if (writtenBytes < this.#end - start) {
      const unwrittenLines = this.#latest
        .toString('utf8', start, this.#end)
        .split('\n')
        .slice(wholeLines(this.#latest, start, writtenBytes), -1)
      for (const line of unwrittenLines) this.#keepWaiting(line)
    }
    this.#groupEnd?.resolve()
    this.#groupEnd = null
  }

  /** True if the line is in the file. */
  #writeAlone(line: string): boolean {
    const bytes = Buffer.from(`\n${line}\n`)
    return this.#write(bytes, 1, bytes.length) === bytes.length - 1
  }

  /** Returns the number of bytes that were written. The byte before `start` is a line end. */
  #write(bytes: Buffer, start: number, end: number): number {
    const writeStart = this.#isTorn ? start - 1 : start
    let length: number
    try {
      length = writeSync(this.#file, bytes, writeStart, end - writeStart)
    } catch (error) {
      this.#lastError = error
      return 0
    }
    this.#size += length
    this.#isTorn = length < end - writeStart
    if (this.#isTorn) this.#lastError = new Error('only a part was written')
    if (this.#size >= (this.#options.fileMaxBytes ?? FILE_MAX_BYTES)) this.#rotate()
    return Math.max(0, length - (start - writeStart))
  }

  /** Begins a new file. It exists before the last write to the old one ends, which marks the old one as complete. */
  #rotate(): void {
    this.#sequence++
    let next: number
    try {
      next = this.#open()
    } catch {
      // There is no space for another file, so the old one takes as many bytes again.
      this.#sequence--
      this.#size = 0
      return
    }
    closeSync(this.#file)
    this.#file = next
    this.#size = 0
    this.#isTorn = false
  }

  #keepWaiting(line: string): void {
    if (this.#waiting.length === 0) {
      this.#options.log.fault(
        'ledger',
        'cannot write usage records; they are kept in memory',
        this.#lastError,
      )
    }
    this.#waiting.push(line)
    if (this.#waiting.length > WAITING_RECORDS_MAX) {
      const oldest = this.#waiting.shift()
      if (oldest !== undefined) this.#options.onLost(oldest)
    }
    this.#options.onWaiting?.(this.#waiting.length)
    this.#retry ??= this.#options.clock.after(RETRY_DELAY_MS, this.#retryWrites)
  }

  readonly #retryWrites = (): void => {
    this.#retry = null
    this.#flush()
    if (this.#waiting.length > 0) this.#retry = this.#options.clock.after(RETRY_DELAY_MS, this.#retryWrites)
  }

  #flush(): void {
    for (let line = this.#waiting[0]; line !== undefined; line = this.#waiting[0]) {
      if (!this.#writeAlone(line)) return
      this.#waiting.shift()
      this.#options.onWaiting?.(this.#waiting.length)
      if (this.#waiting.length === 0) this.#options.log.notice('ledger', 'writing usage records again')
    }
  }
}

/** Number of whole lines, with their line ends, in this many bytes. */
function wholeLines(bytes: Buffer, start: number, length: number): number {
  let lines = 0
  for (let index = start; index < start + length; index++) if (bytes[index] === NEWLINE) lines++
  return lines
}

/**
 * Bytes per read, about two thousand records. The records that a busy thread writes between two shipments become one
 * transaction, which writes each database page once. A record is far smaller, so a piece always contains a whole line.
 */
const PIECE_BYTES = 1024 * 1024
/** Replaces bytes without a line end. The reader counts it as an invalid line. */
const INVALID_LINE = 'no line end'
const FILE_NAME = /^([0-9A-Za-z]+)\.(\d{6,})\.jsonl$/

/** A file of the spool, for the reader. */
interface SpoolFile {
  readonly path: string
  readonly writer: string
  /** True if its writer has started a later file, so that this one no longer grows. */
  readonly isComplete: boolean
}

/** Lines from one read. */
export interface SpoolPiece {
  /** Whole lines as they were written, including those that a kill or a full disk left incomplete. */
  readonly lines: string
  /** Offset of the next read. */
  readonly offset: number
  /** True if no byte follows this piece. */
  readonly isLast: boolean
}

/** The spool files of a folder, oldest first. */
export function spoolFiles(folder: string): SpoolFile[] {
  const files: { path: string; writer: string; sequence: number }[] = []
  const newest = new Map<string, number>()
  for (const name of readdirSync(folder)) {
    const match = FILE_NAME.exec(name)
    if (match === null) continue
    const [, writer = ''] = match
    const sequence = Number(match[2])
    files.push({ path: join(folder, name), writer, sequence })
    newest.set(writer, Math.max(sequence, newest.get(writer) ?? 0))
  }
  return files
    .toSorted((a, b) => a.sequence - b.sequence)
    .map(({ path, writer, sequence }) => ({ path, writer, isComplete: sequence < (newest.get(writer) ?? 0) }))
}

/** Reads complete lines from `offset`, at most one piece. Null if there are none. */
export function readSpool(path: string, offset: number): SpoolPiece | null {
  const file = openSync(path, 'r')
  try {
    const size = fstatSync(file).size
    if (size <= offset) return null
    const buffer = Buffer.allocUnsafe(Math.min(PIECE_BYTES, size - offset))
    const length = readSync(file, buffer, 0, buffer.length, offset)
    const end = buffer.subarray(0, length).lastIndexOf(NEWLINE) + 1
    if (end === 0) {
      // A full piece without a line end is not a record. A shorter one may still become one.
      if (length < PIECE_BYTES) return null
      return { lines: INVALID_LINE, offset: offset + length, isLast: false }
    }
    const lines = buffer.toString('utf8', 0, end)
    return { lines, offset: offset + end, isLast: offset + end >= size }
  } finally {
    closeSync(file)
  }
}

/** Number of bytes after `offset`. If the writer has ended, they are an incomplete line. */
export function remainingBytes(path: string, offset: number): number {
  const file = openSync(path, 'r')
  try {
    return fstatSync(file).size - offset
  } finally {
    closeSync(file)
  }
}

const SET_ASIDE_FILE = 'set-aside.jsonl'

/**
 * Stores a record that the database refuses beside the spool folders, so that an operator can look at it.
 * @throws the error of the file system
 */
export function setAside(root: string, record: UsageLine): void {
  appendFileSync(join(root, SET_ASIDE_FILE), `${JSON.stringify(record)}\n`, { mode: 0o600, flush: true })
}

/** Deletes a file of the spool. */
export function removeSpool(path: string): void {
  unlinkSync(path)
}

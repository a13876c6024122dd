/**
 * The spool of usage records: one file per serve thread to which a record is appended before the caller sees the
 * end of its answer. What `write` has handed to the kernel survives a kill of the process (not a power cut); the
 * supervisor ships it into the Store. Hot path: one JSON text and one system call for each exchange, no sync.
 *
 * Files are named `<writer>.<sequence>.jsonl`, each spool with a writer of its own. Once a later sequence exists, an
 * earlier file is never written again; the last one is not once its thread has ended, as the supervisor tells.
 */
import { closeSync, fstatSync, openSync, readdirSync, readSync, unlinkSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import type { Clock, Timer } from '../clock.ts'
import { randomText } from '../ids.ts'
import type { Log } from '../log/log.ts'
import type { UsageRecord } from './usage.ts'

export interface UsageSpool {
  /**
   * Keeps the record: it survives a kill from here on. Never throws; a disk that refuses it is tried again later.
   * Returns it as JSON.
   */
  append(record: UsageRecord): string
  /** Writes what still waits, and closes the file. */
  close(): void
}

export interface SpoolOptions {
  readonly clock: Clock
  readonly log: Log
  /** Called for each record that had to be given up because the disk refused it for too long. */
  readonly onLost: (record: UsageRecord) => void
  /** Letters and digits, of this spool alone: whoever named it can tell its files. Default: a random name. */
  readonly writer?: string
  /** A file is left for a new one at this size, so that shipped ones can be deleted. About 5,000 records. */
  readonly fileMaxBytes?: number
}

const FILE_MAX_BYTES = 4 * 1024 * 1024
/** A record is 1 to 4 KB; a larger one takes a buffer of its own. */
const BUFFER_BYTES = 64 * 1024
/** Records kept in memory while the disk refuses them: some megabytes at most. */
const WAITING_MAX = 1_000
const RETRY_MS = 1_000
const NEWLINE = 10

/** @throws the error of the file system when the first file cannot be made. */
export function openSpool(folder: string, options: SpoolOptions): UsageSpool {
  return new FileSpool(folder, options)
}

interface Waiting {
  readonly record: UsageRecord
  /** Without its end. */
  readonly line: string
}

class FileSpool implements UsageSpool {
  readonly #folder: string
  readonly #options: SpoolOptions
  readonly #writer: string
  readonly #buffer = Buffer.allocUnsafe(BUFFER_BYTES)
  readonly #waiting: Waiting[] = []
  #sequence = 0
  #file: number
  #size = 0
  #closed = false
  /** Part of a line has reached the file; what follows begins with a newline, so that only that part is spoilt. */
  #torn = false
  /** Why the last line was not written. */
  #refusal: unknown = null
  #retry: Timer | null = null

  constructor(folder: string, options: SpoolOptions) {
    this.#folder = folder
    this.#options = options
    this.#writer = options.writer ?? randomText(12)
    this.#file = this.#open()
  }

  append(record: UsageRecord): string {
    const line = JSON.stringify(record)
    // The number of a closed file may stand for another one by now.
    if (this.#closed) this.#options.onLost(record)
    else {
      if (this.#waiting.length > 0) this.#flush()
      if (this.#waiting.length > 0 || !this.#write(line)) this.#wait({ record, line })
    }
    return line
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#flush()
    this.#retry?.cancel()
    for (const { record } of this.#waiting.splice(0)) this.#options.onLost(record)
    closeSync(this.#file)
  }

  #open(): number {
    const name = `${this.#writer}.${String(this.#sequence).padStart(6, '0')}.jsonl`
    return openSync(join(this.#folder, name), 'a', 0o600)
  }

  /** Whether the whole line is in the file. */
  #write(line: string): boolean {
    // A UTF-16 unit takes at most three bytes, and there may be a newline on both ends.
    const most = line.length * 3 + 2
    const buffer = most <= BUFFER_BYTES ? this.#buffer : Buffer.allocUnsafe(most)
    let length = 0
    if (this.#torn) buffer[length++] = NEWLINE
    length += buffer.write(line, length)
    buffer[length++] = NEWLINE
    let written: number
    try {
      written = writeSync(this.#file, buffer, 0, length)
    } catch (error) {
      this.#refusal = error
      return false
    }
    this.#size += written
    this.#torn = written < length
    if (this.#torn) this.#refusal = new Error('only a part was written')
    if (this.#size >= (this.#options.fileMaxBytes ?? FILE_MAX_BYTES)) this.#rotate()
    return written === length
  }

  /** The new file exists before the old one is left: that is how the shipper knows that the old one is complete. */
  #rotate(): void {
    this.#sequence++
    let next: number
    try {
      next = this.#open()
    } catch {
      // No room for a file more: the old one goes on for as long again.
      this.#sequence--
      this.#size = 0
      return
    }
    closeSync(this.#file)
    this.#file = next
    this.#size = 0
    this.#torn = false
  }

  #wait(waiting: Waiting): void {
    if (this.#waiting.length === 0) {
      this.#options.log.fault('usage records cannot be written, kept in memory', this.#refusal)
    }
    this.#waiting.push(waiting)
    if (this.#waiting.length > WAITING_MAX) {
      const oldest = this.#waiting.shift()
      if (oldest !== undefined) this.#options.onLost(oldest.record)
    }
    this.#retry ??= this.#options.clock.after(RETRY_MS, this.#tryAgain)
  }

  readonly #tryAgain = (): void => {
    this.#retry = null
    this.#flush()
    if (this.#waiting.length > 0) this.#retry = this.#options.clock.after(RETRY_MS, this.#tryAgain)
  }

  #flush(): void {
    while (this.#waiting[0] !== undefined && this.#write(this.#waiting[0].line)) {
      this.#waiting.shift()
      if (this.#waiting.length === 0) this.#options.log.notice('usage records are written again')
    }
  }
}

/** Some hundred records: what is in memory at once. A record is far smaller, so a piece always holds a whole line. */
const PIECE_BYTES = 256 * 1024
const NAME = /^([0-9A-Za-z]+)\.(\d{6,})\.jsonl$/

export interface SpoolFile {
  readonly path: string
  readonly writer: string
  /** Its writer has gone on to a later file, so nothing will be added. */
  readonly complete: boolean
}

/** Records of one read. */
export interface SpoolPiece {
  readonly records: readonly UsageRecord[]
  /** Lines that are no records: what a kill or a full disk left half written. */
  readonly spoilt: number
  /** Where the next read begins. */
  readonly offset: number
  /** Nothing whole is left after this piece. */
  readonly last: boolean
}

/** The spool files of a folder, oldest first. */
export function spoolFiles(folder: string): SpoolFile[] {
  const files: { path: string; writer: string; sequence: number }[] = []
  const newest = new Map<string, number>()
  for (const name of readdirSync(folder)) {
    const match = NAME.exec(name)
    if (match === null) continue
    const [, writer = ''] = match
    const sequence = Number(match[2])
    files.push({ path: join(folder, name), writer, sequence })
    newest.set(writer, Math.max(sequence, newest.get(writer) ?? 0))
  }
  return files
    .toSorted((one, other) => one.sequence - other.sequence)
    .map(({ path, writer, sequence }) => ({ path, writer, complete: sequence < (newest.get(writer) ?? 0) }))
}

/** The whole lines from `offset` on, as far as one piece goes. Null when nothing was added since. */
export function readSpool(path: string, offset: number): SpoolPiece | null {
  const file = openSync(path, 'r')
  try {
    const size = fstatSync(file).size
    if (size <= offset) return null
    const buffer = Buffer.allocUnsafe(Math.min(PIECE_BYTES, size - offset))
    const length = readSync(file, buffer, 0, buffer.length, offset)
    const end = buffer.subarray(0, length).lastIndexOf(NEWLINE) + 1
    if (end === 0) {
      // A piece without a line end is no record of ours; less than a piece may still become one.
      if (length < PIECE_BYTES) return null
      return { records: [], spoilt: 1, offset: offset + length, last: false }
    }
    const records: UsageRecord[] = []
    let spoilt = 0
    for (const line of buffer.toString('utf8', 0, end).split('\n')) {
      if (line === '') continue
      const record = recordOf(line)
      if (record === null) spoilt++
      else records.push(record)
    }
    return { records, spoilt, offset: offset + end, last: offset + end >= size }
  } finally {
    closeSync(file)
  }
}

/** Bytes after `offset`: of a file whose writer is gone, a line that was never finished. */
export function restBytes(path: string, offset: number): number {
  const file = openSync(path, 'r')
  try {
    return fstatSync(file).size - offset
  } finally {
    closeSync(file)
  }
}

export function removeSpool(path: string): void {
  unlinkSync(path)
}

const REQUIRED_TEXTS = ['id', 'createdAt', 'organizationId', 'keyHash', 'outcome', 'accounting'] as const
const REQUIRED_COUNTS = ['inputTokens', 'outputTokens', 'cost'] as const

/** Null for what the ledger could not take: one such line would hold up all others for ever. */
function recordOf(line: string): UsageRecord | null {
  let value: unknown
  try {
    value = JSON.parse(line)
  } catch {
    return null
  }
  if (typeof value !== 'object' || value === null) return null
  const fields = value as Record<string, unknown>
  const whole =
    REQUIRED_TEXTS.every(name => typeof fields[name] === 'string') &&
    REQUIRED_COUNTS.every(name => Number.isSafeInteger(fields[name]))
  return whole ? (value as UsageRecord) : null
}

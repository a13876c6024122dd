/** Reads what serve threads have spooled, piece by piece: whole lines only, however much there is. */
import { closeSync, fstatSync, openSync, readdirSync, readSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import type { UsageRecord } from './usage.ts'

/** Some hundred records: what is in memory at once. A record is far smaller, so a piece always holds a whole line. */
const PIECE_BYTES = 256 * 1024
const NEWLINE = 10
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

/** Files of an export that wait to be sent: lists them with their owners and ages. */
import { closeSync, openSync, readdirSync, readSync, statSync } from 'node:fs'
import { join } from 'node:path'

export interface WaitingFile {
  readonly name: string
  readonly bytes: number
  /** Unix milliseconds of its oldest record. */
  readonly sinceMs: number
}

/** A file of the folder. */
interface ListedFile {
  readonly name: string
  readonly bytes: number
  /** Since it was written last. */
  readonly unchangedMs: number
}

/** The file of another process that shares the folder is left alone until it has been unchanged for this long. */
const UNCHANGED_MIN_MS = 60_000
const UNCHANGED_MIN_AT_START_MS = 1_000
/** Bytes at the beginning of a file that contain the id and the time of its first record. */
const HEAD_BYTES = 4_096

/** @throws the error of the file system */
export function listFiles(folder: string): readonly ListedFile[] {
  return readdirSync(folder).flatMap(name => {
    // Another process may remove the file in the meantime.
    const stats = statSync(join(folder, name), { throwIfNoEntry: false })
    return stats === undefined ? [] : [{ name, bytes: stats.size, unchangedMs: Date.now() - stats.mtimeMs }]
  })
}

/** True for a file whose object has no name yet. */
export function isNameless(name: string): boolean {
  return name.startsWith('open-') || name.startsWith('full-')
}

/** True for a file that can be sent, because no process writes to it. */
export function isSendable({ name, unchangedMs }: ListedFile, isStart: boolean): boolean {
  if (!isNameless(name)) return name.endsWith('.jsonl')
  return unchangedMs >= (isStart ? UNCHANGED_MIN_AT_START_MS : UNCHANGED_MIN_MS)
}

/** Creation time of a file's first record, in Unix milliseconds; null: unknown. */
export function firstRecordMs(path: string): number | null {
  try {
    const file = openSync(path, 'r')
    try {
      const head = Buffer.alloc(HEAD_BYTES)
      const read = readSync(file, head, 0, HEAD_BYTES, 0)
      const created = /"created_at":"([^"]+)"/.exec(head.toString('utf8', 0, read))?.[1]
      const atMs = created === undefined ? Number.NaN : Date.parse(created)
      return Number.isNaN(atMs) ? null : atMs
    } finally {
      closeSync(file)
    }
  } catch {
    return null
  }
}

/** The id of the first record; null: there is none. */
export function firstId(body: Buffer): string | null {
  return /"id":"([\w-]+)"/.exec(body.toString('utf8', 0, HEAD_BYTES))?.[1] ?? null
}

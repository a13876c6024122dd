/**
 * Frames between the gateway and the child process of the embedded engine: one request, one reply. A frame is a JSON
 * head, followed by the bytes of all files. The child is untrusted, so `readReply` checks everything. Pure.
 */
import type { Code } from '../engine.ts'
import { filePath } from '../paths.ts'

/** A file, link or folder in the folder of files. */
export interface FileEntry {
  readonly path: string
  readonly kind: 'file' | 'folder' | 'link'
  readonly mode: number
  readonly changedMs: number
  /** Target of a link. */
  readonly target: string
  readonly content: Uint8Array
}

export interface ChildRequest {
  readonly codes: readonly Code[]
  readonly timeoutMs: number
  readonly outputBytes: number
  readonly fileBytes: number
  readonly files: number
}

export interface ChildOutput {
  readonly stdout: string
  readonly stderr: string
  readonly exitCode: number
  readonly timedOut: boolean
}

interface ChildReply {
  readonly outputs: readonly ChildOutput[]
  /** Null if there are too many files, or they are too large. */
  readonly entries: readonly FileEntry[] | null
}

const LENGTH_BYTES = 4
/** Maximum characters of a link's target. */
const MAX_TARGET_CHARS = 4_096
/** Space for an entry without its content: the path, the target of a link, and numbers. */
const MAX_ENTRY_HEAD_BYTES = 8_192

type Head = Record<string, unknown>

/** The frame in pieces, so that no content is copied. */
export function writeFrame(head: object, entries: readonly FileEntry[] | null): Uint8Array[] {
  const rows = entries?.map(({ path, kind, mode, changedMs, target, content }) => [
    path,
    kind,
    mode,
    changedMs,
    target,
    content.length,
  ])
  const text = Buffer.from(JSON.stringify({ ...head, entries: rows ?? null }))
  const length = Buffer.alloc(LENGTH_BYTES)
  length.writeUInt32BE(text.length)
  return [length, text, ...(entries?.map(({ content }) => content) ?? [])]
}

/** Maximum bytes of a reply. */
export function replyMaxBytes({ codes, outputBytes, fileBytes, files }: ChildRequest): number {
  // One byte of output is at most six characters of JSON.
  return LENGTH_BYTES + codes.length * (6 * outputBytes + 4_096) + fileBytes + files * MAX_ENTRY_HEAD_BYTES
}

/** Null if the bytes are not one complete frame. */
function readFrame(bytes: Buffer): { head: Head; entries: FileEntry[] | null } | null {
  if (bytes.length < LENGTH_BYTES) return null
  const start = LENGTH_BYTES + bytes.readUInt32BE(0)
  if (start > bytes.length) return null
  const head = objectIn(bytes.toString('utf8', LENGTH_BYTES, start))
  const rows = head?.['entries']
  if (head === null || (rows !== null && !Array.isArray(rows))) return null
  if (rows === null) return { head, entries: null }
  let position = start
  const entries: FileEntry[] = []
  for (const row of rows as unknown[]) {
    const entry = Array.isArray(row) ? entryOf(row as unknown[], bytes, position) : null
    if (entry === null) return null
    position += entry.content.length
    entries.push(entry)
  }
  return position === bytes.length ? { head, entries } : null
}

function objectIn(text: string): Head | null {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Head) : null
  } catch {
    return null
  }
}

function entryOf(
  [path, kind, mode, changedMs, target, length]: unknown[],
  bytes: Buffer,
  position: number,
): FileEntry | null {
  if (typeof path !== 'string' || filePath(path) !== path) return null
  if (kind !== 'file' && kind !== 'folder' && kind !== 'link') return null
  if (!isCount(mode) || !isCount(changedMs) || !isCount(length) || position + length > bytes.length)
    return null
  if (typeof target !== 'string' || target.length > MAX_TARGET_CHARS) return null
  if (kind !== 'file' && length > 0) return null
  return {
    path,
    kind,
    mode: mode & 0o777,
    changedMs,
    target,
    content: bytes.subarray(position, position + length),
  }
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}

/** In the child: reads the request of the gateway. */
export function readRequest(bytes: Buffer): { request: ChildRequest; entries: readonly FileEntry[] } {
  const frame = readFrame(bytes)
  if (frame === null) throw new Error('the request frame is incomplete')
  return { request: frame.head as unknown as ChildRequest, entries: frame.entries ?? [] }
}

/** The checked reply; null if it is malformed or has more outputs than the request has codes. */
export function readReply(bytes: Buffer, request: ChildRequest): ChildReply | null {
  const frame = readFrame(bytes)
  const replyOutputs = frame?.head['outputs']
  if (frame === null || !Array.isArray(replyOutputs) || replyOutputs.length > request.codes.length)
    return null
  const outputs: ChildOutput[] = []
  for (const output of replyOutputs as unknown[]) {
    if (typeof output !== 'object' || output === null) return null
    const { stdout, stderr, exitCode, timedOut } = output as Head
    if (typeof stdout !== 'string' || typeof stderr !== 'string' || !isCount(exitCode)) return null
    outputs.push({ stdout, stderr, exitCode: exitCode & 0xff, timedOut: timedOut === true })
  }
  const { entries } = frame
  if (entries === null) return { outputs, entries }
  const total = entries.reduce((sum, { content }) => sum + content.length, 0)
  const paths = new Set(entries.map(({ path }) => path))
  const isWithinLimits =
    entries.length <= request.files && total <= request.fileBytes && paths.size === entries.length
  return { outputs, entries: isWithinLimits ? entries : null }
}

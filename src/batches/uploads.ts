/**
 * Bodies of batches and files during their upload. They are written to unnamed files, so that a process that dies
 * leaves no files behind. Serve threads; a task worker reads a file by its descriptor.
 */
import { readdirSync, unlinkSync, writeSync } from 'node:fs'
import { type FileHandle, mkdir, open, unlink } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { GatewayError, RETRY_AFTER_SECONDS, storeUnavailable } from '../base/errors.ts'
import { HeldShare, type Holder } from '../base/fairness/held-share.ts'
import { randomText } from '../base/ids.ts'
import type { FileBytes } from '../features/tasks/batches/file-source.ts'
import { spoolRoot } from '../storage/spool/spool-folder.ts'
import { codeOf } from '../storage/store-error.ts'

/** Receives the chunks of a body: see `BodyReader` of `api/operation.ts`. */
export interface UploadReader {
  write(chunk: Uint8Array, at: number): Promise<void>
  writeNow(chunk: Uint8Array, at: number): void
}
export type ReadBody = (reader: UploadReader) => Promise<void>

/** The pieces of a received body without its compression. */
export type DecodeBody = (sent: {
  readonly bytes: number
  pieces(): AsyncIterable<Uint8Array>
}) => AsyncIterable<Uint8Array>

/** A complete body. */
export interface Upload {
  readonly file: FileBytes
  /** Frees the disk space. Call it when all readers have ended. */
  close(): Promise<void>
}

interface UploadsOptions {
  readonly folder: string
  /**
   * Limit for all files of this thread together. A body that would exceed it is refused. One key may use a quarter of
   * it.
   */
  readonly maxBytes: number
}

/** The key that sends a body, and the length of the body. */
interface UploadOwner {
  readonly key: Holder
  /** Null: unknown. */
  readonly announcedBytes: number | null
  /** Absent or null: the body is not compressed. */
  readonly decode?: DecodeBody | null
}

/** The part of the space that one key may use. */
const KEY_SHARE = 0.25
/** Maximum of concurrent large bodies of one key. */
const MAX_LARGE_PER_KEY = 2
/** Shorter bodies do not count, because clients send many of them at once. */
const LARGE_BODY_BYTES = 8 * 1024 * 1024
const PIECE_BYTES = 64 * 1024
/** A file has this name only during two system calls. */
const FILE_PREFIX = 'upload-'

/** The folder for uploads of this storage, next to the spool. */
export function uploadsFolder(storageUrl: string): string {
  return join(dirname(spoolRoot(storageUrl)), 'uploads')
}

export class Uploads {
  readonly #options: UploadsOptions
  readonly #room: HeldShare
  /** Concurrent large bodies. */
  readonly #largeBodies = new HeldShare({ total: Number.POSITIVE_INFINITY, perKey: MAX_LARGE_PER_KEY })

  /** Removes files of a process that was killed between two system calls. */
  constructor(options: UploadsOptions) {
    this.#options = options
    const { maxBytes } = options
    this.#room = new HeldShare({ total: maxBytes, perKey: maxBytes * KEY_SHARE })
    removeLeftovers(options.folder)
  }

  /** Bytes on the disk. */
  get bytes(): number {
    return this.#room.used
  }

  /**
   * Writes a body to a file; a compressed body is decoded once all of it has arrived.
   * @throws GatewayError `rate_limit_exceeded` if the key or its organization has used its share of the space,
   * `service_unavailable` if there is none, `store_unavailable` if the disk fails; or an error of `read` or `decode`
   */
  async receive({ key, announcedBytes, decode = null }: UploadOwner, read: ReadBody): Promise<Upload> {
    let slots = decode === null && announcedBytes !== null && announcedBytes <= LARGE_BODY_BYTES ? 0 : 1
    if (slots > 0 && this.#largeBodies.reserve(key, slots) !== 'taken') throw keyFull()
    const receivedFile = new ReceivedFile(this.#room, key)
    const unpackedFile = new ReceivedFile(this.#room, key)
    const close = async (): Promise<void> => {
      this.#largeBodies.release(key, slots)
      slots = 0
      await Promise.all([receivedFile.close(), unpackedFile.close()])
    }
    try {
      await receivedFile.write(await this.#open(), read)
      if (decode === null) return { file: receivedFile.file, close }
      await unpackedFile.write(await this.#open(), async ({ write }) => {
        let position = 0
        for await (const chunk of decode({
          bytes: receivedFile.bytes,
          pieces: () => receivedFile.pieces(),
        })) {
          await write(chunk, position)
          position += chunk.byteLength
        }
      })
      await receivedFile.close()
      return { file: unpackedFile.file, close }
    } catch (thrown) {
      await close()
      throw isOfSystem(thrown) ? storeUnavailable(thrown) : thrown
    }
  }

  /** @throws GatewayError `store_unavailable` */
  async #open(): Promise<FileHandle> {
    const { folder } = this.#options
    const path = join(folder, FILE_PREFIX + randomText(16))
    try {
      await mkdir(folder, { recursive: true, mode: 0o700 })
      const handle = await open(path, 'wx+', 0o600)
      // Another process that is starting may already have removed it.
      await unlink(path).catch(() => undefined)
      return handle
    } catch (error) {
      throw storeUnavailable(error)
    }
  }
}

/** A file that is written once, and its part of the room. */
class ReceivedFile {
  readonly #room: HeldShare
  readonly #key: Holder
  #handle: FileHandle | null = null
  /** Length of the file. Written only here. */
  bytes = 0

  constructor(room: HeldShare, key: Holder) {
    this.#room = room
    this.#key = key
  }

  get file(): FileBytes {
    return { descriptor: this.#handle?.fd ?? -1, bytes: this.bytes }
  }

  async write(handle: FileHandle, read: ReadBody): Promise<void> {
    this.#handle = handle
    const count = (chunk: Uint8Array): void => {
      const share = this.#room.reserve(this.#key, chunk.byteLength)
      if (share !== 'taken') throw FULL_ERRORS[share]()
      this.bytes += chunk.byteLength
    }
    await read({
      async write(chunk, at) {
        count(chunk)
        await writeFully(handle, chunk, at)
      },
      writeNow(chunk, at) {
        count(chunk)
        writeAtOnce(handle.fd, chunk, at)
      },
    })
  }

  async *pieces(): AsyncGenerator<Uint8Array> {
    for (let position = 0; position < this.bytes; ) {
      const piece = Buffer.allocUnsafe(Math.min(PIECE_BYTES, this.bytes - position))
      const { bytesRead = 0 } = (await this.#handle?.read(piece, 0, piece.byteLength, position)) ?? {}
      if (bytesRead === 0) throw new Error('the file of a body is shorter than the body')
      position += bytesRead
      yield piece.subarray(0, bytesRead)
    }
  }

  /** Closes the file, and releases its reserved space. */
  async close(): Promise<void> {
    const open = this.#handle
    this.#handle = null
    this.#room.release(this.#key, this.bytes)
    this.bytes = 0
    await open?.close()
  }
}

async function writeFully(handle: FileHandle, chunk: Uint8Array, position: number): Promise<void> {
  let offset = 0
  while (offset < chunk.byteLength) {
    const { bytesWritten } = await handle.write(chunk, offset, chunk.byteLength - offset, position + offset)
    offset += bytesWritten
  }
}

function writeAtOnce(descriptor: number, chunk: Uint8Array, position: number): void {
  let offset = 0
  while (offset < chunk.byteLength) {
    offset += writeSync(descriptor, chunk, offset, chunk.byteLength - offset, position + offset)
  }
}

function keyFull(): GatewayError {
  return new GatewayError(
    'rate_limit_exceeded',
    'This API key has reached its limit of concurrent large uploads: wait for one of them to finish',
    { retryAfterSeconds: RETRY_AFTER_SECONDS.transfer },
  )
}

function organizationFull(): GatewayError {
  return new GatewayError(
    'rate_limit_exceeded',
    'Uploads of this organization hold most of the room for large uploads: wait for one of them to finish',
    { retryAfterSeconds: RETRY_AFTER_SECONDS.transfer },
  )
}

function roomFull(): GatewayError {
  return new GatewayError(
    'service_unavailable',
    'Too many large request bodies are arriving at once; retry in a few seconds',
    {
      retryAfterSeconds: RETRY_AFTER_SECONDS.transfer,
    },
  )
}

const FULL_ERRORS = { 'key-full': keyFull, 'organization-full': organizationFull, 'room-full': roomFull }

/** True if the disk is full or fails, or if there are too many open files. */
function isOfSystem(thrown: unknown): boolean {
  return !(thrown instanceof GatewayError) && codeOf(thrown) !== null
}

function removeLeftovers(folder: string): void {
  let names: string[]
  try {
    names = readdirSync(folder)
  } catch {
    // The folder does not exist before the first batch.
    return
  }
  for (const name of names) {
    if (!name.startsWith(FILE_PREFIX)) continue
    try {
      unlinkSync(join(folder, name))
    } catch {
      // Another thread was faster.
    }
  }
}

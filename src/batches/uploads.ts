/**
 * Bodies of batches, and of files, on their way: on the disk without a name, so that none is left behind however a
 * process ends. Serve threads; a task worker reads a file by its descriptor.
 */
import { readdirSync, unlinkSync, writeSync } from 'node:fs'
import { type FileHandle, mkdir, open, unlink } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { GatewayError, serviceUnavailable } from '../errors.ts'
import { randomText } from '../ids.ts'
import { spoolRoot } from '../storage/spool-folder.ts'
import { codeOf } from '../storage/store.ts'
import type { FileBytes } from '../tasks/batches/file-source.ts'

/** Takes the chunks of a body: see `BodyReader` of `api/operation.ts`. */
export interface UploadReader {
  take(chunk: Uint8Array, at: number): Promise<void>
  takeAtOnce(chunk: Uint8Array, at: number): void
}
export type ReadBody = (reader: UploadReader) => Promise<void>

/** A body that is whole. */
export interface Upload {
  readonly file: FileBytes
  /** Frees the room on the disk. Call it when nobody reads any more. */
  close(): Promise<void>
}

export interface UploadsOptions {
  readonly folder: string
  /** Of all files of this thread together; a body that would exceed it is refused. */
  readonly maxBytes: number
}

const RETRY_AFTER_SECONDS = 5
/** A file has its name for the length of two system calls. */
const PREFIX = 'upload-'

/** The folder for files of this storage, beside the spool. */
export function uploadsFolder(storageUrl: string): string {
  return join(dirname(spoolRoot(storageUrl)), 'uploads')
}

export class Uploads {
  readonly #options: UploadsOptions
  #bytes = 0

  /** Removes what a process has left that was killed between two system calls. */
  constructor(options: UploadsOptions) {
    this.#options = options
    removeLeftovers(options.folder)
  }

  /** Bytes on the disk. */
  get bytes(): number {
    return this.#bytes
  }

  /**
   * Writes a body to a file.
   * @throws GatewayError `service_unavailable` when there is no room or the disk fails; or what `read` throws
   */
  async receive(read: ReadBody): Promise<Upload> {
    const handle = await this.#open()
    let bytes = 0
    const close = async (): Promise<void> => {
      this.#bytes -= bytes
      bytes = 0
      await handle.close()
    }
    try {
      const count = (chunk: Uint8Array): void => {
        bytes += chunk.byteLength
        this.#bytes += chunk.byteLength
        if (this.#bytes > this.#options.maxBytes) throw full()
      }
      await read({
        async take(chunk, at) {
          count(chunk)
          await writeFully(handle, chunk, at)
        },
        takeAtOnce(chunk, at) {
          count(chunk)
          writeAtOnce(handle.fd, chunk, at)
        },
      })
    } catch (thrown) {
      await close()
      throw isOfSystem(thrown) ? serviceUnavailable(thrown) : thrown
    }
    return { file: { descriptor: handle.fd, bytes }, close }
  }

  /** @throws GatewayError `service_unavailable` */
  async #open(): Promise<FileHandle> {
    const { folder } = this.#options
    const path = join(folder, PREFIX + randomText(16))
    try {
      await mkdir(folder, { recursive: true, mode: 0o700 })
      const handle = await open(path, 'wx+', 0o600)
      // Another process that starts now may have removed it already.
      await unlink(path).catch(() => undefined)
      return handle
    } catch (error) {
      throw serviceUnavailable(error)
    }
  }
}

async function writeFully(handle: FileHandle, chunk: Uint8Array, position: number): Promise<void> {
  let written = 0
  while (written < chunk.byteLength) {
    const { bytesWritten } = await handle.write(
      chunk,
      written,
      chunk.byteLength - written,
      position + written,
    )
    written += bytesWritten
  }
}

function writeAtOnce(descriptor: number, chunk: Uint8Array, position: number): void {
  let written = 0
  while (written < chunk.byteLength) {
    written += writeSync(descriptor, chunk, written, chunk.byteLength - written, position + written)
  }
}

function full(): GatewayError {
  return new GatewayError('service_unavailable', 'Too many large bodies are arriving at once', {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  })
}

/** True for a disk that is full or fails, and for too many open files. */
function isOfSystem(thrown: unknown): boolean {
  return !(thrown instanceof GatewayError) && codeOf(thrown) !== null
}

function removeLeftovers(folder: string): void {
  let names: string[]
  try {
    names = readdirSync(folder)
  } catch {
    // There is no folder before the first batch.
    return
  }
  for (const name of names) {
    if (!name.startsWith(PREFIX)) continue
    try {
      unlinkSync(join(folder, name))
    } catch {
      // Another thread was faster.
    }
  }
}

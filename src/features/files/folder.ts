/** File bytes in a folder of this machine, or on a file system that all instances share. Any thread. */
import { constants } from 'node:fs'
import { type FileHandle, mkdir, open, rename, rm } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { serviceUnavailable } from '../../base/errors.ts'
import { randomText } from '../../base/ids.ts'
import { type ContentSource, checkedId, type FileContents } from './contents.ts'

const CHUNK_BYTES = 256 * 1024

/** The first file creates the folder, accessible only by its owner. */
export function createFolderContents(folder: string): FileContents {
  const root = resolve(folder)
  const pathOf = (id: string): string => join(root, checkedId(id))
  return {
    async put(id, source) {
      const path = pathOf(id)
      const temporaryPath = join(root, `arriving-${randomText(24)}`)
      await mapSystemError(() => mkdir(root, { recursive: true, mode: 0o700 }))
      const handle = await mapSystemError(() => open(temporaryPath, 'wx', 0o600))
      try {
        await writeAll(handle, source)
        await mapSystemError(async () => {
          // The answer promises that the file is stored, so it must survive a crash of the machine.
          await handle.sync()
          await handle.close()
          await rename(temporaryPath, path)
        })
      } catch (thrown) {
        await handle.close().catch(() => undefined)
        await rm(temporaryPath, { force: true }).catch(() => undefined)
        throw thrown
      }
    },
    async *read(id) {
      const path = pathOf(id)
      const handle = await mapSystemError(() => openPlain(path))
      try {
        for (;;) {
          // New memory for each chunk, because its reader may keep it.
          const chunk = Buffer.allocUnsafe(CHUNK_BYTES)
          const { bytesRead } = await mapSystemError(() => handle.read(chunk, 0, CHUNK_BYTES))
          if (bytesRead === 0) return
          yield chunk.subarray(0, bytesRead)
        }
      } finally {
        await handle.close()
      }
    },
    async remove(id) {
      const path = pathOf(id)
      await mapSystemError(() => rm(path, { force: true }))
    },
  }
}

async function writeAll(handle: FileHandle, source: ContentSource): Promise<void> {
  let writtenBytes = 0
  for await (const chunk of source.chunks()) {
    await mapSystemError(() => handle.writeFile(chunk))
    writtenBytes += chunk.byteLength
  }
  if (writtenBytes !== source.bytes)
    throw new TypeError('the source has another number of bytes than it states')
}

/** Opens regular files only: no link is followed, and no pipe is waited for. */
async function openPlain(path: string): Promise<FileHandle> {
  const handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  const stat = await handle.stat()
  if (stat.isFile()) return handle
  await handle.close()
  throw new TypeError('the path does not lead to a regular file')
}

async function mapSystemError<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    throw serviceUnavailable(error)
  }
}

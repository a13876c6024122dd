/**
 * The captures folder in the data folder: one folder per capture, with an encrypted file for each part that is stored
 * on this machine.
 */
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { isCaptureId, randomText } from '../../base/ids.ts'
import { dataFolder, makeFolder } from '../../storage/data-folder.ts'
import { expiryIn } from './sealed-file.ts'

const NODE_NAME_CHARS = 8
const NODE_NAME = /^[0-9A-Za-z]{8}$/
/** A request that started in time is captured if it ends within this time. */
export const MAX_REQUEST_MS = 600_000
/** More than the first line of a file has. */
const MAX_FIRST_LINE_BYTES = 4_096

export function capturesFolder(storageUrl: string): string {
  return join(dataFolder(storageUrl), 'captures')
}

/** The name of this node, which is kept across restarts. Creates the folder and the name if they do not exist. */
export function nodeNameOf(folder: string): string {
  makeFolder(folder)
  const path = join(folder, 'node')
  try {
    writeFileSync(path, randomText(NODE_NAME_CHARS), { flag: 'wx', mode: 0o600 })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  return readNodeName(folder) ?? 'unknown'
}

/** The name of this node; null if nothing was ever captured here. */
export function readNodeName(folder: string): string | null {
  const path = join(folder, 'node')
  const name = existsSync(path) ? readFileSync(path, 'utf8') : ''
  return NODE_NAME.test(name) ? name : null
}

export function partPath(folder: string, captureId: string, part: string): string {
  return join(folder, captureId, `${part}.sealed`)
}

/** Ids of captures with files in this folder. */
export function captureIdsIn(folder: string): readonly string[] {
  return existsSync(folder) ? readdirSync(folder).filter(isCaptureId) : []
}

/** Deletes the local files of a capture at once. */
export function removeFiles(folder: string, captureId: string): void {
  if (isCaptureId(captureId)) rmSync(join(folder, captureId), { recursive: true, force: true })
}

/** The expiry of a capture according to its files; null if no file contains it. */
export async function expiryOf(folder: string, captureId: string): Promise<string | null> {
  for (const name of readdirSync(join(folder, captureId))) {
    const file = await open(join(folder, captureId, name))
    try {
      const { buffer, bytesRead } = await file.read(
        Buffer.alloc(MAX_FIRST_LINE_BYTES),
        0,
        MAX_FIRST_LINE_BYTES,
        0,
      )
      const expiry = expiryIn(buffer.subarray(0, bytesRead))
      if (expiry !== null) return expiry
    } finally {
      await file.close()
    }
  }
  return null
}

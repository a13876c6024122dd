/** File paths in a container. Pure. */
import { DATA_FOLDER } from './engine.ts'

const MAX_PATH_BYTES = 1_024
const MAX_PART_BYTES = 255

/** The path relative to the folder of files; null if it leads outside or cannot be a file. */
export function filePath(path: string): string | null {
  if (path.includes('\0') || !path.isWellFormed() || Buffer.byteLength(path) > MAX_PATH_BYTES) return null
  const relativePath = path.startsWith(`${DATA_FOLDER}/`) ? path.slice(DATA_FOLDER.length + 1) : path
  if (relativePath.startsWith('/')) return null
  const parts = relativePath.split('/').filter(part => part !== '' && part !== '.')
  const isFile =
    parts.length > 0 && parts.every(part => part !== '..' && Buffer.byteLength(part) <= MAX_PART_BYTES)
  return isFile ? parts.join('/') : null
}

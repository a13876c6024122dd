/** File paths in a container. Pure. */
import { DATA_FOLDER } from './engine.ts'

const PATH_MAX_BYTES = 1_024
const PART_MAX_BYTES = 255

/** The path relative to the folder of files. Null: it leads outside, or cannot be a file. */
export function filePath(path: string): string | null {
  if (path.includes('\0') || !path.isWellFormed() || Buffer.byteLength(path) > PATH_MAX_BYTES) return null
  const below = path.startsWith(`${DATA_FOLDER}/`) ? path.slice(DATA_FOLDER.length + 1) : path
  if (below.startsWith('/')) return null
  const parts = below.split('/').filter(part => part !== '' && part !== '.')
  const isFile =
    parts.length > 0 && parts.every(part => part !== '..' && Buffer.byteLength(part) <= PART_MAX_BYTES)
  return isFile ? parts.join('/') : null
}

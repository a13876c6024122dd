/**
 * The folder of V8's compile cache, which spares a starting serve thread from compiling code that an earlier thread
 * compiled. Anyone who can write there can run code here, so only this user has access. The main thread does not use
 * it: the cache would occupy 7 MB there for its whole lifetime, and save only 50 ms. Main thread.
 */
import { chmodSync, existsSync, lstatSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { dataFolder } from '../../storage/data-folder.ts'

/** True if an earlier start created the folder: its contents may be used before this start is known to be good. */
export function hasCompileCache(storageUrl: string): boolean {
  return existsSync(folderOf(storageUrl))
}

function folderOf(storageUrl: string): string {
  return join(dataFolder(storageUrl), 'compile-cache')
}

/** Creates the folder, with mode 0700. Null if there is no usable folder; the start is then slower. */
export function makeCompileCache(storageUrl: string): string | null {
  const folder = folderOf(storageUrl)
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    const stats = lstatSync(folder)
    if (!stats.isDirectory() || stats.uid !== (process.getuid?.() ?? stats.uid)) return null
    if ((stats.mode & 0o077) !== 0) chmodSync(folder, 0o700)
    return folder
  } catch {
    return null
  }
}

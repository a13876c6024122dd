/**
 * Container files in a folder of this machine, for engines that mount it. Code in the container wrote the contents, so
 * no link is followed, and only regular files are read. Nothing in the container runs at the same time. Main thread.
 */
import { constants } from 'node:fs'
import { chmod, chown, lstat, mkdir, open, readdir, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { ContainerFile, EngineLimits } from './engine.ts'
import { filePath } from './paths.ts'

/** User and group ids of the code of containers. */
export interface User {
  readonly uid: number
  readonly gid: number
}

export interface Folder {
  readonly path: string
  list(): Promise<readonly ContainerFile[]>
  read(path: string): Promise<Uint8Array | null>
  write(path: string, content: Uint8Array): Promise<boolean>
  /** Size at the last listing or change by the gateway. */
  bytes(): number
  /** Returns false if the limits are exceeded. */
  fits(): Promise<boolean>
  remove(): Promise<void>
}

const { O_CREAT, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_TRUNC, O_WRONLY } = constants
/** A walk ends this number of entries beyond the limit. */
const MAX_EXCESS_ENTRIES = 1_000

/** `user`: null if containers run as the gateway's user. */
export async function createFolder(path: string, limits: EngineLimits, user: User | null): Promise<Folder> {
  let knownBytes = 0
  await mkdir(path, { recursive: true, mode: 0o700 })
  await setOwner(path)

  async function setOwner(target: string): Promise<void> {
    if (user !== null) await chown(target, user.uid, user.gid)
  }

  /** The regular files; null if there are more entries than the limits allow. Also sums up the bytes. */
  async function walk(): Promise<ContainerFile[] | null> {
    const files: ContainerFile[] = []
    const folders = ['']
    let entries = 0
    knownBytes = 0
    await makeReadable()
    for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
      for (const entry of await readdir(join(path, folder), { withFileTypes: true })) {
        if (++entries > limits.files + MAX_EXCESS_ENTRIES) return null
        const relativePath = folder === '' ? entry.name : `${folder}/${entry.name}`
        // A name that is not valid text cannot be requested, but its size counts.
        const stat = await lstat(join(path, relativePath)).catch(() => null)
        if (stat === null) continue
        knownBytes += stat.size
        if (filePath(relativePath) !== relativePath) continue
        if (stat.isDirectory()) folders.push(relativePath)
        else if (stat.isFile())
          files.push({ path: relativePath, bytes: stat.size, changedMs: Math.floor(stat.mtimeMs) })
      }
    }
    return entries > limits.files ? null : files
  }

  /** Restores permissions that code may have removed from folders. */
  async function makeReadable(): Promise<void> {
    const folders = [path]
    for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
      await chmod(folder, 0o700).catch(() => undefined)
      for (const entry of await readdir(folder, { withFileTypes: true }).catch(() => [])) {
        if (entry.isDirectory()) folders.push(join(folder, entry.name))
      }
    }
  }

  /** True if every folder in the path is a real folder, and not a link. */
  async function isBelowFolders(relativePath: string): Promise<boolean> {
    for (let folder = dirname(relativePath); folder !== '.'; folder = dirname(folder)) {
      const stat = await lstat(join(path, folder)).catch(() => null)
      if (stat === null || !stat.isDirectory()) return false
    }
    return true
  }

  async function write(relativePath: string, content: Uint8Array): Promise<boolean> {
    const files = await walk()
    if (files === null || files.length >= limits.files) return false
    const oldBytes = files.find(file => file.path === relativePath)?.bytes ?? 0
    if (knownBytes - oldBytes + content.length > limits.fileBytes) return false
    const parts = relativePath.split('/').slice(0, -1)
    for (let depth = 1; depth <= parts.length; depth++) {
      const folder = join(path, ...parts.slice(0, depth))
      const isCreated = await mkdir(folder, { mode: 0o755 }).then(
        () => true,
        () => false,
      )
      if (isCreated) await setOwner(folder)
    }
    if (!(await isBelowFolders(relativePath))) return false
    const target = join(path, relativePath)
    const handle = await open(target, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK, 0o644).catch(
      () => null,
    )
    if (handle === null) return false
    try {
      if (!(await handle.stat()).isFile()) return false
      await handle.writeFile(content)
      if (user !== null) await handle.chown(user.uid, user.gid)
    } finally {
      await handle.close()
    }
    knownBytes += content.length - oldBytes
    return true
  }

  return {
    path,
    write,
    list: async () => (await walk()) ?? [],
    bytes: () => knownBytes,
    async read(relativePath) {
      if (!(await isBelowFolders(relativePath))) return null
      const handle = await open(join(path, relativePath), O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch(
        () => null,
      )
      if (handle === null) return null
      try {
        const stat = await handle.stat()
        return stat.isFile() && stat.size <= limits.fileBytes ? await handle.readFile() : null
      } finally {
        await handle.close()
      }
    },
    fits: async () => (await walk()) !== null && knownBytes <= limits.fileBytes,
    async remove() {
      await makeReadable()
      await rm(path, { recursive: true, force: true })
    },
  }
}

/** New databases for tests: the migrations run once in a process, and each test gets a copy of what they made. */
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openStore } from '../../src/storage/open.ts'

let migrated: Promise<string> | null = null

/** A database of SQLite that nobody has used, at the newest schema. @returns its URL */
export async function newDatabase(folder: string = mkdtempSync(join(tmpdir(), 'sluice-'))): Promise<string> {
  migrated ??= migrate()
  const path = join(folder, 'gateway.db')
  copyFileSync(await migrated, path)
  return `sqlite:${path}`
}

async function migrate(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-schema-'))
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  const path = join(folder, 'gateway.db')
  // Closed, all of it is in the one file.
  await (await openStore(`sqlite:${path}`)).close()
  return path
}

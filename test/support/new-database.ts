/** New databases for tests: the migrations run once per process, and each test gets a copy of the result. */
import { copyFileSync } from 'node:fs'
import { join } from 'node:path'
import { openStore } from '../../src/storage/open.ts'
import { tempFolder } from './temp-folder.ts'

let migrated: Promise<string> | null = null

/** A database of SQLite that nobody has used, at the newest schema. @returns its URL */
export async function newDatabase(folder: string = tempFolder()): Promise<string> {
  migrated ??= migrate()
  const path = join(folder, 'gateway.db')
  copyFileSync(await migrated, path)
  return `sqlite:${path}`
}

async function migrate(): Promise<string> {
  const path = join(tempFolder('sluice-schema'), 'gateway.db')
  // Closed, all of it is in the one file.
  await (await openStore(`sqlite:${path}`)).close()
  return path
}

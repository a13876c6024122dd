/** A new folder beside those of the system, removed when the process of the tests ends. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const made: string[] = []

export function tempFolder(name = 'sluice'): string {
  if (made.length === 0) {
    process.once('exit', () => {
      for (const folder of made) rmSync(folder, { recursive: true, force: true })
    })
  }
  const folder = mkdtempSync(join(tmpdir(), `${name}-`))
  made.push(folder)
  return folder
}

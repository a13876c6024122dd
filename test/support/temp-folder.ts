/** Creates a folder in the system's temporary folder, and removes it when the test process ends. */
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

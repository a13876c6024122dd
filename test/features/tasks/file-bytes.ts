/** Files for tasks that read them through a descriptor. */
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { FileBytes } from '../../../src/features/tasks/batches/file-source.ts'

/** An open file with this content, until the test is over. */
export function fileOf(t: Pick<Test, 'teardown'>, content: string | Uint8Array): FileBytes {
  const bytes = Buffer.from(content)
  const folder = mkdtempSync(join(tmpdir(), 'sluice-file-'))
  const path = join(folder, 'file')
  writeFileSync(path, bytes)
  const descriptor = openSync(path, 'r')
  t.teardown(() => {
    closeSync(descriptor)
    rmSync(folder, { recursive: true, force: true })
  })
  return { descriptor, bytes: bytes.length }
}

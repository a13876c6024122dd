/** Large bodies of POST /batches on disk. */
import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'

interface BatchFileOptions {
  readonly requests: number
  /** Of the text of each request. */
  readonly textBytes: number
  readonly model: string
}

const WRITE_CHARS = 1024 * 1024
const TEXT = 'A request of ordinary length, of which there are very many. '

/** Writes a batch for POST /responses to a file, which the test removes. */
export function writeBatchFile(
  t: Pick<Test, 'teardown'>,
  { requests, textBytes, model }: BatchFileOptions,
): string {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-batch-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const path = join(folder, 'batch.json')
  const file = openSync(path, 'w')
  const text = TEXT.repeat(Math.ceil(textBytes / TEXT.length)).slice(0, textBytes)
  let waiting = `{"endpoint":"/v1/responses","model":${JSON.stringify(model)},"requests":[`
  for (let number = 0; number < requests; number++) {
    waiting += `${number === 0 ? '' : ','}{"custom_id":"request-${number}","body":{"input":"${text}"}}`
    if (waiting.length < WRITE_CHARS) continue
    writeSync(file, waiting)
    waiting = ''
  }
  writeSync(file, `${waiting}]}`)
  closeSync(file)
  return path
}

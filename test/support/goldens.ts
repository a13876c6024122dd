/** Our own golden replies in test/fixtures: bodies as a provider would send them. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const FOLDER = join(import.meta.dirname, '../fixtures')

/** What a body beside it should give; not a body itself. */
const EXPECTATION = /\.expect(ed)?\.json$/

export interface Golden {
  readonly file: string
  readonly bytes: Buffer
  /** An event stream; otherwise one JSON body. */
  readonly streamed: boolean
}

/** All `.sse` and `.json` bodies of a format; what they should give is for the tests of the format to say. */
export function goldens(format: string): readonly Golden[] {
  return readdirSync(join(FOLDER, format))
    .filter(file => file.endsWith('.sse') || (file.endsWith('.json') && !EXPECTATION.test(file)))
    .toSorted()
    .map(file => ({
      file,
      bytes: readFileSync(join(FOLDER, format, file)),
      streamed: file.endsWith('.sse'),
    }))
}

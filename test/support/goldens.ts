/**
 * Our own golden replies in test/fixtures: bodies as a provider would send them, each with a file that has its meaning.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { awsEvents } from './aws-events.ts'

const FOLDER = join(import.meta.dirname, '../fixtures')
const EXPECTATION = '.expected.json'

export interface Golden {
  readonly file: string
  /** The file without its endings. */
  readonly name: string
  readonly bytes: Buffer
  /** An event stream; otherwise one JSON body. */
  readonly streamed: boolean
  /** What the body means, in the form that the tests of the format compare. */
  readonly expected: unknown
}

/** All bodies of a format, `<case>.sse`, `<case>.json` or `<case>.reply.json`, each with its `<case>.expected.json`. */
export function goldens(format: string): readonly Golden[] {
  return readdirSync(join(FOLDER, format))
    .filter(file => /\.(sse|json)$/.test(file) && !file.endsWith(EXPECTATION))
    .toSorted()
    .map(file => {
      const name = file.replace(/(\.reply)?\.\w+$/, '')
      return {
        file,
        name,
        bytes: framed(format, file, readFileSync(join(FOLDER, format, file))),
        streamed: file.endsWith('.sse'),
        expected: JSON.parse(readFileSync(join(FOLDER, format, name + EXPECTATION), 'utf8')),
      }
    })
}

/** A stream of Converse is kept as text, and sent as binary messages. */
function framed(format: string, file: string, bytes: Buffer): Buffer {
  if (format !== 'bedrock-converse' || !file.endsWith('.sse')) return bytes
  return Buffer.concat(awsEvents(bytes.toString('utf8')))
}

/** Every golden reply of every format, as each dialect tells it, fits the schemas of the OpenAPI document. */
import t from 'tap'
import { createDocument } from '../../src/api/openapi/document.ts'
import type { Dialect } from '../../src/dialects/dialect.ts'
import { FORMATS } from '../../src/formats/table.ts'
import type { FormatName } from '../../src/protocol/provider.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { eventsOf } from '../support/assemble-reply.ts'
import { chatCompletions, messages, parseResponsesRequest, responsesDialect } from '../support/dialects.ts'
import { goldens } from '../support/goldens.ts'
import { type ApiDocument, checksOf } from '../support/openapi.ts'
import { allOperations } from '../support/operations.ts'

const document = createDocument(await allOperations(t)) as unknown as ApiDocument
const { schemas } = document.components
const checks = checksOf(document, true)
const checkOf = (name: string) => checks(schemas[name] ?? {})
const REQUEST = parseResponsesRequest({ model: 'acme/fast', input: 'Hi' })

const DIALECTS: readonly (readonly [dialect: Dialect, whole: string, event: string])[] = [
  [responsesDialect, 'ResponseResource', 'ResponseEvent'],
  [chatCompletions, 'ChatCompletion', 'ChatChunk'],
  [messages, 'Message', 'MessageEvent'],
]

for (const [dialect, whole, event] of DIALECTS) {
  const [checkWhole, checkEvent] = [checkOf(whole), checkOf(event)]
  t.test(`${dialect.name}: goldens fit ${whole} and ${event}`, async t => {
    let frames = 0
    for (const format of Object.keys(FORMATS) as FormatName[]) {
      for (const golden of goldens(format)) {
        const label = `${format} ${golden.file}`
        const events = eventsOf(format, golden.bytes, golden.streamed)
        const writer = dialect.frames(REQUEST)
        const text = events.map(each => writer.write(each)).join('') + writer.end()
        for (const [, data = ''] of text.matchAll(/^data: (\{.*)$/gm)) {
          frames++
          const faults = checkEvent(JSON.parse(data))
          if (faults.length > 0) t.fail(label, { data: data.slice(0, 500), faults: faults.slice(-3) })
        }
        const response = finalOf(events)
        if (response === null || response.status === 'failed') continue
        const faults = checkWhole(JSON.parse(JSON.stringify(dialect.body(response, REQUEST))))
        if (faults.length > 0) t.fail(label, { faults: faults.slice(-3) })
      }
    }
    t.ok(frames > 500, `${frames} frames`)
  })
}

function finalOf(events: ReturnType<typeof eventsOf>): ResponseResource | null {
  const last = events.at(-1)
  return last !== undefined && 'response' in last ? last.response : null
}

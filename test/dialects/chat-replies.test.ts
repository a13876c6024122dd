/** Every golden reply of every format: what a chat stream says in pieces is what the whole completion says. */
import t from 'tap'
import { FORMATS } from '../../src/formats/table.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import type { FormatName } from '../../src/providers/provider.ts'
import { eventsOf } from '../support/assemble-reply.ts'
import { chatCompletions } from '../support/dialects.ts'
import { goldens } from '../support/goldens.ts'
import {
  chunksOf,
  finalOf,
  framesOf,
  gathered,
  known,
  type Loose,
  REQUEST,
  throughClient,
} from './chat-stream.ts'

for (const format of Object.keys(FORMATS) as FormatName[]) {
  t.test(`${format} goldens: the stream equals the whole`, async t => {
    for (const golden of goldens(format)) {
      const events = eventsOf(format, golden.bytes, golden.streamed)
      const response = finalOf(events)
      const frames = framesOf(events)
      const chunks = chunksOf(frames)
      const stream = gathered(chunks)
      if (response.status === 'failed') {
        t.match(
          chunks.findLast(chunk => 'error' in chunk),
          {
            error: { code: Number, message: String, type: response.error_type },
            choices: [{ finish_reason: 'error' }],
          },
        )
        const thrown = await throughClient(frames).catch((error: unknown) => error)
        t.match(thrown, { error: chunks.find(chunk => 'error' in chunk)?.['error'] as object }, golden.file)
        continue
      }
      const body = JSON.parse(JSON.stringify(chatCompletions.body(response, REQUEST))) as Loose
      if (!thinksInBothForms(response)) t.same(stream, body, golden.file)
      t.same(known(await throughClient(frames)), known(body), golden.file)
    }
  })
}

/** Raw thinking and a summary in one item: their order is known in a stream only. */
function thinksInBothForms({ output }: ResponseResource): boolean {
  return output.some(
    item => item.type === 'reasoning' && item.summary.length > 0 && (item.content ?? []).length > 0,
  )
}

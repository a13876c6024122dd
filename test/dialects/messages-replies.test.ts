/** Every golden reply of every format: what a stream of messages says in pieces is what the whole message says. */
import t from 'tap'
import { FORMATS } from '../../src/formats/table.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import type { FormatName } from '../../src/providers/provider.ts'
import { eventsOf } from '../support/assemble-reply.ts'
import { messages } from '../support/dialects.ts'
import { goldens } from '../support/goldens.ts'
import { finalOf } from './chat-stream.ts'
import {
  eventsIn,
  framesOf,
  gathered,
  joined,
  known,
  type Loose,
  REQUEST,
  throughClient,
} from './messages-stream.ts'

for (const format of Object.keys(FORMATS) as FormatName[]) {
  t.test(`${format} goldens: the stream equals the whole`, async t => {
    for (const golden of goldens(format)) {
      const events = eventsOf(format, golden.bytes, golden.streamed)
      const response = finalOf(events)
      const frames = framesOf(events)
      if (response.status === 'failed') {
        const last = eventsIn(frames).at(-1)
        t.match(last, {
          type: 'error',
          error: { type: String, message: String, error_type: response.error_type },
          request_id: response.id,
        })
        const thrown = await throughClient(frames).catch((error: unknown) => error)
        t.match(thrown, { error: last, type: String }, golden.file)
        continue
      }
      const stream = gathered(eventsIn(frames))
      const body = JSON.parse(JSON.stringify(messages.body(response, REQUEST))) as Loose
      if (thinksInBothForms(response)) continue
      t.same(joined(inOrder(stream)), joined(inOrder(body)), golden.file)
      // Its own provider tells where a citation begins.
      if (format === 'anthropic-messages') t.same(stream, body, golden.file)
      // The client gives up on the input of a call that was cut.
      if (JSON.stringify(body).includes('"input":{"arguments":')) continue
      t.same(known(joined(inOrder(await throughClient(frames)))), known(joined(inOrder(body))), golden.file)
    }
  })
}

/** A whole message has items in the order in which they began, a stream in the order in which they spoke. */
function inOrder(message: Loose): Loose {
  const content = message['content'] as Loose[]
  return {
    ...message,
    content: content.toSorted((a, b) => String(a['type']).localeCompare(String(b['type']))),
  }
}

/** Raw thinking and a summary in one item: their order is known in a stream only. */
function thinksInBothForms({ output }: ResponseResource): boolean {
  return output.some(
    item => item.type === 'reasoning' && item.summary.length > 0 && (item.content ?? []).length > 0,
  )
}

/** A provider's reply through decoder and answer: what a client of the gateway sees of it. */
import { toGatewayError } from '../../src/errors.ts'
import type { Delta } from '../../src/formats/format.ts'
import { FORMATS } from '../../src/formats/table.ts'
import { Answer } from '../../src/gateway/answer/answer.ts'
import { echoRequest } from '../../src/gateway/answer/echo.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { FormatName } from '../../src/providers/provider.ts'
import { SseParser } from '../../src/upstream/sse.ts'
import { parseResponsesRequest } from './dialects.ts'
import { EventCollector } from './event-collector.ts'

const ENDING = { completedAt: 2, usage: null, serviceTier: null, metadata: null }

/** The events of a reply as a client gets them; one that fails ends with response.failed, as committed streams do. */
export function eventsOf(format: FormatName, bytes: Buffer, streamed: boolean): StreamEvent[] {
  const request = parseResponsesRequest({ model: 'acme/recorded', input: 'hi' })
  const sink = new EventCollector()
  const answer = new Answer(sink, echoRequest(request, { id: 'gen-1-x', createdAt: 1, model: '' }))
  answer.openTurn(false)
  answer.begin('acme/recorded', null, [])
  let over = false
  const take = (delta: Delta) => {
    if (delta.kind === 'start' || delta.kind === 'usage' || over) return
    if (delta.kind === 'finish') {
      over = true
      answer.finish(delta.reason, ENDING)
    } else {
      answer.take(delta)
    }
  }
  const decoder = FORMATS[format].decoder(take)
  try {
    if (streamed) {
      const parser = new SseParser((event, data) => decoder.frame(event, data))
      parser.push(bytes)
      parser.end()
    } else {
      decoder.frame('', bytes.toString('utf8'))
    }
    decoder.end()
  } catch (error) {
    if (!over) answer.fail(toGatewayError(error), ENDING)
  }
  return sink.events
}

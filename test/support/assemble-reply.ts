/** Passes a provider's reply through decoder and answer, to show what a client of the gateway sees of it. */
import { toGatewayError } from '../../src/base/errors.ts'
import { Bill } from '../../src/exchange/bill.ts'
import type { Decoder, Delta, Usage } from '../../src/formats/format.ts'
import { FORMATS } from '../../src/formats/table.ts'
import { chargeOf, inputOf, toResponseUsage } from '../../src/pipeline/accounting/charge.ts'
import { Answer } from '../../src/pipeline/answer/answer.ts'
import { type Ending, echoRequest } from '../../src/pipeline/answer/response-object.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { FormatName } from '../../src/protocol/provider.ts'
import { readFrames } from './decode-reply.ts'
import { parseResponsesRequest } from './dialects.ts'
import { endpointOf } from './endpoint.ts'
import { EventCollector } from './event-collector.ts'

/** Where a provider tells no usage, it is estimated. */
const ESTIMATED: Usage = {
  inputTokens: 1,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  outputTokens: 1,
  reasoningTokens: 0,
  webSearchRequests: 0,
}

/** The events of a reply as a client gets them; one that fails ends with response.failed, as committed streams do. */
export function eventsOf(format: FormatName, bytes: Buffer, streamed: boolean): StreamEvent[] {
  return eventsOfReply(format, decoder => {
    if (streamed) readFrames(FORMATS[format], decoder, [bytes])
    else decoder.frame('', bytes.toString('utf8'))
  })
}

/** The events of a reply whose frames `read` passes to the decoder. `onFailure` gets what reading throws. */
export function eventsOfReply(
  format: FormatName,
  read: (decoder: Decoder) => void,
  onFailure?: (error: unknown) => void,
): StreamEvent[] {
  const request = parseResponsesRequest({ model: 'acme/recorded', input: 'hi' })
  const sink = new EventCollector()
  const answer = new Answer(sink, echoRequest(request, { id: 'gen-1-x', createdAt: 1, model: '' }))
  answer.openTurn(false)
  let over = false
  let usage: Usage | null = null
  const begin = () => {
    if (!answer.hasBegun) answer.begin('acme/recorded', null, [], usage === null ? null : inputOf(usage))
  }
  const take = (delta: Delta) => {
    if (over) return
    if (delta.kind === 'usage') {
      usage = delta.usage
      return
    }
    if (delta.kind === 'start') return
    begin()
    if (delta.kind === 'finish') {
      over = true
      answer.finish(delta.reason, endingOf(format, usage ?? ESTIMATED, delta))
    } else {
      answer.receive(delta)
    }
  }
  const decoder = FORMATS[format].decoder(take)
  try {
    read(decoder)
    decoder.end()
  } catch (error) {
    onFailure?.(error)
    begin()
    if (!over) answer.fail(toGatewayError(error), endingOf(format, usage))
  }
  return sink.events
}

type Finish = Extract<Delta, { kind: 'finish' }>

function endingOf(format: FormatName, usage: Usage | null, finish: Partial<Finish> = {}): Ending {
  const bill = new Bill()
  if (usage !== null) bill.charge(chargeOf(usage, endpointOf(format).pricing, true))
  const { native = null, serviceTier = null, stopSequence = null } = finish
  return {
    completedAt: 2,
    usage: toResponseUsage(bill, false, 0),
    serviceTier,
    metadata: null,
    nativeFinish: native,
    stopSequence,
  }
}

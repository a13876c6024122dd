/** Every recorded reply, through decoder and assembler: the events are always a proper stream. */
import t from 'tap'
import { toGatewayError } from '../../src/errors.ts'
import type { Delta } from '../../src/formats/format.ts'
import { FORMATS } from '../../src/formats/table.ts'
import { Assembler } from '../../src/gateway/assemble.ts'
import { echoRequest } from '../../src/gateway/echo.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import { parseResponsesRequest } from '../../src/protocol/request.ts'
import type { FormatName } from '../../src/providers/provider.ts'
import { SseParser } from '../../src/upstream/sse.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { goldens } from '../support/goldens.ts'
import { RECORDINGS_MISSING, recordings, recordingsPresent } from '../support/recordings.ts'

const ENDING = { completedAt: 2, usage: null, serviceTier: null, metadata: null }

/** The events of a reply; a reply that fails ends with response.failed, as it does for a committed stream. */
function eventsOf(format: FormatName, bytes: Buffer, streamed: boolean): StreamEvent[] {
  const events: StreamEvent[] = []
  const request = parseResponsesRequest({ model: 'acme/recorded', input: 'hi' })
  const assembler = new Assembler(
    echoRequest(request, { id: 'gen-1-x', createdAt: 1, model: 'acme/recorded' }),
    event => events.push(structuredClone(event)),
  )
  assembler.begin([])
  let over = false
  const take = (delta: Delta) => {
    if (delta.kind === 'start' || delta.kind === 'usage' || over) return
    if (delta.kind === 'finish') {
      over = true
      assembler.finish(delta.reason, ENDING)
    } else {
      assembler.take(delta)
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
    if (!over) assembler.fail(toGatewayError(error), ENDING)
  }
  return events
}

for (const format of Object.keys(FORMATS) as FormatName[]) {
  t.test(
    `recorded ${format} replies become proper event streams`,
    { skip: recordingsPresent ? false : RECORDINGS_MISSING },
    async t => {
      const all = recordings(format).filter(
        recording => recording.httpStatus === null || recording.httpStatus === 200,
      )
      let good = 0
      for (const recording of all) {
        const violations = grammarViolations(eventsOf(format, recording.bytes(), recording.streamed))
        if (violations.length === 0) good++
        else t.same(violations, [], recording.file)
      }
      t.ok(all.length > 0)
      t.comment(`${format}: ${good}/${all.length} recordings give a proper event stream`)
    },
  )

  t.test(`our own ${format} goldens become proper event streams`, async t => {
    const all = goldens(format)
    t.ok(all.length > 0)
    for (const golden of all) {
      t.same(grammarViolations(eventsOf(format, golden.bytes, golden.streamed)), [], golden.file)
    }
  })
}

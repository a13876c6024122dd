/** Every recorded reply, through decoder and answer: the events are always a proper stream. */
import t from 'tap'
import { FORMATS } from '../../src/formats/table.ts'
import type { FormatName } from '../../src/protocol/provider.ts'
import { eventsOf } from '../support/assemble-reply.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { goldens } from '../support/goldens.ts'
import { recordings, withoutRecordings } from '../support/recordings.ts'

for (const format of Object.keys(FORMATS) as FormatName[]) {
  t.test(`recorded ${format} replies become proper event streams`, { skip: withoutRecordings }, async t => {
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
  })

  t.test(`our own ${format} goldens become proper event streams`, async t => {
    const all = goldens(format)
    t.ok(all.length > 0)
    for (const golden of all) {
      t.same(grammarViolations(eventsOf(format, golden.bytes, golden.streamed)), [], golden.file)
    }
  })
}

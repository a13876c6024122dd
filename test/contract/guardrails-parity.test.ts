/** For any text, rules and cut of the reply, a stream and a whole answer get the same verdict and the same text. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import type { FilterAction } from '../../src/protocol/management/guardrails.ts'
import { CUSTOM_PATTERNS, filler, SECRETS_IN_TEXT } from '../support/guardrail-texts.ts'
import { FORMATS, speaking } from '../support/provider.ts'
import { deltasIn, type Reply, saidIn, stagesIn, startGuarded } from '../support/world.ts'

const CASES = 320

const { parrot, guard, ask } = await startGuarded(t)

const text = fc
  .array(fc.oneof(filler, fc.constantFrom(...SECRETS_IN_TEXT)), { minLength: 1, maxLength: 40 })
  .map(list => `Say ${list.join(' ')}`)
const rules = fc.record({
  builtin: fc.constantFrom<FilterAction>('redact', 'flag', 'block'),
  custom: fc.constantFrom<FilterAction>('redact', 'flag', 'block'),
  windowBytes: fc.constantFrom(256, 300, 1024),
  overlapBytes: fc.constantFrom(0, 64, 200),
})

function cut(whole: string, sizes: readonly number[]): string[] {
  const characters = Array.from(whole)
  const list: string[] = []
  for (let at = 0, n = 0; at < characters.length; n++) {
    const size = sizes[n % sizes.length] ?? 1
    list.push(characters.slice(at, at + size).join(''))
    at += size
  }
  return list
}

/** Refused, whether by an envelope or in the stream; otherwise what was said, and what the pipeline tells. */
function verdictOf({ status, document, events }: Reply) {
  const failed = status !== 200 || document['status'] === 'failed'
  if (events.length > 0 && !failed) assert.equal(deltasIn(events), saidIn(document))
  return failed
    ? 'refused'
    : JSON.stringify([saidIn(document), stagesIn(document).map(stage => stage['data'])])
}

t.test('streams and whole answers are guarded alike', async t => {
  const seen = { refused: 0, changed: 0, cases: 0 }
  await fc.assert(
    fc.asyncProperty(
      text,
      rules,
      fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 6 }),
      fc.option(fc.integer({ min: 50, max: 4000 })),
      fc.constantFrom(...FORMATS),
      async (whole, { builtin, custom, windowBytes, overlapBytes }, sizes, writeBytes, format) => {
        await guard({
          output: {
            contentFilterBuiltins: (['email', 'phone', 'credit-card', 'secrets'] as const).map(slug => ({
              slug,
              action: builtin,
              scanScope: 'all_messages',
            })),
            contentFilters: CUSTOM_PATTERNS.map(pattern => ({ pattern, action: custom, label: null })),
            windowBytes,
            overlapBytes,
          },
        })
        parrot.parts = speaking(...cut(whole, sizes))
        parrot.writeBytes = writeBytes
        const body = { model: `parrot/${format}`, input: 'Hi' }
        const streamed = await ask({ ...body, stream: true })
        const inOne = await ask({ ...body, stream: false })
        const verdict = verdictOf(inOne)
        assert.equal(verdictOf(streamed), verdict)
        seen.cases++
        if (verdict === 'refused') seen.refused++
        else if (saidIn(inOne.document) !== whole) seen.changed++
        // What was delivered before the end of a refused stream is the text as it was, or redacted.
        if (verdict === 'refused') assert.ok(deltasIn(streamed.events).length <= whole.length + 100)
      },
    ),
    { numRuns: CASES },
  )
  t.comment(`${seen.cases} cases, ${seen.refused} refused, ${seen.changed} redacted`)
  t.ok(seen.refused > 20 && seen.changed > 20 && seen.cases - seen.refused - seen.changed > 20)
})

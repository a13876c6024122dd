/**
 * Damaged replies: events lost, repeated, moved, and filled with values of wrong types. Whatever comes, the decoder
 * throws nothing but a GatewayError and never breaks the contract of its deltas.
 */
import fc from 'fast-check'
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import type { Delta } from '../../../src/formats/format.ts'
import { openaiResponses } from '../../../src/formats/openai-responses.ts'
import { goldens } from '../../support/goldens.ts'
import { collect } from '../delta-items.ts'

type Json = Record<string, unknown>

/** Repeats a failure; another number looks elsewhere. */
const SEED = 20261121
const RUNS = 6000

const STREAMS: readonly (readonly Json[])[] = goldens('openai-responses')
  .filter(golden => golden.streamed)
  .map(golden =>
    golden.bytes
      .toString('utf8')
      .split(/\r?\n\r?\n/)
      .flatMap(block => /^data: (\{.*\})$/m.exec(block)?.[1] ?? [])
      .map(data => JSON.parse(data) as Json)
      .filter(event => typeof event['type'] === 'string'),
  )
  .filter(events => events.length > 2)

const JUNK: readonly unknown[] = [
  null,
  0,
  -1,
  1.5,
  1e9,
  '',
  'x',
  true,
  [],
  {},
  [null],
  { type: 'message' },
  [{ type: 'output_text' }],
]

const damage = fc.record({
  stream: fc.nat(),
  other: fc.nat(),
  steps: fc.array(
    fc.record({
      kind: fc.constantFrom('drop', 'repeat', 'move', 'junk', 'deep', 'mix'),
      at: fc.nat(),
      to: fc.nat(),
    }),
    { maxLength: 8 },
  ),
})

function damaged(
  stream: number,
  other: number,
  steps: readonly { kind: string; at: number; to: number }[],
): Json[] {
  const events = structuredClone([...(STREAMS[stream % STREAMS.length] ?? [])])
  const foreign = STREAMS[other % STREAMS.length] ?? []
  for (const { kind, at, to } of steps) {
    if (events.length === 0) break
    const index = at % events.length
    const event = events[index] ?? {}
    if (kind === 'drop') events.splice(index, 1)
    else if (kind === 'repeat') events.splice(to % events.length, 0, structuredClone(event))
    else if (kind === 'move') events.splice(to % events.length, 0, ...events.splice(index, 1))
    else if (kind === 'mix') events.splice(index, 0, structuredClone(foreign[to % foreign.length] ?? {}))
    else spoil(kind === 'deep' ? ((event['item'] ?? event['response'] ?? event) as Json) : event, at, to)
  }
  return events
}

function spoil(target: unknown, at: number, to: number): void {
  if (typeof target !== 'object' || target === null) return
  const keys = Object.keys(target).filter(key => key !== 'type')
  const key = keys[at % Math.max(1, keys.length)]
  if (key !== undefined) (target as Json)[key] = structuredClone(JUNK[to % JUNK.length])
}

t.test('damaged streams', async t => {
  let finished = 0
  let refused = 0
  fc.assert(
    fc.property(damage, ({ stream, other, steps }) => {
      const deltas: Delta[] = []
      const decoder = openaiResponses.decoder(delta => deltas.push(delta))
      let ended = false
      try {
        for (const event of damaged(stream, other, steps))
          decoder.frame(String(event['type']), JSON.stringify(event))
        decoder.end()
        ended = true
      } catch (thrown) {
        if (!(thrown instanceof GatewayError) || (thrown.status >= 500 && thrown.status < 502)) throw thrown
      }
      const { finish, usage } = collect(deltas)
      if (ended !== (finish !== null)) throw new Error('an end without a finish, or a finish without an end')
      for (const count of Object.values(usage ?? {})) {
        if (!Number.isSafeInteger(count) || count < 0) throw new Error(`a count of ${count}`)
      }
      if (ended) finished++
      else refused++
    }),
    { seed: SEED, numRuns: RUNS },
  )
  t.comment(`damaged streams: ${finished} finished, ${refused} refused`)
  t.ok(finished > RUNS / 20)
  t.ok(refused > RUNS / 20)
})

t.test('frames of any JSON, and of anything else', async t => {
  fc.assert(
    fc.property(
      fc.array(
        fc.oneof(
          fc.json(),
          fc.string(),
          fc.jsonValue().map(value => JSON.stringify({ type: 'response.completed', response: value })),
        ),
      ),
      frames => {
        const decoder = openaiResponses.decoder(() => undefined)
        try {
          for (const frame of frames) decoder.frame('', frame)
          decoder.end()
        } catch (thrown) {
          if (!(thrown instanceof GatewayError)) throw thrown
        }
      },
    ),
    { seed: SEED, numRuns: 2000 },
  )
  fc.assert(
    fc.property(fc.integer({ min: 300, max: 599 }), fc.oneof(fc.json(), fc.string()), (status, body) => {
      const error = openaiResponses.failure(status, body)
      if (!(error instanceof GatewayError) || error.status === 500)
        throw new Error(`${status} became ${error.status}`)
    }),
    { seed: SEED, numRuns: 2000 },
  )
  t.pass('nothing but GatewayErrors')
})

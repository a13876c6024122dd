/**
 * Everything a provider can do wrong to a line of a batch, in every format, alone and with a second endpoint to fall
 * back on: the line ends as documented, and nothing hangs. One batch for each, three of them at once.
 */
import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { SIM_FORMATS, SIM_SLUG, simProvider } from '../../src/apps/simulator/rows.ts'
import { FAILURES } from '../../src/base/errors.ts'
import { loadConfig } from '../../src/process/config/config.ts'
import type { BatchRecord } from '../../src/storage/batches.ts'
import { type BatchWorld, startBatchWorld } from '../support/batch-world.ts'
import { CASES, type Expected, isFinal, SILENT, statusOf } from '../support/fault-cases.ts'
import { createFaultySim } from '../support/sim-faults.ts'
import { TestClock } from '../support/test-clock.ts'

/** At a provider that drips, a line ends by no deadline of its own: a batch may wait for hours. */
const PATIENT = new Set(['drip-250'])
const SILENCE_MS = 20_000
const STEP_MS = 20
const { batches: BATCHES, timeouts: TIMEOUTS } = loadConfig([], {})
/** As many second attempts are always allowed; of more, the retry budget would refuse some. */
const CONCURRENCY = 3

interface Variant {
  readonly kind: string
  readonly expected: Expected
  readonly format: (typeof SIM_FORMATS)[number]
  readonly fallback: boolean
}

const modelOf = ({ kind, format, fallback }: Variant) =>
  `${fallback ? 'backed' : 'faults'}/${format}-fail-${kind}`

function variantsOf(isSilent: boolean): readonly Variant[] {
  return SIM_FORMATS.flatMap(format =>
    Object.entries(CASES)
      .filter(([kind]) => SILENT.has(kind) === isSilent && !PATIENT.has(kind))
      .flatMap(([kind, expected]) => [false, true].map(fallback => ({ kind, expected, format, fallback }))),
  )
}

async function start(t: Test, variants: readonly Variant[], isSilent: boolean): Promise<BatchWorld> {
  const clock = new TestClock(Date.UTC(2026, 4, 1))
  const sim = createFaultySim()
  const { url } = await sim.listen()
  t.teardown(() => sim.close())
  return await startBatchWorld(t, {
    clock,
    config: {
      // Lines that fail on purpose would hold up the others.
      routing: { loadBalancing: false, breakerFailures: null, hedgeAfterMs: null },
      batches: { ...BATCHES, concurrency: CONCURRENCY },
      ...(isSilent
        ? {
            timeouts: {
              ...TIMEOUTS,
              upstreamHeadersMs: SILENCE_MS,
              upstreamIdleMs: SILENCE_MS,
            },
          }
        : {}),
    },
    providers: [simProvider(url)],
    models: variants.map(variant => {
      const { kind, format, fallback } = variant
      const faulty = { provider: SIM_SLUG, upstreamModel: `fail-${kind}`, format }
      const echo = { provider: SIM_SLUG, upstreamModel: 'echo', format: 'openai-chat' as const }
      return { id: modelOf(variant), endpoints: fallback ? [faulty, echo] : [faulty] }
    }),
  })
}

/** The types of errors by the status that a caller would get. */
const TYPES: ReadonlyMap<number, string> = new Map(
  Object.values(FAILURES)
    .map(({ status, errorType }): [number, string] => [status, errorType])
    .toReversed(),
)

/** Waits for one after the other: they run together all the same. */
async function ended(world: BatchWorld, ids: readonly string[]): Promise<readonly BatchRecord[]> {
  const batches: BatchRecord[] = []
  for (const id of ids) {
    for (;;) {
      const batch = await world.batch(id)
      if (['completed', 'failed', 'expired', 'cancelled'].includes(batch.status)) {
        batches.push(batch)
        break
      }
      world.clock.advance(STEP_MS)
      await delay(1)
    }
  }
  return batches
}

let checked = 0

for (const isSilent of [false, true]) {
  t.test(isSilent ? 'silence' : 'faults', async t => {
    const variants = variantsOf(isSilent)
    const world = await start(t, variants, isSilent)
    const ids: string[] = []
    for (const variant of variants) {
      const { id } = await world.put({ model: modelOf(variant), lines: ['one two three'] })
      ids.push(id)
    }
    const batches = await ended(world, ids)
    for (const [at, variant] of variants.entries()) {
      const { kind, expected, format, fallback } = variant
      const name = `${kind} over ${format}${fallback ? ', with a fallback' : ''}`
      const [result] = await world.results(ids[at] ?? '')
      const status = fallback && !isFinal(expected) ? null : statusOf(kind, expected, format)
      t.equal(batches[at]?.status, 'completed', name)
      const error = result?.document.error ?? null
      t.equal(
        error?.error_type ?? null,
        status === null ? null : TYPES.get(status),
        `${name}: ${error?.message}`,
      )
      t.equal(result?.document.response?.status_code ?? null, status === null ? 200 : null, name)
      checked++
    }
  })
}

t.test('the matrix is whole', async t => {
  t.ok(checked >= 260, `${checked} combinations of fault, format and fallback for lines of batches`)
})

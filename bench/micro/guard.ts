/**
 * Cost of the guard stage per request: for callers without guardrails (none), and with nine detectors and twenty custom
 * patterns on 2 KB of text; and the same for a reply that arrives in 400 deltas: `npx node bench/micro/guard.ts`.
 * Figures are comparable only within one run.
 */

import { systemClock } from '../../src/base/clock.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import { Guardrails } from '../../src/callers/guardrails.ts'
import { Exchange } from '../../src/exchange/exchange.ts'
import { createGuard, type Guardrail, prepareGuardrail } from '../../src/pipeline/guard/guard.ts'
import { type GuardedAttempt, OutputGuard } from '../../src/pipeline/guard/reply.ts'
import { type AppliedGuardrail, defaultGuardrail } from '../../src/storage/guardrails.ts'
import { parseResponsesRequest } from '../../test/support/dialects.ts'
import { scriptedContext } from '../../test/support/scripted-attempt.ts'
import { DETECTORS, REPLY_DETECTORS } from '../guards.ts'

const ROUNDS = 9
const PROSE =
  'Thank you for the update on the Lisbon project. We reviewed the draft on 12 March 2024 and found that section 3.2 needs another look: the totals do not add up. '
const TEXT = PROSE.repeat(20).slice(0, 2_048)

const redacting = <Slug extends string>(slugs: readonly Slug[]) =>
  slugs.map(slug => ({ slug, action: 'redact', scanScope: 'all_messages' }) as const)

const filters = {
  contentFilterBuiltins: redacting(DETECTORS),
  contentFilters: Array.from({ length: 20 }, (_, n) => ({
    pattern: `(?i)codename[- ]${String.fromCharCode(97 + n)}[a-z]+\\d*`,
    action: 'redact' as const,
    label: null,
  })),
}
const guardrail = defaultGuardrail({ organizationId: 'o', id: 'w', createdAt: '2026-01-01T00:00:00.000Z' })
const applied: readonly AppliedGuardrail[] = [
  {
    scope: 'workspace',
    guardrail: {
      ...guardrail,
      ...filters,
      output: {
        ...filters,
        contentFilterBuiltins: redacting(REPLY_DETECTORS),
        windowBytes: 1024,
        overlapBytes: 256,
      },
    },
  },
]

const metrics = createMetrics()
const tasks = { run: () => Promise.reject(new Error('the pool was asked')) }
const request = parseResponsesRequest({ model: 'm/x', input: TEXT })
const exchange = () =>
  new Exchange(
    {
      context: scriptedContext(),
      caller: { keyHash: 'k', organizationId: 'o', workspaceId: 'w', memberId: null, limit: null },
      request,
      dialect: 'responses',
      withMetadata: false,
      dataRegion: null,
    },
    1,
  )

async function report(name: string, count: number, call: () => unknown): Promise<void> {
  for (let n = 0; n < count; n++) await call()
  const times: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const started = process.hrtime.bigint()
    for (let n = 0; n < count; n++) {
      const result = call()
      if (result instanceof Promise) await result
    }
    times.push(Number(process.hrtime.bigint() - started) / count)
  }
  times.sort((a, b) => a - b)
  const [least, median, most] = [times[0] ?? 0, times[ROUNDS >> 1] ?? 0, times.at(-1) ?? 0]
  process.stdout.write(
    `${name.padEnd(52)} ${median.toFixed(0).padStart(8)} ns (${least.toFixed(0)}..${most.toFixed(0)})\n`,
  )
}

async function guardOf(list: readonly AppliedGuardrail[]) {
  const store = { guardrails: { guardrailsFor: async () => list } }
  const guardrails = new Guardrails<Guardrail>({ store, clock: systemClock, prepare: prepareGuardrail })
  const known = await guardrails.of(exchange().caller)
  return { guard: createGuard({ guardrails, tasks, metrics }), known }
}

const one = exchange()
const free = await guardOf([])
await report('request of a caller without guardrails', 100_000, () => free.guard.request(one))
const guarded = await guardOf(applied)
await report('request of 2 KB, 9 detectors, 20 patterns', 300, () => guarded.guard.request(one))

const output = guarded.known?.output
if (output == null) throw new Error('nothing guards replies')
const deltas = Array.from({ length: 400 }, (_, n) => TEXT.slice((n * 2048) / 400, ((n + 1) * 2048) / 400))
await report('reply of 2 KB in 400 deltas, the same rules', 300, () => {
  const { promise, resolve } = Promise.withResolvers<void>()
  const nothing = () => undefined
  const attempt: GuardedAttempt = {
    refuse: error => {
      throw error
    },
    turn: work => work(),
    pause: nothing,
    resume: nothing,
  }
  const guard = new OutputGuard({ rules: output, tasks, metrics }, one, attempt, {
    sink: { cork: nothing, flush: () => true },
    committed: true,
    receive: nothing,
    end: done => done(),
    close: nothing,
  })
  for (const text of deltas) guard.receive({ kind: 'text', item: 0, part: 0, text, logprobs: null })
  guard.end(resolve)
  return promise
})

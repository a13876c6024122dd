/** The guard of a reply in isolation: rules, a pool, and an attempt that keeps what it gets. */
import type { GatewayError } from '../../../src/base/errors.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { createEvaluator } from '../../../src/features/tasks/evaluate-texts.ts'
import { TaskError } from '../../../src/features/tasks/task.ts'
import type { Content } from '../../../src/pipeline/answer/answer.ts'
import type { OutputGuardRules } from '../../../src/pipeline/guard/compiled-rules.ts'
import type { GuardTasks } from '../../../src/pipeline/guard/evaluate.ts'
import { prepareGuardrail } from '../../../src/pipeline/guard/guard.ts'
import { type GuardedAttempt, OutputGuard } from '../../../src/pipeline/guard/reply.ts'
import type { FilterAction, GuardrailRecord } from '../../../src/protocol/management/guardrails.ts'
import type { Logprob } from '../../../src/protocol/parts.ts'
import { defaultGuardrail } from '../../../src/storage/guardrails.ts'
import { CUSTOM_PATTERNS } from '../../support/guardrail-texts.ts'
import { scriptedExchange } from '../../support/scripted-attempt.ts'

type Output = NonNullable<GuardrailRecord['output']>

export const evaluate = createEvaluator()
/** A pool that answers in later turns of the event loop. */
const POOL: GuardTasks = {
  run: (async (_: string, input: Parameters<typeof evaluate>[0]) => {
    for (let turns = input.texts[0]?.text.length ?? 0; turns % 3 > 0; turns--)
      await new Promise(resolve => setImmediate(resolve))
    return evaluate(input)
  }) as GuardTasks['run'],
}
export const failing = (outcome: ConstructorParameters<typeof TaskError>[0]): GuardTasks => ({
  run: () => Promise.reject(new TaskError(outcome)),
})
export const NEVER: GuardTasks = { run: () => new Promise<never>(() => undefined) }

/** So many characters of patterns that they are left to the pool. */
export const LONG = Array.from({ length: 9 }, (_, n) => ({
  pattern: `${'y'.repeat(500)}${n}`,
  action: 'flag' as const,
  label: null,
}))

export function outputOf(action: FilterAction, more: Partial<Output> = {}): Output {
  return {
    contentFilterBuiltins: [{ slug: 'email', action, scanScope: 'all_messages' }],
    contentFilters: CUSTOM_PATTERNS.map(pattern => ({ pattern, action, label: null })),
    windowBytes: 256,
    overlapBytes: 64,
    ...more,
  }
}

export interface Options {
  readonly output: Output
  readonly tasks?: GuardTasks
  readonly failMode?: 'open' | 'closed'
  /** Whether what is delivered commits the attempt. */
  readonly live?: boolean
}

const prepared = new Map<string, OutputGuardRules>()

/** Compiled once for each test that needs them. */
function rulesOf(output: Output, failMode: 'open' | 'closed'): OutputGuardRules {
  const name = JSON.stringify([output, failMode])
  const known = prepared.get(name)
  if (known !== undefined) return known
  const guardrail = {
    ...defaultGuardrail({ organizationId: 'o', id: 'w', createdAt: '2026-01-01T00:00:00.000Z' }),
    output,
    failMode,
  }
  const rules = prepareGuardrail([{ scope: 'workspace', guardrail }])?.output
  if (rules == null) throw new Error('there are no rules')
  prepared.set(name, rules)
  return rules
}

export function start({ output, tasks = POOL, failMode = 'closed', live = true }: Options) {
  const rules = rulesOf(output, failMode)
  const exchange = scriptedExchange()
  const metrics = createMetrics()
  const delivered: Content[] = []
  const state = { error: null as GatewayError | null, finished: false, pauses: 0, resumes: 0 }
  const over = Promise.withResolvers<void>()
  const attempt: GuardedAttempt = {
    refuse(error) {
      state.error = error
      over.resolve()
    },
    turn: work => work(),
    pause: () => void state.pauses++,
    resume: () => void state.resumes++,
  }
  const guard = new OutputGuard({ rules, tasks, metrics }, exchange, attempt, {
    sink: { cork: () => undefined, flush: () => true },
    get committed() {
      return live && delivered.length > 0
    },
    receive: delta => void delivered.push(delta),
    end: done => done(),
    close: () => undefined,
  })
  return {
    guard,
    exchange,
    metrics,
    delivered,
    state,
    end(): Promise<void> {
      guard.end(() => {
        state.finished = true
        over.resolve()
      })
      return over.promise
    },
  }
}

export const text = (said: string, item = 0, part = 0): Content => ({
  kind: 'text',
  item,
  part,
  text: said,
  logprobs: null,
})
export const open = (item: number): Content => ({
  kind: 'open',
  item,
  start: { type: 'message', id: null, phase: null },
})
export const said = (delivered: readonly Content[]): string =>
  delivered.map(delta => ('text' in delta ? delta.text : '')).join('')
export const kinds = (delivered: readonly Content[]): string =>
  delivered.map(delta => ('text' in delta ? delta.text : `<${delta.kind} ${delta.item}>`)).join('')

export const token = (of: string): Logprob => ({ token: of, logprob: -1, bytes: [], top_logprobs: [] })
export const tokensIn = (delivered: readonly Content[]) =>
  delivered.flatMap(delta => (delta.kind === 'text' ? (delta.logprobs ?? []) : [])).map(each => each.token)

/** Where it would be sent. */
export const MAIL = 'anna@example.com'

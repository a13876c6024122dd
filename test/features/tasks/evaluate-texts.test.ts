/** Guardrail rules on texts, in workers. */
import t from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import type { RuleSet } from '../../../src/features/guardrails/detector.ts'
import { compileRules } from '../../../src/features/guardrails/rules.ts'
import { createEvaluator } from '../../../src/features/tasks/evaluate-texts.ts'
import { createTaskPool } from '../../../src/features/tasks/pool/pool.ts'
import { TaskFailure } from '../../../src/features/tasks/task.ts'

const RULES: RuleSet = {
  builtins: [],
  custom: [
    { pattern: 'secret-[0-9]+', action: 'redact', label: '[SECRET]' },
    { pattern: 'forbidden', action: 'block', label: null },
  ],
}
const TEXTS = [
  { text: 'my secret-42 is forbidden', who: 'user' },
  { text: 'nothing here', who: 'other' },
  { text: '', who: 'user' },
] as const

t.test('a worker finds what a scan on this thread finds', async t => {
  const pool = createTaskPool({ threads: 1, clock: systemClock, metrics: createMetrics() })
  t.teardown(() => pool.close())
  const found = await pool.run(
    'evaluate-texts',
    { rules: RULES, key: 'k', texts: TEXTS },
    { deadlineMs: 30_000 },
  )
  const scanner = compileRules(RULES)
  t.same(
    found,
    TEXTS.map(({ text, who }) => scanner.scan(text, who)),
  )
  t.same(
    found.map(({ length }) => length),
    [2, 0, 0],
  )
})

t.test('rules are compiled once for their key', async t => {
  const evaluate = createEvaluator()
  const texts = [{ text: 'forbidden', who: 'user' }] as const
  t.equal(evaluate({ rules: RULES, key: 'one', texts })[0]?.length, 1)
  const none: RuleSet = { builtins: [], custom: [] }
  t.equal(evaluate({ rules: none, key: 'one', texts })[0]?.length, 1, 'the key stands for the rules')
  t.equal(evaluate({ rules: none, key: 'two', texts })[0]?.length, 0)
  for (let n = 0; n < 64; n++) evaluate({ rules: none, key: `filler ${n}`, texts })
  t.equal(evaluate({ rules: none, key: 'one', texts })[0]?.length, 0, 'the oldest was forgotten')
})

t.test('rules that cannot be compiled are told as such, each time', async t => {
  const evaluate = createEvaluator()
  const rules: RuleSet = { builtins: [], custom: [{ pattern: '(', action: 'flag', label: null }] }
  for (const field of [undefined, undefined, 'output.content_filters'] as const) {
    try {
      evaluate({ rules, key: 'bad', ...(field === undefined ? {} : { field }), texts: [] })
      t.fail('it was compiled')
    } catch (error) {
      t.ok(error instanceof TaskFailure)
      const place = `${field ?? 'content_filters'}[0].pattern: `
      t.ok(error instanceof TaskFailure && error.message.startsWith(place), place)
      t.match(error, { code: 'bad_rules' })
    }
  }
})

/** What is looked at on the thread that asks holds up nobody, whatever the rules and the texts are. */
import t from 'tap'
import { INLINE_MAX_FINDINGS, ScanCost } from '../../../src/features/guardrails/cost.ts'
import type { RuleSet } from '../../../src/features/guardrails/detector.ts'
import { compileRules } from '../../../src/features/guardrails/rules.ts'
import { FILTERS_MAX_ITEMS } from '../../../src/protocol/limits.ts'
import { bestCpuMs } from '../../support/cpu-time.ts'
import { ALL_SLUGS, rulesOf } from '../../support/guardrail-texts.ts'

/** How long streams of the same thread may stand still. */
const STILL_MS = 50
const LONG = 200 * 1024
const LENGTHS = [100, 500, 1_000, 2_000, 5_000, 12_000, 50_000, LONG]
/** Guardrails that may hold together: of the workspace, of the member and of the API key. */
const MERGED = 3

const patterns = (many: number, pattern: (at: number) => string): RuleSet => ({
  builtins: [],
  custom: Array.from({ length: many }, (_, at) => ({ pattern: pattern(at), action: 'redact', label: null })),
})
const letters = 'abcdefghijklmnopqrstuvwxyz'

/** Each as many as allowed, and alone: what reads far, what matches everywhere, what makes the automaton large. */
const FORMS: readonly ((at: number) => string)[] = [
  at => `a(?:.*z${at})?`,
  at => `a(?:a+z${at})?`,
  at => `a(?:[^b]{0,300}z${at})?`,
  at => `[a-z${String.fromCharCode(0x400 + at)}]`,
  at => `[a-z]{0,${1 + (at % 9)}}`,
  at => `[^b]{150}c${at}`,
  at => `(?:a|b)*c.{15}${at}`,
  at => `(?i)\\bcode${at}\\s+[a-z]{3,12}\\b`,
  at => `\\p{L}{20}${at}`,
  at => letters[at % 26] ?? 'a',
  at => `.*${at}`,
  at => `\\d{0,30}${at % 2 === 0 ? '' : '?'}`,
]
const POLICIES: readonly RuleSet[] = [
  ...FORMS.flatMap(form => [1, 5, 20, FILTERS_MAX_ITEMS].map(many => patterns(many, form))),
  rulesOf(ALL_SLUGS, 'redact', true),
  rulesOf(['ssn'], 'redact', false),
]
const UNITS = ['a', 'ab', 'abc def ', 'aaaaaaaaac1 ', 'code1 abcd ', '1', '123-45-6789 ', 'я', 'a@b.cc ']

const filled = (unit: string, length: number): string =>
  unit.repeat(Math.ceil(length / unit.length)).slice(0, length)

/** What the machine does beside it is not the question, nor what was compiled meanwhile. */
function best(work: () => void): number {
  const took = bestCpuMs(work)
  return took > STILL_MS ? Math.min(took, bestCpuMs(work, 6)) : took
}

t.test('the worst allowed policy never looks at 200 KB inline', async t => {
  for (const form of FORMS) {
    for (const many of [FILTERS_MAX_ITEMS, MERGED * FILTERS_MAX_ITEMS]) {
      t.equal(new ScanCost(patterns(many, form)).placeFor(LONG), 'offload', form(1))
    }
  }
})

t.test('to estimate the longest patterns takes no time either', async t => {
  const rules = patterns(MERGED * 2, () => '()'.repeat(50_000))
  const took = best(() => t.equal(new ScanCost(rules).placeFor(1), 'offload'))
  t.ok(took < STILL_MS / 5, `${took} ms`)
})

t.test('whatever is looked at inline takes less than a twentieth of a second', async t => {
  for (const most of [INLINE_MAX_FINDINGS, Number.POSITIVE_INFINITY]) {
    let inline = 0
    for (const policy of POLICIES) {
      const cost = new ScanCost(policy)
      const longest = LENGTHS.findLast(length => cost.placeFor(length, 1, most) === 'inline')
      if (longest === undefined) continue
      const scanner = compileRules(policy)
      for (const unit of UNITS) {
        const text = filled(unit, longest)
        const took = best(() => scanner.scanUpTo(most, text, 'user'))
        inline++
        if (took > STILL_MS)
          t.fail(`${policy.custom[0]?.pattern} x ${policy.custom.length} on ${longest} of ${unit}: ${took}`)
      }
    }
    t.ok(inline > 100, `${inline} pairs, up to ${most} findings`)
  }
})

t.test('a text with too much in it is given up, one with just as much as allowed is not', async t => {
  const scanner = compileRules(rulesOf(['email'], 'redact', false))
  for (const [many, most, seen] of [
    [3, 3, 3],
    [4, 3, null],
    [0, 0, 0],
    [1, 0, null],
  ] as const) {
    const found = scanner.scanUpTo(most, 'ann@example.com '.repeat(many), 'user')
    t.equal(found === null ? null : found.length, seen, `${many} of ${most}`)
  }
})

t.test('twenty patterns of a company stay for prompts of two thousand characters', async t => {
  const host = (name: string) => `\\b[a-z0-9-]{1,40}\\.${name}\\.example\\b`
  const hosts = patterns(5, at => host(`net${at}`)).custom
  const numbers = patterns(15, at => `\\bEMP${at}-[0-9]{4,8}\\b`).custom
  const slugs = ALL_SLUGS.filter(slug => slug !== 'regex-prompt-injection')
  const cost = new ScanCost({ ...rulesOf(slugs, 'redact', false), custom: [...hosts, ...numbers] })
  t.equal(cost.placeFor(2_000, 1, INLINE_MAX_FINDINGS), 'inline')
})

t.test('the texts of a request count together, and so do the patterns', async t => {
  const five = new ScanCost(patterns(5, at => `word${at} [0-9]{3}`))
  t.equal(five.placeFor(10_000, 1), 'inline')
  t.equal(five.placeFor(10_000, 20_000), 'offload', 'many small texts')
  const far = (many: number) => new ScanCost(patterns(many, at => `a(?:.*z${at})?`))
  t.equal(far(1).placeFor(500, 1, 4), 'inline')
  t.equal(far(FILTERS_MAX_ITEMS).placeFor(500, 1, 4), 'offload', 'many that read far')
  const large = (many: number) => new ScanCost(patterns(many, at => `[^b]{150}c${at}[[:digit:]]`))
  t.equal(large(1).placeFor(200), 'inline')
  t.equal(large(5).placeFor(200), 'offload', 'an automaton that takes long to build')
})

t.test('what rules usually cost lets prompts of two thousand characters stay', async t => {
  const usual = patterns(10, at => `\\bEMP${at}-\\d{6}\\b`)
  const slugs = ALL_SLUGS.filter(slug => slug !== 'regex-prompt-injection')
  t.equal(
    new ScanCost({ ...rulesOf(slugs, 'redact', false), custom: usual.custom }).placeFor(2_000, 5),
    'inline',
  )
})

t.test('a window in which much is found counts for more', async t => {
  const cost = new ScanCost(patterns(1, () => 'a(?:.*z)?'))
  t.ok(cost.windowMicros(1_024, 0) < 20)
  t.ok(cost.windowMicros(1_024, 100) > 1_000)
  t.ok(new ScanCost(rulesOf(['email'], 'redact', false)).windowMicros(1_024, 100) < 1_000)
})

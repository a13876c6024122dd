import { RE2JS } from 're2js'
import t from 'tap'
import { patternProblem } from '../../../src/features/guardrails/custom.ts'
import type { CustomRule } from '../../../src/features/guardrails/detector.ts'
import { compileRules, InvalidPattern, redact } from '../../../src/features/guardrails/rules.ts'
import { bestCpuMs, cpuMs } from '../../support/cpu-time.ts'

const rules = (...patterns: readonly (string | CustomRule)[]) => ({
  builtins: [],
  custom: patterns.map(each =>
    typeof each === 'string' ? ({ pattern: each, action: 'redact', label: null } as const) : each,
  ),
})
const redacted = (pattern: string, text: string): string =>
  redact(text, compileRules(rules(pattern)).scan(text, 'user'))

t.test('what RE2 cannot do is refused with a reason that names it', async t => {
  for (const [pattern, reason] of [
    ['foo(?=bar)', /lookaround/],
    ['foo(?!bar)', /lookaround/],
    ['(?<=a)b', /lookaround/],
    ['(?<!a)b', /lookaround/],
    ['(a)\\1', /backreferences/],
    ['(?P<x>a)(?P=x)', /backreferences/],
    ['(?<x>a)\\k<x>', /backreferences/],
    ['(a+)+', /nest quantifiers/],
    ['(?:a*)*b', /nest quantifiers/],
    ['(\\w+\\s?)+$', /nest quantifiers/],
    ['((a{2,})b)*', /nest quantifiers/],
    ['(a+){2,9}', /nest quantifiers/],
    ['a**', /nest quantifiers/],
    ['a+*', /nest quantifiers/],
    ['a++', /possessive/],
    ['(?>a)', /atomic/],
    ['(?#x)a', /comments/],
    ['(?(1)a|b)', /conditions/],
    ['a{1001}', /at most 1000 times/],
    ['(', /close every group/],
    ['a)', /close a group that is not open/],
    ['[a', /close every \[class\]/],
    ['a\\', /end in a backslash/],
    ['*a', /RE2 syntax/],
    ['[z-a]', /RE2 syntax/],
    ['\\p{Nonsense}', /RE2 syntax/],
    ['', /not be empty/],
    ['a'.repeat(100_001), /at most 100000 characters/],
    ['(?i)'.padEnd(50_000, 'a'), /at most 2000 characters/],
    ['\\pL{900}\\pL{900}\\pL{900}', /at most 2000 characters/],
    ['((a{100}){100}){100}', /at most 2000 characters/],
    [`${'('.repeat(101)}a${')'.repeat(101)}`, /100 deep/],
  ] as const) {
    const problem = patternProblem(pattern) ?? 'none'
    t.match(problem, reason, pattern.slice(0, 40))
    t.notMatch(problem, /Nonsense|foo|aaaa/, 'no part of the pattern is repeated')
  }
})

t.test('a bad pattern is a 400 that names its field and has the code', async t => {
  try {
    compileRules(rules('fine', '(a+)+'))
    t.fail('not refused')
  } catch (error) {
    t.ok(error instanceof InvalidPattern)
    t.match(error, { status: 400, index: 1, metadata: { code: 'invalid_regex_pattern' } })
    t.match(String(error), /content_filters\[1\]\.pattern: must not nest quantifiers/)
  }
})

t.test('what people write is taken', async t => {
  for (const pattern of [
    'secret',
    '(?i)project titan',
    '\\bEMP-\\d{6}\\b',
    '[A-Z]{2}\\d{2}(?: ?[A-Z0-9]{4}){3,7}',
    '(?:\\d{1,3}\\.){3}\\d{1,3}',
    'foo|bar|baz',
    '^line$',
    '(?m)^Subject: .*$',
    '(?s)begin.{0,500}end',
    '\\$\\d+(?:,\\d{3})*(?:\\.\\d{2})?',
    '[[:alpha:]]+@acme',
    '(?P<id>\\d+)',
    '(?<id>\\d+)',
    'a{3}',
    'a{2,5}?',
    '\\Qa.b*\\E',
    '\\x{1F600}',
    '\\p{Greek}+',
    '[]a]+',
    '[^]a]',
    'a{',
    'x{,3}',
    '\\.',
    'grün',
    '漢字',
    '(?i:abc)d',
    '.*',
    'a'.repeat(100_000),
    '\\/path\\/[^/]+',
  ]) {
    t.equal(patternProblem(pattern), null, pattern.slice(0, 40))
  }
})

t.test(
  'matches are replaced by [REDACTED], whatever the label; case, classes and alternatives work',
  async t => {
    t.equal(
      redacted('(?i)project[- ]titan', 'On PROJECT-titan and project Titan'),
      'On [REDACTED] and [REDACTED]',
    )
    t.equal(redacted('[0-9]+', 'a1b22c'), 'a[REDACTED]b[REDACTED]c')
    t.equal(redacted('secret', 'secretsecret secre'), '[REDACTED][REDACTED] secre')
    t.equal(redacted('x*', 'axxb'), 'a[REDACTED]b', 'what is empty hides nothing')
    t.equal(redacted('😀+', 'a😀😀b'), 'a[REDACTED]b')
    const scanner = compileRules(rules({ pattern: 'titan', action: 'redact', label: '[CODENAME]' }))
    const findings = scanner.scan('the titan', 'other')
    t.same(findings, [
      {
        detector: 'custom',
        pattern: '[CODENAME]',
        action: 'redact',
        start: 4,
        end: 9,
        replacement: '[REDACTED]',
        rule: 0,
      },
    ])
    t.equal(redact('the titan', findings), 'the [REDACTED]')
    t.notMatch(JSON.stringify(findings), 'titan', 'what matched is not told')
  },
)

t.test('a pattern finds the same whether it is alone or one of many', async t => {
  const patterns = ['foo\\d', '\\bbar\\b', '(?i)baz', 'f.o', '^start', 'end$', '[a-c]{2}', 'literal text']
  const text = 'start foo1 BAR bar Baz fxo literal text abc cab the end'
  const together = compileRules(rules(...patterns)).scan(text, 'user')
  for (const [rule, pattern] of patterns.entries()) {
    const alone = compileRules(rules(pattern)).scan(text, 'user')
    t.same(
      together.filter(found => found.rule === rule),
      alone.map(found => ({ ...found, rule })),
      pattern,
    )
    const expected = [...RE2JS.compile(pattern).matchAll(text)].map(match => match.index)
    t.same(
      alone.map(({ start }) => start),
      expected,
      pattern,
    )
  }
})

/** More than 200 ways to ask for too much: each is refused, or runs in a moment. */
function hostile(): string[] {
  const found: string[] = []
  for (const inner of ['a', '\\w', '.', '[a-z]', 'ab', '\\pL', '(?i:k)', '\\d', '[^x]', '(?:a|b)']) {
    for (const shape of [
      '(X+)+',
      '(X*)*',
      '(X+)*$',
      '(?:X{2,})+',
      '(X|X)*y',
      '(X|X|X){50}',
      'X{1000}',
      'X{500}X{500}',
      '(X{30}){30}',
      '((X{10}){10}){10}',
      '(X?){500}X{500}',
      'X*X*X*X*X*y',
      '(?:X*){3}',
      'X{0,1000}y',
      '(?s).*X.*X.*X',
      '(X|y){200}z',
      '^(X+)+$',
      '(?i)X{900}',
      'X+X+X+X+!',
      '(?:X{1,50}){1,20}q',
    ]) {
      found.push(shape.replaceAll('X', inner))
    }
  }
  return [
    ...found,
    '('.repeat(50_000),
    '['.repeat(50_000),
    'a|'.repeat(30_000),
    '\\'.repeat(9_999),
    '(a'.repeat(2_000),
    '\\pL'.repeat(30_000),
    '{'.repeat(1_000),
    'a{999}'.repeat(500),
    `${'(?:'.repeat(90)}a${'){9}'.repeat(90)}`,
  ]
}

/** Of the processor. An exponential pattern would take years, a cubic one minutes. */
const SLOW_MS = 5_000

t.test('hostile patterns are refused, or neither compiling nor matching takes long', async t => {
  const all = hostile()
  t.ok(all.length >= 200, `${all.length} patterns`)
  let refused = 0
  let slowest = { pattern: '', ms: 0 }
  const texts = ['a'.repeat(1_500), 'ab1 '.repeat(300), `${'k'.repeat(999)}!`]
  for (const pattern of all) {
    let isRefused = false
    const look = () => {
      isRefused = patternProblem(pattern) !== null
      if (isRefused) return
      const scanner = compileRules(rules(pattern))
      for (const text of texts) scanner.scan(text, 'user')
    }
    const once = cpuMs(look)
    // Collectors and compilers may have been at work in it as well.
    const ms = once > SLOW_MS ? bestCpuMs(look, 2) : once
    if (isRefused) refused++
    if (ms > slowest.ms) slowest = { pattern: pattern.slice(0, 40), ms }
  }
  t.comment(`${refused} of ${all.length} refused; slowest ${slowest.pattern}: ${slowest.ms.toFixed(0)} ms`)
  t.ok(refused > 60)
  t.ok(slowest.ms < SLOW_MS, slowest.pattern)
})

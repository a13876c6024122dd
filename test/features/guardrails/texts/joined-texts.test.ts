/** What crosses from one text of a request into the next, and what does not. */
import fc from 'fast-check'
import t from 'tap'
import type { Finding } from '../../../../src/features/guardrails/detector.ts'
import { compileRules, redact } from '../../../../src/features/guardrails/rules.ts'
import {
  type JoinedText,
  joinedTexts,
  withCrossing,
} from '../../../../src/features/guardrails/texts/joined-texts.ts'
import { rulesOf } from '../../../support/guardrail-texts.ts'
import { search } from '../../../support/property.ts'

const SCANNER = compileRules({
  ...rulesOf(['email'], 'redact', false),
  custom: [{ pattern: 'CASE-[0-9]{3,}', action: 'redact', label: null }],
})

/** The texts as a model gets them. */
function redacted(...said: readonly string[]): readonly string[] {
  const texts = said.map(text => ({ text, who: 'user', order: 'later' }) as const)
  const joined = joinedTexts(texts)
  const scan = ({ text }: { readonly text: string }) => SCANNER.scan(text, 'user')
  const findings = withCrossing(texts.map(scan), joined, joined.map(scan))
  return said.map((text, index) => redact(text, findings[index] ?? []))
}

t.test('what is split over texts is redacted in each of them', async t => {
  t.same(redacted('Write to ann@exa', 'mple.com please'), ['Write to [EMAIL]', ' please'])
  t.same(redacted('It is CASE-', '1234'), ['It is [REDACTED]', ''])
  t.same(redacted(...'ann@example.com'), ['[EMAIL]', ...Array.from({ length: 14 }, () => '')])
})

t.test('what one text has whole takes no words of its neighbours along', async t => {
  t.same(redacted('Write to ann@example.com', 'Sure', 'thanks'), ['Write to [EMAIL]', 'Sure', 'thanks'])
  t.same(redacted('Sure', 'ann@example.com', 'is mine'), ['Sure', '[EMAIL]', 'is mine'])
  t.same(redacted('ann@example.com', 'bob@example.com'), ['[EMAIL]', '[EMAIL]'])
  t.same(redacted('It is CASE-1234', '56 of them'), ['It is [REDACTED]', '56 of them'])
})

t.test('a finding of another rule in the same words does not hide what crosses', async t => {
  t.same(redacted('CASE-123@exam', 'ple.com'), ['[EMAIL]', ''])
})

/** The same, one finding after the other, by looking at all stretches. */
function crossingOneByOne(
  findings: readonly (readonly Finding[])[],
  joined: readonly JoinedText[],
  crossing: readonly (readonly Finding[])[],
): readonly (readonly Finding[])[] {
  const all = findings.map(own => [...own])
  for (const [number, { text, stretches }] of joined.entries()) {
    for (const finding of crossing[number] ?? []) {
      const parts = stretches.filter(
        ({ position, length }) => position < finding.end && finding.start < position + length,
      )
      const isKnown = parts.some(({ index, start: from, position }) =>
        findings[index]?.some(
          ({ rule, start, end }) =>
            rule === finding.rule &&
            start - from < finding.end - position &&
            finding.start - position < end - from,
        ),
      )
      if (parts.length < 2 || isKnown) continue
      for (const [place, { index, start: from, position, length }] of parts.entries()) {
        all[index]?.push({
          ...finding,
          start: from + Math.max(0, finding.start - position),
          end: from + Math.min(length, finding.end - position),
          replacement: place === 0 ? finding.replacement : '',
          ...(place === 0 ? { continuedText: text.slice(position + length, finding.end) } : {}),
        })
      }
    }
  }
  return all.map(own => own.sort((a, b) => a.start - b.start || b.end - a.end || a.rule - b.rule))
}

t.test('of any texts, what crosses is found in all of its parts', async t => {
  const piece = fc.constantFrom(
    'joe@exa',
    'mple.com ',
    'ann@example.com',
    'CASE-',
    '1234',
    'CASE-12',
    ' and ',
    '',
  )
  const long = fc.tuple(piece, fc.nat(300), piece).map(([a, blanks, b]) => a + ' '.repeat(blanks) + b)
  fc.assert(
    fc.property(fc.array(fc.oneof(piece, piece, long), { maxLength: 30 }), said => {
      const texts = said.map(text => ({ text, who: 'user', order: 'later' }) as const)
      const joined = joinedTexts(texts)
      const scan = ({ text }: { readonly text: string }) => SCANNER.scan(text, 'user')
      const [own, crossing] = [texts.map(scan), joined.map(scan)]
      t.strictSame(withCrossing(own, joined, crossing), crossingOneByOne(own, joined, crossing))
    }),
    search(300),
  )
})

/** What crosses from one text of a request into the next, and what does not. */
import t from 'tap'
import { compileRules, redact } from '../../../src/guardrails/rules.ts'
import { joinedTexts, withCrossing } from '../../../src/guardrails/texts/joined-texts.ts'
import { rulesOf } from '../../support/guardrail-texts.ts'

const SCANNER = compileRules({
  ...rulesOf(['email'], 'redact', false),
  custom: [{ pattern: 'CASE-[0-9]{3,}', action: 'redact', label: null }],
})

/** The texts as a model gets them. */
function redacted(...said: readonly string[]): readonly string[] {
  const texts = said.map(text => ({ text, who: 'user', read: 'later' }) as const)
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

/** The plain form of texts, and what is found in it. */
import fc from 'fast-check'
import t from 'tap'
import { plainForm } from '../../../src/features/guardrails/plain-form.ts'
import { compileRules, redact } from '../../../src/features/guardrails/rules.ts'
import { TextWindow } from '../../../src/features/guardrails/window.ts'
import { rulesOf } from '../../support/guardrail-texts.ts'

t.test('texts in usual characters of any script have their plain form already', async t => {
  for (const text of [
    'plain',
    'Größe, “café” …',
    'Привет',
    '東京タワー',
    '안녕하세요',
    'a – b'.replace('–', '-'),
    '😀',
  ]) {
    t.equal(plainForm(text), null, text)
  }
})

t.test('characters have the form that a reader takes them for', async t => {
  for (const [text, plain] of [
    ['ａ１－＠', 'a1-@'],
    ['٣۴५', '345'],
    ['𝟙𝟚', '12'],
    ['a\u00ad\u200b\u2060\ufeffb', 'ab'],
    ['1–2‑3−4', '1-2-3-4'],
    ['1\u00a0\u2009\u30002', '1   2'],
    ['ﬁ½', 'fi1⁄2'],
    ['\\u0041\\/\\u00e9', 'A/é'],
    ['\\x41\\u00', null],
  ] as const) {
    t.equal(plainForm(text)?.text ?? null, plain, JSON.stringify(text))
  }
})

const SCANNER = compileRules({
  ...rulesOf(['email', 'ssn', 'secrets'], 'redact', false),
  custom: [{ pattern: 'CANARY-[0-9]{6}', action: 'redact', label: null }],
})
const HIDDEN = ['ann@example.com', '536-22-1234', 'CANARY-123456', 'AKIAQYLPMN5HHHFPZAM2']
const DISGUISES: readonly ((character: string) => string)[] = [
  character => character,
  character => `\u200b${character}`,
  character => `${character}\u00ad`,
  character => (/[!-~]/.test(character) ? String.fromCodePoint(character.charCodeAt(0) + 0xfee0) : character),
  character => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  character => (character === '-' ? '\u2011' : character),
  character => (/\d/.test(character) ? String.fromCodePoint(0x660 + Number(character)) : character),
]
const disguised = fc
  .tuple(fc.constantFrom(...HIDDEN), fc.infiniteStream(fc.constantFrom(...DISGUISES)))
  .map(([word, each]) => [...word].map(character => (each.next().value ?? String)(character)).join(''))

t.test('however characters are disguised, all of it is redacted and nothing else', async t => {
  fc.assert(
    fc.property(disguised, fc.constantFrom('', 'é – ', 'x\u00a0y '), (word, before) => {
      const text = `${before}see ${word} there`
      // What is invisible before it may stay.
      const left = redact(text, SCANNER.scan(text, 'user')).replaceAll('\u200b', '')
      if (!/^(é – |x\u00a0y )?see \[[A-Z_]+\] there$/.test(left))
        throw new Error(JSON.stringify([text, left]))
    }),
    { numRuns: 1_500 },
  )
  t.pass()
})

t.test('what crosses from one text into the next is found in the next', async t => {
  const size = { windowBytes: 128, overlapBytes: 32 }
  const read = (before: string, ...pieces: string[]): string => {
    const window = new TextWindow(SCANNER, size, before)
    return pieces.map(piece => window.push(piece)).join('') + window.end()
  }
  t.equal(read('Write to ann@exa', 'mple', '.com please'), '[EMAIL] please')
  t.equal(
    read(`${'x'.repeat(500)} ann@exa`, 'mple.com', ' please'.repeat(60)),
    `[EMAIL]${' please'.repeat(60)}`,
  )
  t.equal(read('Write to ann@example.com', ' please'), ' please', 'what has been told is not told again')
  t.equal(read('Write to ann@example.com', 'Sure'), 'Sure', 'and takes no words of the next text along')
  t.equal(read('ann@example.com', 'bob@example.com'), '[EMAIL]')
  const window = new TextWindow(SCANNER, size, 'to ann@exa')
  window.push('mple.com')
  window.end()
  t.match(window.findings, [{ start: 0, end: 8, pattern: 'email' }])
  t.equal(window.findings.length, 1)
})

import fc from 'fast-check'
import t from 'tap'
import type { RuleSet } from '../../../src/features/guardrails/detector.ts'
import { compileRules, redact, strictest } from '../../../src/features/guardrails/rules.ts'
import { TextWindow, type WindowSize } from '../../../src/features/guardrails/window.ts'
import { ALL_SLUGS, filler, rulesOf, SECRETS_IN_TEXT } from '../../support/guardrail-texts.ts'
import { search } from '../../support/property.ts'

interface Seen {
  readonly out: string
  readonly verdict: string | null
  readonly findings: readonly unknown[]
  readonly blocked: boolean
}

function read(rules: RuleSet, size: WindowSize, pieces: readonly string[]): Seen & { most: number } {
  const window = new TextWindow(scannerOf(rules), size)
  let out = ''
  let most = 0
  for (const piece of pieces) {
    out += window.push(piece)
    most = Math.max(most, window.heldBytes)
  }
  out += window.end()
  return {
    out,
    verdict: strictest(window.findings),
    findings: window.findings,
    blocked: window.isBlocked,
    most,
  }
}

const scanners = new Map<string, ReturnType<typeof compileRules>>()
function scannerOf(rules: RuleSet): ReturnType<typeof compileRules> {
  const key = JSON.stringify(rules)
  const known = scanners.get(key) ?? compileRules(rules)
  scanners.set(key, known)
  return known
}

function cut(text: string, sizes: readonly number[]): string[] {
  const pieces: string[] = []
  for (let at = 0, n = 0; at < text.length; n++) {
    const size = sizes[n % sizes.length] ?? 1
    pieces.push(text.slice(at, at + size))
    at += size
  }
  return pieces
}

const texts = fc
  .array(
    fc.oneof({ weight: 3, arbitrary: filler }, { weight: 2, arbitrary: fc.constantFrom(...SECRETS_IN_TEXT) }),
    {
      minLength: 1,
      maxLength: 90,
      size: 'max',
    },
  )
  .map(parts => parts.join(''))
const ruleSets = fc.constantFrom(
  rulesOf(ALL_SLUGS, 'redact', true),
  rulesOf(ALL_SLUGS, 'flag', true),
  rulesOf(['email', 'phone', 'secrets'], 'redact', false),
  rulesOf(['credit-card', 'ssn', 'ip-address'], 'block', false),
  rulesOf(['person-name', 'address', 'regex-prompt-injection'], 'redact', true),
)
const sizes = fc.constantFrom<WindowSize>(
  { windowBytes: 512, overlapBytes: 256 },
  { windowBytes: 300, overlapBytes: 200 },
  { windowBytes: 1024, overlapBytes: 256 },
)
const cuts = fc.array(fc.integer({ min: 1, max: 90 }), { minLength: 1, maxLength: 6 })

t.test('however a text is cut, verdict, findings and redacted output are the same', async t => {
  fc.assert(
    fc.property(texts, ruleSets, sizes, cuts, (text, rules, size, pieces) => {
      const { most: _whole, ...whole } = read(rules, size, [text])
      const { most, ...cutUp } = read(rules, size, cut(text, pieces))
      assertEqual(cutUp, whole)
      if (most > size.windowBytes) throw new Error(`held ${most} bytes`)
    }),
    search(2_600),
  )
  t.pass('2,600 texts')
})

t.test('what fits the overlap is found as in the whole text', async t => {
  fc.assert(
    fc.property(texts, ruleSets, sizes, cuts, (text, rules, size, pieces) => {
      const whole = scannerOf(rules).scan(text, 'other')
      const longest = Math.max(0, ...whole.map(({ start, end }) => Buffer.byteLength(text.slice(start, end))))
      fc.pre(longest <= size.overlapBytes)
      const seen = read(rules, size, cut(text, pieces))
      if (seen.blocked) return
      assertEqual(seen.findings, whole)
      assertEqual(seen.out, redact(text, whole))
    }),
    search(2_600),
  )
  t.pass('2,600 texts')
})

t.test('a value is found wherever a cut goes through it', async t => {
  const rules = rulesOf(['email'], 'redact', false)
  const text = `${'a word '.repeat(140)}write to anna.schmidt@example.com now, ${'and so on '.repeat(60)}`
  const expected = text.replace('anna.schmidt@example.com', '[EMAIL]')
  for (let at = 900; at < 1_100; at++) {
    const seen = read(rules, { windowBytes: 1024, overlapBytes: 256 }, [text.slice(0, at), text.slice(at)])
    assertEqual(seen.out, expected)
  }
  for (let shift = 0; shift < 900; shift += 3) {
    const moved = text.slice(shift)
    assertEqual(
      read(rules, { windowBytes: 512, overlapBytes: 64 }, cut(moved, [7])).out,
      moved.replace('anna.schmidt@example.com', '[EMAIL]'),
    )
  }
  t.pass('500 places')
})

t.test('a private key is covered to its end, however many windows it has', async t => {
  const line = 'MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n'
  const key = `-----BEGIN RSA PRIVATE KEY-----\n${line.repeat(60)}Zm9v\n-----END RSA PRIVATE KEY-----`
  for (const lead of [0, 1, 250, 700, 767, 768, 800]) {
    const text = `${'x '.repeat(lead / 2)}Here: ${key} That was it.`
    for (const pieces of [[text.length], [1], [64], [1000, 3]]) {
      const seen = read(
        rulesOf(['secrets'], 'redact', false),
        { windowBytes: 1024, overlapBytes: 256 },
        cut(text, pieces),
      )
      assertEqual(seen.out, text.replace(key, '[SECRET]'))
      assertEqual(seen.findings.length, 1)
    }
  }
  t.pass('all alike')
})

t.test('nothing of the window that is blocked, nor of what follows, goes out', async t => {
  const window = new TextWindow(compileRules(rulesOf(['ssn'], 'block', false)), {
    windowBytes: 256,
    overlapBytes: 64,
  })
  let out = ''
  for (const piece of cut(`${'fine '.repeat(100)}SSN 123-45-6789 ${'more '.repeat(200)}`, [11]))
    out += window.push(piece)
  out += window.end()
  t.ok(window.isBlocked)
  t.equal(window.heldBytes, 0)
  t.match(out, /^(?:fine )+/)
  t.notMatch(out, /123|more/)
  t.equal(window.push('again'), '')
})

t.test('characters of several bytes are never cut, and bytes held stay within the window', async t => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme', maxLength: 900 }), cuts, (text, pieces) => {
      const seen = read(
        rulesOf(['email'], 'redact', false),
        { windowBytes: 256, overlapBytes: 100 },
        cut(text, pieces),
      )
      assertEqual(seen.out, redact(text, scannerOf(rulesOf(['email'], 'redact', false)).scan(text, 'other')))
      if (seen.most > 256) throw new Error(`held ${seen.most}`)
    }),
    search(500),
  )
  t.pass('500 texts')
})

t.test('the overlap must be less than the window', async t => {
  t.throws(
    () => new TextWindow(compileRules(rulesOf([], 'flag', true)), { windowBytes: 256, overlapBytes: 256 }),
    RangeError,
  )
})

function assertEqual(actual: unknown, expected: unknown): void {
  if (JSON.stringify(actual) !== JSON.stringify(expected)) {
    throw new Error(`differs:\n${JSON.stringify(actual)}\n${JSON.stringify(expected)}`)
  }
}

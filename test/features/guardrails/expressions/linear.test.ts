/** What V8 searches takes time linear in the text, whatever the text. Ratios only: no limits in ms. */
import fc from 'fast-check'
import t from 'tap'
import { patternProblem } from '../../../../src/features/guardrails/custom.ts'
import { type NativePattern, nativePattern } from '../../../../src/features/guardrails/expressions/engine.ts'
import { bestCpuMs } from '../../../support/cpu-time.ts'
import { anyPattern, anyText, NATIVE } from './patterns.ts'

/** What keeps a repeat going, what almost ends it, and both in turns. */
const UNITS: readonly string[] = [
  ...['a', 'A', '1', ' ', '-', '.', '@', ':', ',', '\\n', 'x', 'é', '😀'],
  ...['a.', 'a@', 'a@a.', '@a', 'a-', '1 ', '1-', '1.1.', 'A ', 'A1', 'AB12 ', 'AB12CDEF ', 'a b ', '1234 '],
  ...['-----BEGIN ', '-----BEGIN A', '-----BEGIN PRIVATE KEY----', 'password', 'password=', 'password : '],
  ...[
    'bearer ',
    'bearer a',
    'AKIA',
    'AKIAAAAA',
    '$1',
    '$1,123',
    '.corp.exampl',
    'a.corp.exampl',
    'https://intranet',
  ],
]

function searchAll(native: NativePattern, text: string): number {
  let found = 0
  for (let at = 0; ; found++) {
    const match = native.find(text, at)
    if (match === null) return found
    at = match.end
  }
}

/** Eight times the text; a square would be 64 times the time. */
const TIMES = 8
const MOST = 30

/** The time of the whole text by that of an eighth of it; less than `leastMs` is as good as nothing. */
function growth(native: NativePattern, text: string, leastMs: number): number {
  let least = Number.POSITIVE_INFINITY
  const part = text.slice(0, text.length / TIMES)
  // What compilers and collectors do beside it is no proof of a square.
  for (let tries = 0; tries < 3 && least > MOST; tries++) {
    const small = bestCpuMs(() => searchAll(native, part), 2)
    const large = bestCpuMs(() => searchAll(native, text), 2)
    least = Math.min(least, large / Math.max(small, leastMs))
  }
  return least
}

const LARGE = 1_000_000

for (const pattern of NATIVE) {
  t.test(`${pattern}: 1 MB of anything takes about eight times what an eighth of it takes`, async t => {
    const native = nativePattern(pattern)
    if (native === null) throw new Error('it does not run in V8')
    let worst = 0
    for (const unit of UNITS) {
      const ratio = growth(native, unit.repeat(Math.ceil(LARGE / unit.length)).slice(0, LARGE), 1)
      worst = Math.max(worst, ratio)
      if (ratio > MOST) t.fail(`${JSON.stringify(unit)}: ${ratio.toFixed(1)} times`)
    }
    t.comment(`worst ${worst.toFixed(1)} times`)
    t.ok(worst > 0)
  })
}

t.test('random patterns that run in V8 take linear time on texts of their own making', async t => {
  let seen = 0
  fc.assert(
    fc.property(anyPattern, anyText, (source, part) => {
      if (patternProblem(source) !== null || part === '') return
      const native = nativePattern(source)
      if (native === null) return
      seen++
      const text = part.repeat(Math.ceil(24_000 / part.length))
      const ratio = growth(native, text, 0.5)
      if (ratio > MOST) throw new Error(`${source} on ${JSON.stringify(part)}: ${ratio.toFixed(1)} times`)
    }),
    { numRuns: 500, endOnFailure: true },
  )
  t.ok(seen > 100, `${seen} patterns ran in V8`)
})

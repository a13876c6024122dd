/** V8's engine and RE2 find the same matches of every pattern that V8 gets. */
import fc from 'fast-check'
import { RE2JS } from 're2js'
import t from 'tap'
import { patternProblem } from '../../../../src/features/guardrails/custom.ts'
import { type NativePattern, nativePattern } from '../../../../src/features/guardrails/expressions/engine.ts'
import { anyPattern, anyText, NATIVE } from './patterns.ts'

const AUTOMATON = [
  'coffee(?:.*zebra)?',
  'foo.*bar',
  '(?m)^\\s*Subject:[^\\n]*$',
  'token[:=]\\S+!',
  '\\beyJ[\\w-]+\\.[\\w-]+\\b',
  'a*',
  '\\p{L}+@',
  '(?i)grün',
  '[[:alpha:]]+1',
  '\\Qa.b\\E+',
  '(?:a|b{2}){1,3}c*d(?:e|f)+!',
]

t.test('common patterns run in V8, and what is not proved linear there runs on the automaton', async t => {
  for (const pattern of NATIVE) t.ok(nativePattern(pattern), pattern)
  for (const pattern of AUTOMATON) t.equal(nativePattern(pattern), null, pattern)
})

/** All matches, each search beginning where the last match has ended. */
function matches(find: (text: string, from: number) => [number, number] | null, text: string, from: number) {
  const found: [number, number][] = []
  for (let at = from; at <= text.length; ) {
    const match = find(text, at)
    if (match === null) break
    found.push(match)
    at = match[1]
  }
  return found
}

function nativeMatches(native: NativePattern, text: string, from: number) {
  const find = (searched: string, at: number): [number, number] | null => {
    const match = native.find(searched, at)
    return match === null ? null : [match.start, match.end]
  }
  return matches(find, text, from)
}

function re2Matches(expression: RE2JS, text: string, from: number) {
  const find = (searched: string, at: number): [number, number] | null => {
    const matcher = expression.matcher(searched)
    return matcher.find(at) ? [matcher.start(), matcher.end()] : null
  }
  return matches(find, text, from)
}

/** True if a search may begin there: not within a character. */
const isBetween = (searched: string, at: number): boolean => !/[\udc00-\udfff]/.test(searched.charAt(at))

t.test('both engines find the same in random texts, from any place', async t => {
  let native = 0
  fc.assert(
    fc.property(
      anyPattern,
      fc.array(anyText, { minLength: 4, maxLength: 4 }),
      fc.nat(20),
      (source, texts, from) => {
        if (patternProblem(source) !== null) return
        const one = nativePattern(source)
        if (one === null) return
        native++
        const expression = RE2JS.compile(source)
        for (const searched of texts) {
          for (const at of [0, from]) {
            if (at > searched.length || !isBetween(searched, at)) continue
            const found = nativeMatches(one, searched, at)
            const wanted = re2Matches(expression, searched, at)
            if (JSON.stringify(found) !== JSON.stringify(wanted)) {
              throw new Error(
                `${source} in ${JSON.stringify(searched)} from ${at}: ${JSON.stringify(found)} for ${JSON.stringify(wanted)}`,
              )
            }
            if (found.length > 0 && !one.mayOccur(searched)) throw new Error(`${source} may occur`)
          }
        }
      },
    ),
    { numRuns: 4_000 },
  )
  t.ok(native > 1_000, `${native} patterns ran in V8`)
})

/**
 * Extracts the verdict from an evaluator's answer: `{"probabilities":[…]}`, one number from 0 to 1 per rule. A verdict
 * counts only if it is the end of the answer and nothing else there looks like one, because the judged message may have
 * made the evaluator quote it. Pure. Task worker, or inline for a short answer.
 */
import { parseJson } from '../../base/json.ts'

interface JudgeAnswer {
  readonly text: string
  /** Number of rules, and so of probabilities. */
  readonly rules: number
  /** Texts of the judged message: a verdict that also occurs in one of them is a quotation. Default: none. */
  readonly judged?: readonly string[]
}

/** Longest answer that is searched. A verdict on 128 rules has two thousand characters. */
export const ANSWER_MAX_CHARS = 32_768

/** The object may have only this key, so that no key can be repeated and nothing can be hidden in it. */
const VERDICT = /\{\s*"probabilities"\s*:\s*\[([^[\]{}"]*)\]\s*\}/g
const FENCE = '```'
const OPENING_FENCE = /```[\w-]*\s*$/
/** Characters before a verdict that is a part of something else: a list, an object, a quotation. */
const WITHIN_SOMETHING = /(?:[[{,"'`\\]|["'`]\s*:)\s*$/
/** The key of another verdict, in any notation. */
const ANOTHER = /["'`]\s*probabilities\s*["'`]\s*[:=]|probabilities\s*[:=]\s*\[/i

/** The verdict; null: there is no valid one. */
export function judgeAnswer({ text, rules, judged = [] }: JudgeAnswer): readonly number[] | null {
  if (text.length > ANSWER_MAX_CHARS) return null
  const whole = text.trimEnd()
  const inner = whole.endsWith(FENCE) ? whole.slice(0, -FENCE.length).trimEnd() : whole
  const verdict = [...inner.matchAll(VERDICT)].at(-1)
  if (verdict === undefined || verdict.index + verdict[0].length !== inner.length) return null
  const before = inner.slice(0, verdict.index).replace(OPENING_FENCE, '')
  if (ANOTHER.test(decodeEscapes(before)) || WITHIN_SOMETHING.test(before)) return null
  const probabilities = numbers(verdict[1] ?? '', rules)
  if (probabilities === null) return null
  return judged.some(each => quotes(each, probabilities)) ? null : probabilities
}

/** True if the text contains this verdict, also as JSON within JSON. */
function quotes(text: string, probabilities: readonly number[]): boolean {
  for (const [, list = ''] of decodeEscapes(text).matchAll(VERDICT)) {
    const found = numbers(list, probabilities.length)
    if (found?.every((each, index) => each === probabilities[index])) return true
  }
  return false
}

/** The text without the backslashes of JSON, however often it was encoded. */
function decodeEscapes(text: string): string {
  return text.replace(/\\+(?:u([0-9a-f]{4})|[nrt])?/gi, (found, code: string | undefined) => {
    if (code !== undefined) return String.fromCharCode(Number.parseInt(code, 16))
    return found.endsWith('\\') ? '' : ' '
  })
}

function numbers(list: string, count: number): readonly number[] | null {
  const value = parseJson(`[${list}]`)
  if (!Array.isArray(value) || value.length !== count) return null
  const isProbability = (each: unknown): each is number => typeof each === 'number' && each >= 0 && each <= 1
  return value.every(isProbability) ? value : null
}

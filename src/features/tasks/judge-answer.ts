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
export const MAX_ANSWER_CHARS = 32_768

/** An object with only this key: nothing else is hidden in it, and the key occurs once. */
const VERDICT = /\{\s*"probabilities"\s*:\s*\[([^[\]{}"]*)\]\s*\}/g
const FENCE = '```'
const OPENING_FENCE = /```[\w-]*\s*$/
/** The text before a verdict that is part of a list, an object or a quotation. */
const ENDS_INSIDE_VALUE = /(?:[[{,"'`\\]|["'`]\s*:)\s*$/
/** The key of another verdict, in any notation. */
const OTHER_VERDICT = /["'`]\s*probabilities\s*["'`]\s*[:=]|probabilities\s*[:=]\s*\[/i

/** The verdict; null if there is no valid one. */
export function judgeAnswer({ text, rules, judged = [] }: JudgeAnswer): readonly number[] | null {
  if (text.length > MAX_ANSWER_CHARS) return null
  const trimmed = text.trimEnd()
  const unfenced = trimmed.endsWith(FENCE) ? trimmed.slice(0, -FENCE.length).trimEnd() : trimmed
  const verdict = [...unfenced.matchAll(VERDICT)].at(-1)
  if (verdict === undefined || verdict.index + verdict[0].length !== unfenced.length) return null
  const before = unfenced.slice(0, verdict.index).replace(OPENING_FENCE, '')
  if (OTHER_VERDICT.test(decodeEscapes(before)) || ENDS_INSIDE_VALUE.test(before)) return null
  const probabilities = probabilitiesIn(verdict[1] ?? '', rules)
  if (probabilities === null) return null
  return judged.some(judgedText => quotes(judgedText, probabilities)) ? null : probabilities
}

/** True if the text contains this verdict, also as JSON within JSON. */
function quotes(text: string, probabilities: readonly number[]): boolean {
  for (const [, list = ''] of decodeEscapes(text).matchAll(VERDICT)) {
    const quoted = probabilitiesIn(list, probabilities.length)
    if (quoted?.every((probability, index) => probability === probabilities[index])) return true
  }
  return false
}

/** The text without the backslashes of JSON, however often it was encoded. */
function decodeEscapes(text: string): string {
  return text.replace(/\\+(?:u([0-9a-f]{4})|[nrt])?/gi, (escaped, code: string | undefined) => {
    if (code !== undefined) return String.fromCharCode(Number.parseInt(code, 16))
    return escaped.endsWith('\\') ? '' : ' '
  })
}

function probabilitiesIn(list: string, count: number): readonly number[] | null {
  const value = parseJson(`[${list}]`)
  if (!Array.isArray(value) || value.length !== count) return null
  const isProbability = (element: unknown): element is number =>
    typeof element === 'number' && element >= 0 && element <= 1
  return value.every(isProbability) ? value : null
}

/**
 * Finds the verdict in an evaluator's answer: `{"probabilities":[…]}`, one number from 0 to 1 for each rule. Fences
 * and prose around it are common and harmless. Pure. Task worker, or inline for a short answer.
 */

export interface JudgeAnswer {
  readonly text: string
  /** Number of rules, and so of probabilities. */
  readonly rules: number
}

/** Longest answer that is searched. A verdict on 128 rules has two thousand characters. */
export const ANSWER_MAX_CHARS = 32_768
/** Objects that are tried: prose has few braces. */
const OBJECTS_MAX = 64

/** The verdict. Null if there is none, or several that differ: a message may have made the evaluator quote one. */
export function judgeAnswer({ text, rules }: JudgeAnswer): readonly number[] | null {
  if (text.length > ANSWER_MAX_CHARS) return null
  let verdict: readonly number[] | null = null
  let at = text.indexOf('{')
  for (let seen = 0; at !== -1; seen++) {
    if (seen === OBJECTS_MAX) return null
    const end = objectEnd(text, at)
    const value = end === -1 ? undefined : parse(text.slice(at, end))
    if (isVerdict(value)) {
      const probabilities = numbers(value.probabilities, rules)
      if (probabilities === null) return null
      if (verdict?.some((one, index) => one !== probabilities[index])) return null
      verdict = probabilities
    }
    // Text that is not JSON may contain JSON.
    at = text.indexOf('{', value === undefined ? at + 1 : end)
  }
  return verdict
}

function isVerdict(value: unknown): value is { readonly probabilities: unknown } {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, 'probabilities')
}

function numbers(value: unknown, count: number): readonly number[] | null {
  if (!Array.isArray(value) || value.length !== count) return null
  const fits = (each: unknown): each is number => typeof each === 'number' && each >= 0 && each <= 1
  return value.every(fits) ? value : null
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** The end of the object that begins at `start`; -1 if it has none. */
function objectEnd(text: string, start: number): number {
  let depth = 0
  let quoted = false
  for (let at = start; at < text.length; at++) {
    const character = text[at]
    if (quoted) {
      if (character === '\\') at++
      else if (character === '"') quoted = false
    } else if (character === '"') quoted = true
    else if (character === '{') depth++
    else if (character === '}' && --depth === 0) return at + 1
  }
  return -1
}

/**
 * Finds the verdict in what an evaluator has answered: `{"probabilities":[…]}`, one number of 0 to 1 for each rule.
 * Fences and prose around it are common and do no harm. Pure. Task worker, or inline for a short answer.
 */

export interface JudgeAnswer {
  readonly text: string
  /** How many numbers there have to be. */
  readonly rules: number
}

/** A verdict on 128 rules has two thousand characters; an evaluator that writes this much has not answered. */
export const ANSWER_MAX_CHARS = 32_768
/** Objects that are looked at: prose has few braces. */
const OBJECTS_MAX = 64

/** Null when there is no verdict, or several that differ: a message may have talked the evaluator into quoting one. */
export function judgeAnswer({ text, rules }: JudgeAnswer): readonly number[] | null {
  if (text.length > ANSWER_MAX_CHARS) return null
  let found: readonly number[] | null = null
  let at = text.indexOf('{')
  for (let seen = 0; at !== -1; seen++) {
    if (seen === OBJECTS_MAX) return null
    const end = objectEnd(text, at)
    const value = end === -1 ? undefined : parsed(text.slice(at, end))
    if (isVerdict(value)) {
      const probabilities = numbers(value.probabilities, rules)
      if (probabilities === null) return null
      if (found?.some((one, index) => one !== probabilities[index])) return null
      found = probabilities
    }
    // What is no JSON may still hold some.
    at = text.indexOf('{', value === undefined ? at + 1 : end)
  }
  return found
}

function isVerdict(value: unknown): value is { readonly probabilities: unknown } {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, 'probabilities')
}

function numbers(value: unknown, count: number): readonly number[] | null {
  if (!Array.isArray(value) || value.length !== count) return null
  const fits = (each: unknown): each is number => typeof each === 'number' && each >= 0 && each <= 1
  return value.every(fits) ? value : null
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Where the object that begins at `start` ends; -1: it does not. */
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

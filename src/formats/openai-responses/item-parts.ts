/** The parts of one output item, and which streamed part a final one repeats. Pure. */
import { type Json, records } from '../json.ts'

/** Which deltas a part is told in. */
export type Form = 'text' | 'refusal' | 'reasoning' | 'summary'

export interface Part {
  readonly form: Form
  /** The provider's content or summary index; gaps and repetitions are its own business. */
  readonly index: number
  /** Ours: counts up from 0 in order of appearance. */
  readonly part: number
  text: string
  logprobs: number
  annotations: number
  emitted: boolean
}

const PART_FORMS: ReadonlyMap<unknown, Form> = new Map([
  ['output_text', 'text'],
  ['text', 'text'],
  ['input_text', 'text'],
  ['refusal', 'refusal'],
  ['reasoning_text', 'reasoning'],
  ['summary_text', 'summary'],
])

export function formOf(part: Json): Form | null {
  return PART_FORMS.get(part['type']) ?? null
}

/** Text and refusals share one list of parts; raw reasoning and summaries have their own. */
export function numbering(form: Form): Form {
  return form === 'refusal' ? 'text' : form
}

/** Content in any of its spellings as a list of parts: plain text becomes one part of the given type. */
export function partsOf(content: unknown, type: string): readonly Json[] {
  if (typeof content === 'string') return [{ type, text: content }]
  return records(content)
}

/**
 * The streamed part that a final one repeats: the one of the same index, else the first whose text it continues
 * and that no other final part claims by index (one provider starts to count its streamed parts at 1).
 */
export function matchingPart(
  parts: readonly Part[],
  form: Form,
  at: number,
  whole: string,
  finals: readonly Json[],
  taken: ReadonlySet<Part>,
): Part | undefined {
  const free = parts.filter(part => part.form === form && !taken.has(part))
  const sameIndex = free.find(part => part.index === at)
  if (sameIndex !== undefined) return sameIndex
  return free.find(part => {
    const claimant = finals[part.index]
    return (claimant === undefined || formOf(claimant) !== form) && whole.startsWith(part.text)
  })
}

/** An index under which no part of this form is known, so that a new one is made. */
export function unusedIndex(parts: readonly Part[], form: Form, wanted: number): number {
  let index = wanted
  while (parts.some(part => part.form === form && part.index === index)) index++
  return index
}

/**
 * One text of a guarded reply: a part of an item, with what belongs to places in it. Pure. Hot path of guarded replies.
 */
import type { TextWindow } from '../guardrails/window.ts'
import type { Logprob } from '../protocol/items.ts'
import type { Content } from './assemble.ts'
import type { WindowEvaluator } from './guard-evaluate.ts'

/** Deltas that are text. */
export type Spoken = Extract<Content, { kind: 'text' | 'refusal' | 'reasoning' | 'arguments' }>

/** One text of the reply: a part of an item. */
export interface Part {
  readonly name: string
  readonly item: number
  readonly window: TextWindow
  readonly evaluator: WindowEvaluator
  /** The last delta of it, as the pattern of those that leave. */
  like: Spoken
  /** With their places in the text, as they came. */
  logprobs: { readonly start: number; readonly end: number; readonly said: readonly Logprob[] }[]
  /** Annotations that came when so much of the text was there. */
  readonly marks: { readonly at: number; readonly delta: Content }[]
}

export function partName(delta: Spoken): string {
  if (delta.kind === 'arguments') return 'arguments'
  return delta.kind === 'reasoning' ? `${delta.form} ${delta.part}` : `${delta.kind} ${delta.part}`
}

export function saying(like: Spoken, text: string, logprobs: readonly Logprob[] | null): Content {
  return like.kind === 'text' ? { ...like, text, logprobs } : { ...like, text }
}

/** Where tokens do not add up to the text, they are as one. */
export function noteLogprobs(part: Part, text: string, logprobs: readonly Logprob[]): void {
  const from = part.window.length
  let at = from
  const each = logprobs.map(said => {
    const start = at
    at += said.token.length
    return { start, end: at, said: [said] }
  })
  if (at === from + text.length) part.logprobs.push(...each)
  else if (logprobs.length > 0) part.logprobs.push({ start: from, end: from + text.length, said: logprobs })
}

/** Those of what left, without what was redacted: they would tell it. */
export function takeLogprobs(part: Part, end: number): readonly Logprob[] | null {
  const leaving = part.logprobs.filter(entry => entry.end <= end)
  if (leaving.length === 0) return null
  part.logprobs = part.logprobs.filter(entry => entry.end > end)
  return leaving.flatMap(({ start, end: until, said }) => (part.window.covers(start, until) ? [] : said))
}

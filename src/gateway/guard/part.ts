/**
 * One text of a guarded reply: a part of an item, with what belongs to places in it. Pure. Hot path of guarded replies.
 */
import type { Logprob } from '../../protocol/items.ts'
import type { Content } from '../answer/assemble.ts'
import type { Look } from './window-scan.ts'

/** Deltas that are text. */
export type Spoken = Extract<Content, { kind: 'text' | 'refusal' | 'reasoning' | 'arguments' }>

/** One text of the reply: a part of an item. */
export interface Part extends Look {
  readonly name: string
  readonly item: number
  /** Whether it goes on after another one; what was said of it before is not in the window. */
  readonly isAgain: boolean
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

/**
 * In the order of their ends. Where tokens do not spell the text, they are as one, and of all that was said so far:
 * some providers tell those of a whole part at its end.
 */
export function noteLogprobs(part: Part, text: string, logprobs: readonly Logprob[]): void {
  if (logprobs.length === 0) return
  const from = part.window.length
  let at = 0
  let spells = true
  const each = logprobs.map(said => {
    const start = at
    spells &&= text.startsWith(said.token, start)
    at += said.token.length
    return { start: from + start, end: from + at, said: [said] }
  })
  if (spells && at === text.length) part.logprobs = part.logprobs.concat(each)
  else if (!part.isAgain) part.logprobs.push({ start: 0, end: from + text.length, said: logprobs })
}

/** Those of what left, without what was redacted: they would tell it. */
export function takeLogprobs(part: Part, end: number): readonly Logprob[] | null {
  const first = part.logprobs.findIndex(entry => entry.end > end)
  const leaving = part.logprobs.splice(0, first < 0 ? part.logprobs.length : first)
  if (leaving.length === 0) return null
  return leaving.flatMap(({ start, end: until, said }) => (part.window.covers(start, until) ? [] : said))
}

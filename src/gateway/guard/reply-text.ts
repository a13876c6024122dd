/**
 * One text of a guarded reply, such as a part of a message, with what is tied to positions in it: log probabilities
 * and annotations. They leave with the text they belong to. Pure. Hot path of guarded replies.
 */
import type { Window, WindowFindings } from '../../guardrails/window.ts'
import type { Logprob } from '../../protocol/items.ts'
import type { Content } from '../answer/assemble.ts'
import type { TextScan } from './window-scan.ts'

export type TextDelta = Extract<Content, { kind: 'text' | 'refusal' | 'reasoning' | 'arguments' }>

/** Log probabilities of one stretch of the text, in UTF-16 units from its start. */
interface PlacedLogprobs {
  readonly start: number
  readonly end: number
  readonly logprobs: readonly Logprob[]
}

/** The texts of one item have different names. */
export function textName(delta: TextDelta): string {
  if (delta.kind === 'arguments') return 'arguments'
  return delta.kind === 'reasoning' ? `${delta.form} ${delta.part}` : `${delta.kind} ${delta.part}`
}

export class ReplyText {
  readonly scan: TextScan
  readonly name: string
  readonly item: number
  /** True if the text goes on after another one: then the window does not hold its beginning. */
  readonly #isResumed: boolean
  /** The last delta that came: the model for those that leave. */
  #last: TextDelta
  /** In the order of their ends. */
  #logprobs: PlacedLogprobs[] = []
  /** With the length of the text when each came. */
  readonly #annotations: { readonly at: number; readonly delta: Content }[] = []

  constructor(scan: TextScan, first: TextDelta, isResumed: boolean) {
    this.scan = scan
    this.name = textName(first)
    this.item = first.item
    this.#isResumed = isResumed
    this.#last = first
  }

  add(delta: TextDelta): void {
    this.#last = delta
    if (delta.kind === 'text' && delta.logprobs !== null) this.#addLogprobs(delta.text, delta.logprobs)
    this.scan.window.add(delta.text)
  }

  /** Keeps the annotation until the text before it leaves; false if no text is held, so that it may leave at once. */
  holdAnnotation(delta: Content): boolean {
    const { window } = this.scan
    if (window.heldBytes === 0) return false
    this.#annotations.push({ at: window.length, delta })
    return true
  }

  /** The deltas that may leave after the scan of a window, redacted. */
  release(window: Window, findings: WindowFindings): readonly Content[] {
    const text = this.scan.window.release(window, findings)
    const end = this.scan.window.released
    const logprobs = this.#last.kind === 'text' ? this.#takeLogprobs(end) : null
    const deltas = text === '' ? [] : [this.#delta(text, logprobs)]
    return this.#annotations.length === 0 ? deltas : [...deltas, ...this.#takeAnnotations(end)]
  }

  /** The deltas that leave after the last window. */
  releaseRest(): readonly Content[] {
    // Log probabilities may come when all of the text has left.
    const logprobs = this.#takeLogprobs(Number.POSITIVE_INFINITY)
    const deltas = logprobs !== null && logprobs.length > 0 ? [this.#delta('', logprobs)] : []
    return [...deltas, ...this.#takeAnnotations(Number.POSITIVE_INFINITY)]
  }

  #delta(text: string, logprobs: readonly Logprob[] | null): Content {
    return this.#last.kind === 'text' ? { ...this.#last, text, logprobs } : { ...this.#last, text }
  }

  /**
   * If the tokens do not spell the text, their log probabilities stay together and count for all of the text so far:
   * some providers send those of a whole part at its end.
   */
  #addLogprobs(text: string, logprobs: readonly Logprob[]): void {
    if (logprobs.length === 0) return
    const from = this.scan.window.length
    let at = 0
    let spells = true
    const each = logprobs.map(logprob => {
      const start = at
      spells &&= text.startsWith(logprob.token, start)
      at += logprob.token.length
      return { start: from + start, end: from + at, logprobs: [logprob] }
    })
    if (spells && at === text.length) this.#logprobs = this.#logprobs.concat(each)
    else if (!this.#isResumed) this.#logprobs.push({ start: 0, end: from + text.length, logprobs })
  }

  /** Takes those of the text up to `end`, without those of redacted text, which they would disclose. */
  #takeLogprobs(end: number): readonly Logprob[] | null {
    const first = this.#logprobs.findIndex(placed => placed.end > end)
    const leaving = this.#logprobs.splice(0, first < 0 ? this.#logprobs.length : first)
    if (leaving.length === 0) return null
    const { window } = this.scan
    return leaving.flatMap(({ start, end: until, logprobs }) => (window.covers(start, until) ? [] : logprobs))
  }

  #takeAnnotations(end: number): readonly Content[] {
    const first = this.#annotations.findIndex(({ at }) => at > end)
    const leaving = this.#annotations.splice(0, first < 0 ? this.#annotations.length : first)
    return leaving.map(({ delta }) => delta)
  }
}

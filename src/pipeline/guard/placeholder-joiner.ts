/**
 * Joins the placeholders in a reply that its provider cut: holds back the end of a text while it may be the beginning of
 * one, so that every delta has whole placeholders. Between the output guard and the target of an attempt; one per
 * attempt. Only for requests in which something was masked. Takes time linear in the reply, whatever it contains.
 */
import type { Masks } from '../../exchange/masks.ts'
import type { Content } from '../answer/answer.ts'
import type { Sink } from '../answer/sink.ts'
import type { AttemptTarget } from '../turn/attempt-target.ts'
import { type TextDelta, textName } from './reply-text.ts'

interface JoinedTarget extends AttemptTarget {
  readonly sink: Pick<Sink, 'cork' | 'flush'> | null
  readonly committed: boolean
}

/** A text with log probabilities is held back as a whole while it is no longer than this. */
const SHORT_CHARS = 256

export class PlaceholderJoiner implements AttemptTarget {
  readonly sink: Pick<Sink, 'cork' | 'flush'> | null
  readonly #masks: Masks
  readonly #target: JoinedTarget
  /** Keyed by item: the end of its text that is held back, as a delta. */
  readonly #held = new Map<number, TextDelta>()

  constructor(masks: Masks, target: JoinedTarget) {
    this.sink = target.sink
    this.#masks = masks
    this.#target = target
  }

  get committed(): boolean {
    return this.#target.committed
  }

  receive(delta: Content): void {
    switch (delta.kind) {
      case 'text':
      case 'refusal':
      case 'reasoning':
      case 'arguments':
        this.#takeText(delta)
        break
      case 'progress':
        this.#target.receive(delta)
        break
      default:
        this.#release(delta.item)
        this.#target.receive(delta)
    }
  }

  end(done: () => void): void {
    for (const item of this.#held.keys()) this.#release(item)
    this.#target.end(done)
  }

  close(): void {
    this.#held.clear()
    this.#target.close()
  }

  #takeText(delta: TextDelta): void {
    const heldDelta = this.#held.get(delta.item)
    const isCut = delta.kind === 'text' && delta.cut === true
    const isOther = heldDelta !== undefined && (isCut || textName(heldDelta) !== textName(delta))
    if (isOther) this.#release(delta.item)
    const joinedDelta = heldDelta === undefined || isOther ? delta : merge(heldDelta, delta)
    const partialLength = this.#masks.partialLength(joinedDelta.text)
    if (partialLength === 0) {
      this.#held.delete(delta.item)
      this.#target.receive(this.#withoutTokens(joinedDelta))
      return
    }
    // Tokens stay with the text that they spell.
    const isShort =
      joinedDelta.text.length <= SHORT_CHARS && joinedDelta.kind === 'text' && joinedDelta.logprobs !== null
    const cut = isShort ? 0 : joinedDelta.text.length - partialLength
    this.#held.set(delta.item, cut === 0 ? joinedDelta : withText(joinedDelta, joinedDelta.text.slice(cut)))
    if (cut > 0) this.#target.receive(withText(joinedDelta, joinedDelta.text.slice(0, cut)))
  }

  #release(item: number): void {
    const heldDelta = this.#held.get(item)
    if (heldDelta === undefined) return
    this.#held.delete(item)
    this.#target.receive(this.#withoutTokens(heldDelta))
  }

  /** Log probabilities of a placeholder would not spell its original. */
  #withoutTokens(delta: TextDelta): TextDelta {
    if (delta.kind !== 'text' || delta.logprobs === null || !this.#masks.isIn(delta.text)) return delta
    return { ...delta, logprobs: null }
  }
}

function merge(heldDelta: TextDelta, delta: TextDelta): TextDelta {
  const text = heldDelta.text + delta.text
  if (delta.kind !== 'text') return { ...delta, text }
  const before = heldDelta.kind === 'text' ? heldDelta.logprobs : null
  return {
    ...delta,
    text,
    logprobs: before === null ? delta.logprobs : [...before, ...(delta.logprobs ?? [])],
  }
}

/** The delta with a part of its text, without the log probabilities of the whole. */
function withText(delta: TextDelta, text: string): TextDelta {
  if (delta.kind !== 'text') return { ...delta, text }
  return { ...delta, text, logprobs: null }
}

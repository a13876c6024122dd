/**
 * Where the blocks of one Anthropic reply become items: numbers them, joins neighbouring text blocks into one
 * message (the API cuts a paragraph at every citation) and remembers whether anything was said at all. Pure.
 * Hot path.
 */
import type { Annotation } from '../../protocol/items.ts'
import type { Delta, ItemStart } from '../format.ts'
import { oneMore } from '../reply-bounds.ts'

export class Output {
  readonly #emit: (delta: Delta) => void
  #next = 0
  #message: number | null = null
  #length = 0
  #said = false
  /** The container that code of this reply runs in, as soon as it is known. */
  containerId: string | null = null
  /** The reply's own id, for items that need an id and get none. */
  replyId = ''

  constructor(emit: (delta: Delta) => void) {
    this.#emit = emit
  }

  /** Whether the model has produced anything a caller can see; reasoning counts. */
  get said(): boolean {
    return this.#said
  }

  /** The message item that text goes to now; null when the next text begins another one. */
  get message(): number | null {
    return this.#message
  }

  /** Length of that message's text so far in UTF-16 units, the measure of annotations. */
  get textLength(): number {
    return this.#message === null ? 0 : this.#length
  }

  /** Begins an item that is not a message; a message in progress is complete then. */
  open(start: ItemStart): number {
    this.endMessage()
    this.#said = true
    const item = this.#number()
    this.#emit({ kind: 'open', item, start })
    return item
  }

  emit(delta: Delta): void {
    this.#emit(delta)
  }

  text(piece: string): void {
    if (piece === '') return
    const item = this.#openMessage()
    this.#length += piece.length
    this.#emit({ kind: 'text', item, part: 0, text: piece, logprobs: null })
  }

  annotate(item: number, annotation: Annotation): void {
    this.#emit({ kind: 'annotation', item, part: 0, annotation })
  }

  /** What a provider says about its refusal: the last part of the last message. */
  refuse(explanation: string): void {
    const part = this.#message === null ? 0 : 1
    const item = this.#openMessage()
    this.#emit({ kind: 'refusal', item, part, text: explanation })
  }

  endMessage(): void {
    if (this.#message === null) return
    const item = this.#message
    this.#message = null
    this.#emit({ kind: 'close', item, fields: null })
  }

  #number(): number {
    const item = oneMore(this.#next, 'output items')
    this.#next++
    return item
  }

  #openMessage(): number {
    if (this.#message === null) {
      this.#message = this.#number()
      this.#length = 0
      this.#said = true
      this.#emit({ kind: 'open', item: this.#message, start: { type: 'message', id: null, phase: null } })
    }
    return this.#message
  }
}

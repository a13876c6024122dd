/**
 * The text of one Chat Completions reply: the open message, its parts, and what belongs to its text. Hot path.
 * Annotations and log probabilities may come before the text they belong to; they wait for it.
 */
import type { Annotation, Logprob } from '../../protocol/items.ts'
import type { Delta } from '../format.ts'
import { type Json, list, record } from '../json.ts'
import { chatAnnotation, replyCitations } from './hosted.ts'

export class ChatMessage {
  readonly #emit: (delta: Delta) => void
  readonly #nextItem: () => number
  /** Called before anything is written: reasoning ends there. */
  readonly #beforeText: () => void
  #any = false
  /** The open message, the number of its part being written and that part's kind. */
  #message: number | null = null
  #part = -1
  #partKind: 'text' | 'refusal' | null = null
  #textUnits = 0
  #logprobs: Logprob[] | null = null
  #annotations: Annotation[] = []

  constructor(emit: (delta: Delta) => void, nextItem: () => number, beforeText: () => void) {
    this.#emit = emit
    this.#nextItem = nextItem
    this.#beforeText = beforeText
  }

  get any(): boolean {
    return this.#any
  }

  text(text: string): void {
    if (text === '') return
    const item = this.#write('text')
    const logprobs = this.#logprobs
    this.#logprobs = null
    this.#textUnits += text.length
    this.#emit({ kind: 'text', item, part: this.#part, text, logprobs })
    if (this.#annotations.length > 0) this.#flushAnnotations()
  }

  refuse(text: string): void {
    const item = this.#write('refusal')
    this.#emit({ kind: 'refusal', item, part: this.#part, text })
  }

  annotate(raw: readonly unknown[]): void {
    for (const element of raw) {
      const annotation = chatAnnotation(element)
      if (annotation !== null) this.#annotations.push(annotation)
    }
    if (this.#message !== null && this.#partKind === 'text') this.#flushAnnotations()
  }

  keepLogprobs(logprobs: unknown): void {
    const content = list(record(logprobs)?.['content'])
    if (content === null || content.length === 0) return
    this.#logprobs ??= []
    for (const token of content) if (isLogprob(token)) this.#logprobs.push(token)
  }

  /** Citations of the whole reply, then every annotation that still waits. */
  cite(results: readonly unknown[] | null, urls: readonly unknown[] | null): void {
    if (results !== null || urls !== null) {
      this.#annotations.push(...replyCitations(results, urls, this.#textUnits))
    }
    this.#flushAnnotations()
  }

  close(): void {
    if (this.#message === null) return
    const item = this.#message
    this.#flushAnnotations()
    this.#message = null
    this.#emit({ kind: 'close', item, fields: null })
  }

  /** The message to write to, its current part being of this kind. */
  #write(kind: 'text' | 'refusal'): number {
    this.#any = true
    this.#beforeText()
    if (this.#message === null) {
      this.#message = this.#nextItem()
      this.#part = -1
      this.#partKind = null
      this.#emit({ kind: 'open', item: this.#message, start: { type: 'message', id: null, phase: null } })
    }
    if (this.#partKind !== kind) {
      this.#part++
      this.#partKind = kind
      this.#textUnits = 0
    }
    return this.#message
  }

  #flushAnnotations(): void {
    if (this.#message === null || this.#partKind !== 'text') return
    for (const annotation of this.#annotations) {
      this.#emit({ kind: 'annotation', item: this.#message, part: this.#part, annotation })
    }
    this.#annotations = []
  }
}

function isLogprob(value: unknown): value is Logprob {
  const token = record(value)
  return token !== null && typeof token['token'] === 'string' && typeof token['logprob'] === 'number'
}

/** True when a delta holds anything of the reply itself. */
export function says(delta: Json): boolean {
  return [
    'content',
    'reasoning_content',
    'reasoning',
    'reasoning_details',
    'tool_calls',
    'refusal',
    'images',
  ].some(name => {
    const value = delta[name]
    return typeof value === 'string' || Array.isArray(value) ? value.length > 0 : record(value) !== null
  })
}

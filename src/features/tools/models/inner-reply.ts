/**
 * Reads replies from models that tools call: their text, their errors, and the text received so far from their stream.
 * Pure.
 */
import { GatewayError } from '../../../base/errors.ts'
import type { StreamEvent } from '../../../protocol/events.ts'
import type { ResponseResource } from '../../../protocol/response.ts'

/** Separates two messages of one reply. */
const MESSAGE_GAP = '\n\n'

/** The visible text of a reply, including refusals. */
export function replyText({ output }: Pick<ResponseResource, 'output'>): string {
  const texts: string[] = []
  for (const item of output) {
    if (item.type !== 'message' || !Array.isArray(item.content)) continue
    for (const part of item.content) texts.push('refusal' in part ? part.refusal : part.text)
  }
  return texts.filter(text => text !== '').join(MESSAGE_GAP)
}

/** The text shortened to this many UTF-16 units, with a line about the missing part. */
export function cutText(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text
  return `${text.slice(0, maxChars).toWellFormed()}\n[Cut after ${maxChars} characters]`
}

export interface InnerFailure {
  readonly code: GatewayError['code']
  readonly error: string
  /** Status of the provider; absent if there is none. */
  readonly status_code?: number
}

/** The reason that a called model gave no reply. Internal errors of the gateway are not described. */
export function innerFailure(thrown: unknown): InnerFailure {
  if (!(thrown instanceof GatewayError)) return { code: 'internal', error: 'The model could not be called' }
  const status = thrown.metadata?.['provider_status']
  return {
    code: thrown.code,
    error: thrown.message,
    ...(typeof status === 'number' ? { status_code: status } : {}),
  }
}

/** Minimum characters of a progress event, so that a slow client does not get an event per token. */
const MIN_PIECE_CHARS = 64

/** Reports a text in pieces of a minimum size, up to the length that its reader keeps. */
export class PieceWriter {
  readonly #send: (piece: string) => void
  readonly #maxChars: number
  #pending = ''
  #acceptedChars = 0

  constructor(maxChars: number, send: (piece: string) => void) {
    this.#maxChars = maxChars
    this.#send = send
  }

  get hasText(): boolean {
    return this.#acceptedChars > 0
  }

  add(text: string): void {
    const piece = text.slice(0, this.#maxChars - this.#acceptedChars)
    this.#acceptedChars += piece.length
    this.#pending += piece
    if (this.#pending.length >= MIN_PIECE_CHARS) this.end()
  }

  /** Reports the remaining text. */
  end(): void {
    if (this.#pending === '') return
    this.#send(this.#pending)
    this.#pending = ''
  }
}

/** Passes the texts in the events of a reply to their writers. */
export function textEvents(text: PieceWriter, reasoning: PieceWriter | null): (event: StreamEvent) => void {
  return event => {
    switch (event.type) {
      case 'response.content_part.added':
        if (text.hasText && event.part.type !== 'reasoning_text') text.add(MESSAGE_GAP)
        break
      case 'response.output_text.delta':
      case 'response.refusal.delta':
        text.add(event.delta)
        break
      case 'response.reasoning_text.delta':
      case 'response.reasoning_summary_text.delta':
        reasoning?.add(event.delta)
        break
    }
  }
}

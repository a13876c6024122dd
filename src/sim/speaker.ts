/**
 * The contract of a format as the simulated provider speaks it: a Reply as frames of an event stream, as one
 * document, and failures in the provider's shape. Pure; one file per format implements it.
 */
import type { Ask } from './ask.ts'
import type { Reply, Tally } from './reply.ts'

/** `token`: one piece of content; `finish`: says how the reply ended; `open`, `close`: everything around. */
export interface Frame {
  readonly kind: 'open' | 'token' | 'close' | 'finish'
  /** With its line ends and closing blank line. */
  readonly text: string
}

export interface Speech {
  readonly ask: Ask
  readonly reply: Reply
  readonly tally: Tally
  /** Random part of the reply's ids. */
  readonly id: string
  readonly createdSeconds: number
}

export interface Trouble {
  /** HTTP status; inside a stream the status it would have had. */
  readonly status: number
  readonly message: string
}

export interface Speaker {
  frames(speech: Speech): Iterable<Frame>
  whole(speech: Speech): unknown
  /** The document without any word about how it ended. */
  unfinished(speech: Speech): unknown
  failure(trouble: Trouble): unknown
  /** `framesBefore` counts what was streamed so far, for formats that number their events. */
  failureFrame(trouble: Trouble, framesBefore: number): string
}

/** An event with a name. */
export function namedFrame(kind: Frame['kind'], event: string, data: unknown): Frame {
  return { kind, text: `event: ${event}\ndata: ${JSON.stringify(data)}\n\n` }
}

/** An event without a name. */
export function plainFrame(kind: Frame['kind'], data: unknown): Frame {
  return { kind, text: `data: ${JSON.stringify(data)}\n\n` }
}

/** How OpenAI-shaped errors call a status. */
export function openaiError({ status, message }: Trouble): { error: Record<string, unknown> } {
  const { type, code } = OPENAI_ERRORS[status] ?? {
    type: status < 500 ? 'invalid_request_error' : 'server_error',
    code: null,
  }
  return { error: { message, type, param: null, code } }
}

const OPENAI_ERRORS: Readonly<Record<number, { type: string; code: string | null }>> = {
  401: { type: 'invalid_request_error', code: 'invalid_api_key' },
  403: { type: 'permission_error', code: null },
  404: { type: 'invalid_request_error', code: 'model_not_found' },
  429: { type: 'requests', code: 'rate_limit_exceeded' },
  500: { type: 'server_error', code: 'server_error' },
  503: { type: 'server_error', code: 'service_unavailable' },
  529: { type: 'server_error', code: 'overloaded' },
}

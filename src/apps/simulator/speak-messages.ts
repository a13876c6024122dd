/** Speaker of the Messages format, in which raw thinking and summaries look the same. Pure. */
import {
  type Frame,
  namedFrame,
  type ReplyPart,
  type SimFailure,
  type Speaker,
  type Speech,
  wholeText,
} from './reply.ts'

const STOP_REASONS = {
  stop: 'end_turn',
  calls: 'tool_use',
  length: 'max_tokens',
  refusal: 'refusal',
} as const

const ERROR_TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  500: 'api_error',
  503: 'api_error',
  504: 'timeout_error',
  529: 'overloaded_error',
}

export const messagesSpeaker: Speaker = {
  *frames(speech) {
    const opening = {
      ...envelope(speech, null),
      content: [],
      usage: { ...inputUsage(speech), output_tokens: 1 },
    }
    yield event('open', { type: 'message_start', message: opening })
    yield event('open', { type: 'ping' })
    for (const [index, part] of speech.reply.parts.entries()) yield* blockFrames(speech, part, index)
    yield event('finish', {
      type: 'message_delta',
      delta: { stop_reason: STOP_REASONS[speech.reply.finish], stop_sequence: null },
      usage: { output_tokens: speech.tally.output },
    })
    yield event('finish', { type: 'message_stop' })
  },
  whole: speech => document(speech, STOP_REASONS[speech.reply.finish]),
  unfinished: speech => document(speech, null),
  failure,
  failureFrame: trouble => namedFrame('finish', 'error', failure(trouble)).text,
}

function event(
  kind: Frame['kind'],
  data: { readonly type: string; readonly [field: string]: unknown },
): Frame {
  return namedFrame(kind, data.type, data)
}

function failure({ status, message }: SimFailure): unknown {
  const type = ERROR_TYPES[status] ?? (status < 500 ? 'invalid_request_error' : 'api_error')
  return { type: 'error', error: { type, message } }
}

function* blockFrames(speech: Speech, part: ReplyPart, index: number): Generator<Frame> {
  yield event('open', { type: 'content_block_start', index, content_block: block(speech, part, index, null) })
  for (const piece of part.pieces.each()) {
    yield event('token', { type: 'content_block_delta', index, delta: deltaOf(part, piece) })
  }
  if (part.kind === 'reasoning') {
    const signature = signatureOf(speech)
    yield event('close', {
      type: 'content_block_delta',
      index,
      delta: { type: 'signature_delta', signature },
    })
  }
  yield event('close', { type: 'content_block_stop', index })
}

function deltaOf(part: ReplyPart, text: string): object {
  if (part.kind === 'reasoning') return { type: 'thinking_delta', thinking: text }
  if (part.kind === 'call') return { type: 'input_json_delta', partial_json: text }
  return { type: 'text_delta', text }
}

/** A content block; `text` null is its form at the start of a stream. */
function block(speech: Speech, part: ReplyPart, index: number, text: string | null): object {
  if (part.kind === 'reasoning') {
    return { type: 'thinking', thinking: text ?? '', signature: text === null ? '' : signatureOf(speech) }
  }
  if (part.kind !== 'call') return { type: 'text', text: text ?? '' }
  const input: unknown = text === null ? {} : JSON.parse(text)
  return { type: 'tool_use', id: `toolu_${speech.id}${index}`, name: part.name, input }
}

function signatureOf(speech: Speech): string {
  return Buffer.from(`signed by ${speech.id}`).toString('base64')
}

function envelope(speech: Speech, stopReason: string | null): Record<string, unknown> {
  return {
    id: `msg_${speech.id}`,
    type: 'message',
    role: 'assistant',
    model: speech.ask.model,
    stop_reason: stopReason,
    stop_sequence: null,
  }
}

function document(speech: Speech, stopReason: string | null): unknown {
  return {
    ...envelope(speech, stopReason),
    content: speech.reply.parts.map((part, index) => block(speech, part, index, wholeText(part.pieces))),
    usage: { ...inputUsage(speech), output_tokens: speech.tally.output },
  }
}

function inputUsage({ tally }: Speech): object {
  return { input_tokens: tally.input, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 }
}

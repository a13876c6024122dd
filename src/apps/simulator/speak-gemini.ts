/** Speaker of the generateContent format: CRLF line ends, complete calls, a separate count of thought tokens. Pure. */
import { type Frame, type ReplyPart, type SimFailure, type Speaker, type Speech, wholeText } from './reply.ts'

const FINISH_REASONS = { stop: 'STOP', calls: 'STOP', length: 'MAX_TOKENS', refusal: 'SAFETY' } as const

const STATUS_NAMES: Readonly<Record<number, string>> = {
  400: 'INVALID_ARGUMENT',
  401: 'UNAUTHENTICATED',
  403: 'PERMISSION_DENIED',
  404: 'NOT_FOUND',
  429: 'RESOURCE_EXHAUSTED',
  500: 'INTERNAL',
  503: 'UNAVAILABLE',
  504: 'DEADLINE_EXCEEDED',
}

export const geminiSpeaker: Speaker = {
  *frames(speech) {
    for (const part of speech.reply.parts) {
      if (part.kind === 'call') yield chunk(speech, 'token', [partOf(part, wholeText(part.pieces))], null)
      else for (const piece of part.pieces.each()) yield chunk(speech, 'token', [partOf(part, piece)], null)
    }
    yield chunk(speech, 'finish', [{ text: '' }], FINISH_REASONS[speech.reply.finish])
  },
  whole: speech => document(speech, FINISH_REASONS[speech.reply.finish]),
  unfinished: speech => document(speech, null),
  failure,
  failureFrame: trouble => `data: ${JSON.stringify(failure(trouble))}\r\n\r\n`,
}

function failure({ status, message }: SimFailure): unknown {
  const name = STATUS_NAMES[status] ?? (status < 500 ? 'INVALID_ARGUMENT' : 'UNAVAILABLE')
  return { error: { code: status, message, status: name } }
}

function partOf(part: ReplyPart, text: string): object {
  if (part.kind === 'call') return { functionCall: { name: part.name, args: JSON.parse(text) as unknown } }
  if (part.kind === 'text' && part.isImage === true)
    return { inlineData: { mimeType: 'image/png', data: text } }
  return part.kind === 'reasoning' ? { text, thought: true } : { text }
}

function chunk(speech: Speech, kind: Frame['kind'], parts: readonly object[], finish: string | null): Frame {
  return { kind, text: `data: ${JSON.stringify(content(speech, parts, finish))}\r\n\r\n` }
}

function document(speech: Speech, finish: string | null): unknown {
  const parts = speech.reply.parts.map(part => partOf(part, wholeText(part.pieces)))
  return content(speech, parts, finish)
}

function content(speech: Speech, parts: readonly object[], finish: string | null): unknown {
  const candidate = {
    content: { role: 'model', parts },
    index: 0,
    ...(finish === null ? {} : { finishReason: finish }),
  }
  return {
    candidates: [candidate],
    usageMetadata: finish === null ? { promptTokenCount: speech.tally.input } : usage(speech),
    modelVersion: speech.ask.model,
    responseId: speech.id,
  }
}

function usage({ tally }: Speech): object {
  return {
    promptTokenCount: tally.input,
    candidatesTokenCount: tally.output - tally.reasoning,
    thoughtsTokenCount: tally.reasoning,
    totalTokenCount: tally.input + tally.output,
  }
}

/** Speaker of the Chat Completions format. Pure. */
import {
  type Frame,
  openaiError,
  plainFrame,
  type ReplyPart,
  type Speaker,
  type Speech,
  wholeText,
} from './reply.ts'

const FINISH_REASONS = { stop: 'stop', calls: 'tool_calls', length: 'length', refusal: 'stop' } as const

export const chatSpeaker: Speaker = {
  *frames(speech) {
    yield chunk(speech, 'open', { role: 'assistant', content: '' })
    let callIndex = 0
    for (const [partIndex, part] of speech.reply.parts.entries()) {
      if (part.kind === 'call') yield* callFrames(speech, part, callIndex++, partIndex)
      else for (const piece of part.pieces.each()) yield chunk(speech, 'token', deltaOf(part, piece))
    }
    yield chunk(speech, 'finish', {}, FINISH_REASONS[speech.reply.finish])
    if (speech.ask.streamUsage)
      yield plainFrame('close', {
        ...envelope(speech, 'chat.completion.chunk'),
        choices: [],
        usage: usage(speech),
      })
    yield { kind: 'finish', text: 'data: [DONE]\n\n' }
  },
  whole: speech => completion(speech, FINISH_REASONS[speech.reply.finish]),
  unfinished: speech => completion(speech, null),
  failure: openaiError,
  failureFrame: trouble => plainFrame('finish', openaiError(trouble)).text,
}

function envelope(speech: Speech, object: string): Record<string, unknown> {
  return {
    id: `chatcmpl-${speech.id}`,
    object,
    created: speech.createdSeconds,
    model: speech.ask.model,
    system_fingerprint: null,
  }
}

function chunk(speech: Speech, kind: Frame['kind'], delta: object, finish: string | null = null): Frame {
  const choice = { index: 0, delta, logprobs: null, finish_reason: finish }
  return plainFrame(kind, { ...envelope(speech, 'chat.completion.chunk'), choices: [choice] })
}

function deltaOf(part: ReplyPart, text: string): object {
  if (part.kind === 'refusal') return { refusal: text }
  if (part.kind === 'text' && part.isImage === true)
    return { images: [{ type: 'image_url', image_url: { url: `data:image/png;base64,${text}` } }] }
  if (part.kind !== 'reasoning') return { content: text }
  return part.form === 'text'
    ? { reasoning_content: text }
    : { reasoning_details: [{ type: 'reasoning.summary', summary: text, index: 0 }] }
}

function* callFrames(
  speech: Speech,
  part: ReplyPart & { kind: 'call' },
  index: number,
  partIndex: number,
): Generator<Frame> {
  const call = (fields: object): object => ({ tool_calls: [{ index, ...fields }] })
  const inner = part.custom ? 'custom' : 'function'
  const field = part.custom ? 'input' : 'arguments'
  yield chunk(
    speech,
    'open',
    call({ ...callHead(speech, part, partIndex), [inner]: { name: part.name, [field]: '' } }),
  )
  for (const piece of part.pieces.each()) yield chunk(speech, 'token', call({ [inner]: { [field]: piece } }))
}

function callHead(
  speech: Speech,
  part: ReplyPart & { kind: 'call' },
  partIndex: number,
): { id: string; type: string } {
  return { id: `call_${speech.id}${partIndex}`, type: part.custom ? 'custom' : 'function' }
}

function completion(speech: Speech, finish: string | null): unknown {
  return {
    ...envelope(speech, 'chat.completion'),
    choices: [{ index: 0, message: message(speech), logprobs: null, finish_reason: finish }],
    usage: usage(speech),
  }
}

function message(speech: Speech): Record<string, unknown> {
  const fields: Record<string, unknown> = { role: 'assistant', content: null, refusal: null }
  const calls: unknown[] = []
  for (const [partIndex, part] of speech.reply.parts.entries()) {
    const text = wholeText(part.pieces)
    if (part.kind !== 'call') Object.assign(fields, deltaOf(part, text))
    else if (part.custom)
      calls.push({ ...callHead(speech, part, partIndex), custom: { name: part.name, input: text } })
    else calls.push({ ...callHead(speech, part, partIndex), function: { name: part.name, arguments: text } })
  }
  if (calls.length > 0) fields['tool_calls'] = calls
  return fields
}

function usage({ tally }: Speech): unknown {
  return {
    prompt_tokens: tally.input,
    completion_tokens: tally.output,
    total_tokens: tally.input + tally.output,
    prompt_tokens_details: { cached_tokens: 0, audio_tokens: 0 },
    completion_tokens_details: { reasoning_tokens: tally.reasoning, audio_tokens: 0 },
  }
}

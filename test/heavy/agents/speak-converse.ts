/** Speaker of Bedrock's Converse format for scripted providers; `awsEvents` makes its events binary. Pure. */
import {
  namedFrame,
  type ReplyPart,
  type SimFailure,
  type Speaker,
  type Speech,
  wholeText,
} from '../../../src/apps/simulator/reply.ts'

const FINISH = { stop: 'end_turn', calls: 'tool_use', length: 'max_tokens', refusal: 'refusal' } as const

export const converseSpeaker: Speaker = {
  *frames(speech) {
    yield namedFrame('open', 'messageStart', { role: 'assistant' })
    for (const [contentBlockIndex, part] of speech.reply.parts.entries()) {
      if (part.kind === 'call') {
        const start = { toolUse: { toolUseId: callId(speech, contentBlockIndex), name: part.name } }
        yield namedFrame('open', 'contentBlockStart', { contentBlockIndex, start })
      }
      for (const piece of part.pieces.each())
        yield namedFrame('token', 'contentBlockDelta', { contentBlockIndex, delta: deltaOf(part, piece) })
      if (part.kind === 'reasoning') {
        const delta = { reasoningContent: { signature: signatureOf(speech) } }
        yield namedFrame('close', 'contentBlockDelta', { contentBlockIndex, delta })
      }
      yield namedFrame('close', 'contentBlockStop', { contentBlockIndex })
    }
    yield namedFrame('finish', 'messageStop', { stopReason: FINISH[speech.reply.finish] })
    yield namedFrame('finish', 'metadata', { usage: usageOf(speech), metrics: { latencyMs: 1 } })
  },
  whole: speech => document(speech, FINISH[speech.reply.finish]),
  unfinished: speech => document(speech, null),
  failure,
  failureFrame: trouble => namedFrame('finish', 'exception:internalServerException', failure(trouble)).text,
}

function failure({ message }: SimFailure): { readonly message: string } {
  return { message }
}

function callId(speech: Speech, index: number): string {
  return `tooluse_${speech.id}${index}`
}

function signatureOf(speech: Speech): string {
  return Buffer.from(`signed by ${speech.id}`).toString('base64')
}

function deltaOf(part: ReplyPart, text: string): object {
  if (part.kind === 'call') return { toolUse: { input: text } }
  return part.kind === 'reasoning' ? { reasoningContent: { text } } : { text }
}

function blockOf(speech: Speech, part: ReplyPart, index: number): object {
  const text = wholeText(part.pieces)
  if (part.kind === 'call')
    return { toolUse: { toolUseId: callId(speech, index), name: part.name, input: JSON.parse(text) } }
  if (part.kind === 'reasoning')
    return { reasoningContent: { reasoningText: { text, signature: signatureOf(speech) } } }
  return { text }
}

function document(speech: Speech, stopReason: string | null): unknown {
  const content = speech.reply.parts.map((part, index) => blockOf(speech, part, index))
  return { output: { message: { role: 'assistant', content } }, stopReason, usage: usageOf(speech) }
}

function usageOf({ tally }: Speech): object {
  return {
    inputTokens: tally.input,
    outputTokens: tally.output,
    totalTokens: tally.input + tally.output,
  }
}

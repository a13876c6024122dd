/** Reads the frames of a Gemini stream strictly, with all fields. */
import assert from 'node:assert/strict'
import type { StreamEvent } from '../../src/protocol/events.ts'
import { gemini } from '../support/dialects.ts'

export type Loose = Record<string, unknown>
export type Part = Loose & {
  readonly text?: string
  readonly thought?: boolean
  readonly thoughtSignature?: string
}

const asking = (alt: string) =>
  gemini.parse({
    model: 'acme/recorded',
    alt,
    contents: [{ role: 'user', parts: [{ text: 'hi' }] }],
    generationConfig: { thinkingConfig: { includeThoughts: true } },
  })
/** It wants an event stream that shows thoughts. */
export const REQUEST = asking('sse')
/** It wants the same chunks as one array. */
export const ARRAY = asking('json')

/** The frames of events, the end included. */
export function framesOf(events: readonly StreamEvent[], request = REQUEST): string {
  const writer = gemini.frames(request)
  return events.map(event => writer.write(event)).join('') + writer.end()
}

/** The chunks of an event stream; a failure is the last one, and has no `data:` before it. */
export function chunksIn(frames: string): Loose[] {
  return frames
    .split('\n\n')
    .filter(frame => frame !== '')
    .map(frame => JSON.parse(frame.replace(/^data: /, '')) as Loose)
}

export function candidateOf(chunk: Loose): { content?: { parts: Part[] } } & Loose {
  return ((chunk['candidates'] as Loose[] | undefined)?.[0] ?? {}) as ReturnType<typeof candidateOf>
}

export const partsOf = (chunk: Loose): readonly Part[] => candidateOf(chunk).content?.parts ?? []

/** The whole answer that chunks make together, with neighbouring texts of one kind as one. */
export function gathered(chunks: readonly Loose[]): Loose {
  const last = chunks.at(-1)
  assert(last !== undefined)
  assert.notEqual(candidateOf(last)['finishReason'], undefined, 'the last chunk has the end')
  for (const chunk of chunks) assert.equal(chunk['responseId'], last['responseId'])
  const parts: Loose[] = []
  for (const part of chunks.flatMap(partsOf)) {
    const before = parts.at(-1)
    const goesOn =
      part.text !== undefined && before?.['text'] !== undefined && before['thought'] === part.thought
    if (part.text === '' && part.thoughtSignature === undefined) continue
    if (goesOn && (before['thoughtSignature'] === undefined || part.thoughtSignature === undefined))
      parts[parts.length - 1] = { ...before, ...part, text: `${before['text']}${part.text}` }
    else parts.push(part)
  }
  return { ...last, candidates: [{ ...candidateOf(last), content: { role: 'model', parts } }] }
}

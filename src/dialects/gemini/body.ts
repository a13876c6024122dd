/** Writes a finished response as a whole generateContent reply. Pure. */
import type { MessageItem, OutputItem } from '../../protocol/items.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { ResponseResource } from '../../protocol/response.ts'
import {
  type AnswerPart,
  apart,
  endOf,
  type GeminiFields,
  headOf,
  logprobsOf,
  partsOf,
  reportsOf,
  SealCarrier,
  showsThoughts,
} from './answer.ts'

export function geminiBody(response: ResponseResource, request: ResponsesRequest): GeminiFields {
  const { debug, output } = response
  return {
    candidates: [
      {
        content: contentOf(output, showsThoughts(request)),
        ...endOf(response),
        ...logprobsOf(output.flatMap(logprobsIn)),
        index: 0,
      },
    ],
    ...headOf(response),
    ...reportsOf(response),
    ...(debug === undefined ? {} : { debug }),
  }
}

/** The content that items make together; clients rely on one part at least. */
function contentOf(output: readonly OutputItem[], shows: boolean): GeminiFields {
  const carrier = new SealCarrier()
  const parts: AnswerPart[] = []
  let hasThought = false
  for (const item of output) {
    const more = partsOf(item, carrier, shows)
    parts.push(...(hasThought ? apart(more) : more))
    hasThought ||= more.some(part => part['thought'] === true)
  }
  parts.push(...carrier.rest())
  return { parts: parts.length === 0 ? [{ text: '' }] : parts, role: 'model' }
}

function logprobsIn(item: OutputItem) {
  if (item.type !== 'message') return []
  return (item as MessageItem).content.flatMap(part =>
    part.type === 'output_text' ? (part.logprobs ?? []) : [],
  )
}

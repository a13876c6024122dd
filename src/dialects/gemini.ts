/**
 * The dialect of Google's generateContent: parts in, one candidate out. Pure.
 * A body becomes a request in the Responses vocabulary; its events and its response become chunks and an answer.
 */
import type { MessageItem, OutputItem } from '../protocol/items.ts'
import type { Offering } from '../protocol/json/request-parser.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { ResponseResource } from '../protocol/response.ts'
import type { Dialect } from './dialect.ts'
import {
  type AnswerPart,
  endOf,
  type GeminiFields,
  headOf,
  logprobsOf,
  partsOf,
  reportsOf,
  SealCarrier,
  separateThoughts,
  showsThoughts,
} from './gemini/answer.ts'
import { blockedAnswer, geminiFailure } from './gemini/failure.ts'
import { GeminiFrames } from './gemini/frames.ts'
import { createGeminiParser } from './gemini/parse.ts'
import { inGeminiNames } from './gemini/paths.ts'

/** Parameters of the query in which Google's clients may send a key. */
const KEY_PARAMETERS = ['key', 'access_token']

export function createGemini(offering: Offering): Dialect {
  return {
    name: 'gemini',
    parse: createGeminiParser(offering),
    frames: request => new GeminiFrames(request),
    body: geminiBody,
    failure: geminiFailure,
    inOwnNames: inGeminiNames,
    answerInstead: blockedAnswer,
    queryFault,
  }
}

/** Proxies log addresses, so keys must not be in them. */
function queryFault(query: string): string | null {
  const parameters = new URLSearchParams(query)
  const parameter = KEY_PARAMETERS.find(name => parameters.has(name))
  return parameter === undefined
    ? null
    : `${parameter}: must not be in the query, where logs would show it: send the header x-goog-api-key`
}

function geminiBody(response: ResponseResource, request: ResponsesRequest): GeminiFields {
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
function contentOf(output: readonly OutputItem[], withThoughts: boolean): GeminiFields {
  const carrier = new SealCarrier()
  const parts: AnswerPart[] = []
  let hasThought = false
  for (const item of output) {
    const itemParts = partsOf(item, carrier, withThoughts)
    parts.push(...(hasThought ? separateThoughts(itemParts) : itemParts))
    hasThought ||= itemParts.some(part => part['thought'] === true)
  }
  parts.push(...carrier.remainingParts())
  return { parts: parts.length === 0 ? [{ text: '' }] : parts, role: 'model' }
}

function logprobsIn(item: OutputItem) {
  if (item.type !== 'message') return []
  return (item as MessageItem).content.flatMap(part =>
    part.type === 'output_text' ? (part.logprobs ?? []) : [],
  )
}

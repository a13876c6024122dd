/**
 * The dialect of Google's generateContent: parts in, one candidate out. Pure.
 * A body becomes a request in the Responses vocabulary; its events and its response become chunks and an answer.
 */
import type { Offered } from '../protocol/json/request-parser.ts'
import type { Dialect } from './dialect.ts'
import { geminiBody } from './gemini/body.ts'
import { blockedAnswer, geminiFailure } from './gemini/failure.ts'
import { GeminiFrames } from './gemini/frames.ts'
import { createGeminiParser } from './gemini/parse.ts'

/** Parameters of the query in which Google's clients may send a key. */
const KEYS = ['key', 'access_token']

export function createGemini(offered: Offered): Dialect {
  return {
    name: 'gemini',
    parse: createGeminiParser(offered),
    frames: request => new GeminiFrames(request),
    body: geminiBody,
    failure: geminiFailure,
    instead: blockedAnswer,
    queryFault,
  }
}

/** Addresses are in logs on the way; keys must not. */
function queryFault(query: string): string | null {
  const parameters = new URLSearchParams(query)
  const found = KEYS.find(name => parameters.has(name))
  return found === undefined
    ? null
    : `${found}: must not be in the query, where logs would show it: send the header x-goog-api-key`
}

/**
 * The dialect of POST /chat/completions: messages in, one choice out. Pure.
 * A body becomes a request in the Responses vocabulary; its events and its response become chunks and a completion.
 */
import type { Offering } from '../protocol/json/request-parser.ts'
import { excludesReasoning } from './chat-completions/answer.ts'
import { chatBody } from './chat-completions/body.ts'
import { chatFailure } from './chat-completions/failure.ts'
import { ChatFrames } from './chat-completions/frames.ts'
import { createChatParser } from './chat-completions/parse.ts'
import { inChatNames } from './chat-completions/paths.ts'
import type { Dialect } from './dialect.ts'

export function createChatCompletions(offering: Offering): Dialect {
  return {
    name: 'chat-completions',
    parse: createChatParser(offering),
    frames: request => new ChatFrames(request),
    body: (response, request) => chatBody(response, !excludesReasoning(request)),
    failure: chatFailure,
    inOwnNames: inChatNames,
  }
}

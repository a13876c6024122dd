/** The parser and the dialects of a gateway that offers every plugin and server tool. */
import { createChatCompletions } from '../../src/dialects/chat-completions.ts'
import { createResponsesDialect } from '../../src/dialects/responses.ts'
import { createRequestParser, type Offered } from '../../src/protocol/request-parser.ts'

/** A test in test/threads/build-gateway.test.ts holds it equal to the tables. */
export const OFFERED: Offered = {
  plugins: new Set(['moderation', 'file-parser', 'alignment', 'context-compression', 'response-healing']),
  tools: new Set(['datetime']),
  routers: new Set(),
}

export const parseResponsesRequest = createRequestParser(OFFERED)
export const responsesDialect = createResponsesDialect(OFFERED)
export const chatCompletions = createChatCompletions(OFFERED)

/**
 * The dialect of POST /messages: blocks in, one message out. Pure.
 * A body becomes a request in the Responses vocabulary; its events and its response become events and a message.
 */
import type { Offering } from '../protocol/json/request-parser.ts'
import type { Dialect } from './dialect.ts'
import { messagesBody } from './messages/body.ts'
import { failureHeaders, messagesFailure, rateHeaders } from './messages/failure.ts'
import { MessagesFrames } from './messages/frames.ts'
import { createMessagesParser } from './messages/parse.ts'
import { inMessagesNames } from './messages/paths.ts'

export function createMessages(offering: Offering): Dialect {
  return {
    name: 'messages',
    idHeader: 'Request-Id',
    parse: createMessagesParser(offering),
    frames: request => new MessagesFrames(request),
    body: messagesBody,
    failure: messagesFailure,
    inOwnNames: inMessagesNames,
    failureHeaders,
    rateHeaders,
  }
}

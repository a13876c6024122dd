/**
 * The wire format of Anthropic's Messages API: what `anthropic-messages` means in the table of formats. The
 * parts are in the files beside this one, all named after it. Pure.
 */
import { MessageDecoder } from './anthropic-messages/decode.ts'
import { encodeMessages } from './anthropic-messages/encode.ts'
import { messagesFailure } from './anthropic-messages/failure.ts'
import type { Format } from './format.ts'

export const anthropicMessages: Format = {
  name: 'anthropic-messages',
  dialect: 'messages',
  filesByLink: true,
  encode: encodeMessages,
  framing: stream => (stream ? 'sse' : 'json'),
  decoder: emit => new MessageDecoder(emit),
  failure: messagesFailure,
}

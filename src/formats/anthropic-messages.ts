/**
 * The wire format of Anthropic's Messages API: what `anthropic-messages` means in the table of formats. The
 * parts are in the files beside this one, all named after it. Pure.
 */
import { MessageDecoder } from './anthropic-messages/decode.ts'
import { encode } from './anthropic-messages/encode.ts'
import { failure } from './anthropic-messages/failure.ts'
import type { Format } from './format.ts'

export const anthropicMessages: Format = {
  name: 'anthropic-messages',
  dialect: 'messages',
  encode,
  framing: stream => (stream ? 'sse' : 'json'),
  decoder: emit => new MessageDecoder(emit),
  failure,
}

/**
 * The Chat Completions wire format, spoken by OpenAI's chat endpoint and, with deviations, by most other
 * providers. What deviates in requests is a quirk of the provider's row; what deviates in replies the decoder
 * takes from anybody. Pure.
 */
import type { Format } from './format.ts'
import { ChatDecoder } from './openai-chat/decode.ts'
import { encodeChat } from './openai-chat/encode.ts'
import { chatFailure } from './openai-chat/failure.ts'

export const openaiChat: Format = {
  name: 'openai-chat',
  dialect: 'chat-completions',
  filesByLink: false,
  encode: encodeChat,
  framing: stream => (stream ? 'sse' : 'json'),
  decoder: emit => new ChatDecoder(emit),
  failure: chatFailure,
}

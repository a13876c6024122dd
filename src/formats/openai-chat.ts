/**
 * The Chat Completions wire format. OpenAI's chat endpoint uses it, and so do most other providers, with deviations: a
 * quirk in the provider's row adapts requests, and the decoder accepts every known deviation in replies. Its parts are
 * the files in `openai-chat/`. Pure.
 */
import type { Format } from './format.ts'
import { ChatDecoder } from './openai-chat/decode.ts'
import { encodeChat } from './openai-chat/encode.ts'
import { chatFailure } from './openai-chat/failure.ts'

export const openaiChat: Format = {
  name: 'openai-chat',
  dialect: 'chat-completions',
  filesByLink: false,
  truncates: false,
  hosts: new Set(),
  // OpenAI's own servers accept custom tools; nearly all others accept only functions.
  customTools: false,
  encode: encodeChat,
  framing: stream => (stream ? 'sse' : 'json'),
  decoder: (emit, _, takeMessage) => new ChatDecoder(emit, takeMessage),
  failure: chatFailure,
}

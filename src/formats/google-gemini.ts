/**
 * The wire format of the Gemini API and of Gemini on Vertex: `generateContent` and `streamGenerateContent`. Pure.
 * Encoding is in `google-gemini/encode.ts`, decoding in `decode.ts`, errors in `failure.ts`.
 */
import type { Format } from './format.ts'
import { GeminiDecoder } from './google-gemini/decode.ts'
import { encodeGemini } from './google-gemini/encode.ts'
import { geminiFailure } from './google-gemini/failure.ts'

export const googleGemini: Format = {
  name: 'google-gemini',
  dialect: null,
  filesByLink: true,
  encode: encodeGemini,
  framing: stream => (stream ? 'sse' : 'json'),
  decoder: emit => new GeminiDecoder(emit),
  failure: geminiFailure,
}

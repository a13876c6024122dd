/**
 * The wire format of the Gemini API and of Gemini on Vertex: `generateContent` and `streamGenerateContent`. Its parts
 * are the files in `google-gemini/`. Pure.
 */
import { GEMINI_COUNTING } from './counting.ts'
import type { Format } from './format.ts'
import { GeminiDecoder } from './google-gemini/decode.ts'
import { encodeGemini } from './google-gemini/encode.ts'
import { geminiFailure } from './google-gemini/failure.ts'
import { HOSTED_TOOLS } from './google-gemini/tools.ts'

export const googleGemini: Format = {
  name: 'google-gemini',
  dialect: 'gemini',
  filesByLink: true,
  truncates: false,
  hosts: HOSTED_TOOLS,
  customTools: null,
  searchesDomains: false,
  counting: GEMINI_COUNTING,
  encode: encodeGemini,
  framing: stream => (stream ? 'sse' : 'json'),
  decoder: emit => new GeminiDecoder(emit),
  failure: geminiFailure,
}

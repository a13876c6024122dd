/**
 * The wire format of OpenAI's Responses API, which a dozen providers use. The gateway's own vocabulary is nearly the
 * same. Its parts are the files in `openai-responses/`. Pure.
 */
import type { Endpoint } from '../protocol/provider.ts'
import type { Delta, Format } from './format.ts'
import { CompactDecoder, encodeCompact, encodeWithThreshold } from './openai-responses/compact.ts'
import { ResponsesDecoder } from './openai-responses/decode.ts'
import { encodeResponses } from './openai-responses/encode.ts'
import { responsesFailure } from './openai-responses/failure.ts'
import { HOSTED_TOOLS } from './openai-responses/tools.ts'
import type { TakeMessage } from './whole-message.ts'

export const openaiResponses = {
  name: 'openai-responses',
  dialect: 'responses',
  filesByLink: true,
  truncates: true,
  hosts: HOSTED_TOOLS,
  customTools: true,
  encode: encodeResponses,
  framing: (stream: boolean) => (stream ? 'sse' : 'json'),
  /** Given an endpoint, the decoder names unmarked reasoning after the endpoint's provider. */
  decoder: (emit: (delta: Delta) => void, endpoint?: Endpoint, takeMessage: TakeMessage | null = null) =>
    new ResponsesDecoder(emit, endpoint?.provider.slug ?? null, takeMessage),
  failure: responsesFailure,
  compaction: { bySetting: true, format: compactingFormat },
} as const satisfies Format

function compactingFormat(threshold: number | null): Format {
  if (threshold !== null)
    return {
      ...openaiResponses,
      encode: (model, endpoint) => encodeWithThreshold(model, endpoint, threshold),
    }
  return {
    ...openaiResponses,
    encode: encodeCompact,
    framing: () => 'json',
    decoder: emit => new CompactDecoder(emit),
  }
}

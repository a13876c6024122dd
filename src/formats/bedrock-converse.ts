/** The wire format of Amazon Bedrock's Converse API. Its parts are the files in `bedrock-converse/`. Pure. */
import { ConverseDecoder } from './bedrock-converse/decode.ts'
import { encodeConverse } from './bedrock-converse/encode.ts'
import { converseFailure } from './bedrock-converse/failure.ts'
import { INVOKE_MODEL, needsInvoke } from './bedrock-converse/invoke.ts'
import { CONVERSE_COUNTING } from './counting.ts'
import type { Format } from './format.ts'

export const bedrockConverse: Format = {
  name: 'bedrock-converse',
  dialect: null,
  filesByLink: false,
  truncates: false,
  hosts: new Set(),
  customTools: null,
  counting: CONVERSE_COUNTING,
  encode: encodeConverse,
  framing: stream => (stream ? 'aws-events' : 'json'),
  decoder: (emit, endpoint) => new ConverseDecoder(emit, endpoint),
  failure: converseFailure,
  variant: (request, dialect, endpoint) =>
    needsInvoke(request, dialect, endpoint) ? { name: 'bedrock-converse', ...INVOKE_MODEL } : null,
}

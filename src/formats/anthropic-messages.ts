/** The wire format of Anthropic's Messages API. Its parts are the files in `anthropic-messages/`. Pure. */
import { cloudRequest, encodeInCloud, VERTEX } from './anthropic-messages/clouds.ts'
import { encodeCompacting } from './anthropic-messages/compact.ts'
import { actionOf, COMPUTER_NAME } from './anthropic-messages/computer.ts'
import { MessageDecoder } from './anthropic-messages/decode.ts'
import { encodeMessages } from './anthropic-messages/encode.ts'
import { messagesFailure } from './anthropic-messages/failure.ts'
import { HOSTED_TOOLS } from './anthropic-messages/tools.ts'
import { MESSAGES_COUNTING } from './counting.ts'
import type { Format } from './format.ts'

export const anthropicMessages: Format = {
  name: 'anthropic-messages',
  dialect: 'messages',
  filesByLink: true,
  truncates: false,
  hosts: HOSTED_TOOLS,
  customTools: null,
  computer: { name: COMPUTER_NAME, action: actionOf },
  counting: MESSAGES_COUNTING,
  encode: (model, endpoint) =>
    endpoint.provider.quirks.includes('raw-predict')
      ? encodeInCloud(VERTEX, model, endpoint)
      : encodeMessages(model, endpoint),
  framing: stream => (stream ? 'sse' : 'json'),
  decoder: (emit, _, takeMessage) => new MessageDecoder(emit, takeMessage),
  failure: messagesFailure,
  compaction: {
    bySetting: false,
    format: threshold => ({
      ...anthropicMessages,
      encode: (model, endpoint) => {
        const wire = encodeCompacting(model, endpoint, threshold)
        const isVertex = endpoint.provider.quirks.includes('raw-predict')
        return isVertex ? cloudRequest(VERTEX, wire, endpoint, model.stream) : wire
      },
    }),
  },
}

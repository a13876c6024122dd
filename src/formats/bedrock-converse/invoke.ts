/**
 * Bedrock's InvokeModel, which accepts the Messages API for Claude: used for requests from clients of that API whose
 * content Converse cannot express. Its stream carries the events of that API in AWS messages. Pure. Hot path.
 */
import { GatewayError } from '../../base/errors.ts'
import { parseJson, record } from '../../base/json.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { DialectName, ResponsesRequest } from '../../protocol/request.ts'
import {
  type CloudFormat,
  encodeInCloud,
  RAW_API_BETAS,
  UNSUPPORTED_FIELDS,
} from '../anthropic-messages/clouds.ts'
import { MessageDecoder } from '../anthropic-messages/decode.ts'
import type { Decoder, Delta, Format } from '../format.ts'
import type { TakeMessage } from '../whole-message.ts'
import { converseFailure, EXCEPTION_PREFIX, streamFailure } from './failure.ts'
import { familyOf, modelPath } from './model.ts'

const INVOKE_CLOUD: CloudFormat = {
  version: 'bedrock-2023-05-31',
  path: (model, stream) => `${modelPath(model)}/${stream ? 'invoke-with-response-stream' : 'invoke'}`,
  betas: RAW_API_BETAS,
  betasInBody: true,
  // The path decides whether the reply is streamed.
  omittedFields: [...UNSUPPORTED_FIELDS, 'stream', 'metadata'],
  eagerByBeta: true,
}

/** Tools of the Messages API that the model knows without a schema. */
const CLAUDE_TOOL = /^(?:bash|text_editor|memory|computer)_\d{8}$/

/** True for a request that only the model's own API can say. */
export function needsInvoke(
  request: ResponsesRequest,
  dialect: DialectName,
  { upstreamModel }: Pick<Endpoint, 'upstreamModel'>,
): boolean {
  if (dialect !== INVOKE_MODEL.dialect || familyOf(upstreamModel) !== 'claude') return false
  if ((request as { readonly context_management?: unknown }).context_management != null) return true
  return request.tools?.some(({ type }) => CLAUDE_TOOL.test(type)) === true
}

class InvokeDecoder implements Decoder {
  readonly #message: MessageDecoder

  constructor(emit: (delta: Delta) => void, takeMessage: TakeMessage | null) {
    this.#message = new MessageDecoder(emit, takeMessage)
  }

  get withheld(): number {
    return this.#message.withheld
  }

  frame(event: string, data: string): void {
    if (event === '') {
      this.#message.frame('', data)
      return
    }
    if (event.startsWith(EXCEPTION_PREFIX)) {
      const fields = record(parseJson(data))
      throw fields === null ? unknownEvent() : streamFailure(event.slice(EXCEPTION_PREFIX.length), fields)
    }
    // Other events are not documented.
    if (event === 'chunk') this.#message.frame('', data)
  }

  end(): void {
    this.#message.end()
  }
}

function unknownEvent(): GatewayError {
  return new GatewayError('provider_unavailable', 'The provider sent an event in an unknown format')
}

/** Replaces Converse for such a request. */
export const INVOKE_MODEL: Omit<Format, 'name'> = {
  dialect: 'messages',
  filesByLink: false,
  truncates: false,
  hosts: new Set(),
  customTools: null,
  encode: (model, endpoint) => encodeInCloud(INVOKE_CLOUD, model, endpoint),
  framing: stream => (stream ? 'aws-events' : 'json'),
  decoder: (emit, _, takeMessage = null) => new InvokeDecoder(emit, takeMessage),
  failure: converseFailure,
}

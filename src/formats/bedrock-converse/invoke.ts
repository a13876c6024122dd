/**
 * Bedrock's InvokeModel, which accepts the Messages API for Claude: used for requests from clients of that API whose
 * content Converse cannot express. Its stream carries the events of that API in AWS messages. Pure. Hot path.
 */
import { GatewayError } from '../../base/errors.ts'
import { parseJson, record } from '../../base/json.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { DialectName, ResponsesRequest } from '../../protocol/request.ts'
import {
  BETAS_OF_BOTH,
  type CloudFormat,
  encodeInCloud,
  FIELDS_OF_NEITHER,
} from '../anthropic-messages/clouds.ts'
import { MessageDecoder } from '../anthropic-messages/decode.ts'
import type { Decoder, Delta, Format } from '../format.ts'
import type { TakeMessage } from '../whole-message.ts'
import { converseFailure, streamFailure } from './failure.ts'
import { familyOf, modelPath } from './model.ts'

const INVOKE: CloudFormat = {
  version: 'bedrock-2023-05-31',
  path: (model, stream) => `${modelPath(model)}/${stream ? 'invoke-with-response-stream' : 'invoke'}`,
  betas: BETAS_OF_BOTH,
  betasInBody: true,
  // The path decides whether the reply is streamed.
  without: [...FIELDS_OF_NEITHER, 'stream', 'metadata'],
  eagerByBeta: true,
}

/** Tools of the Messages API that the model knows without a schema. */
const OWN_TOOL = /^(?:bash|text_editor|memory|computer)_\d{8}$/

/** True for a request that only the model's own API can say. */
export function needsInvoke(
  request: ResponsesRequest,
  dialect: DialectName,
  { upstreamModel }: Pick<Endpoint, 'upstreamModel'>,
): boolean {
  if (dialect !== INVOKE_MODEL.dialect || familyOf(upstreamModel) !== 'claude') return false
  if ((request as { readonly context_management?: unknown }).context_management != null) return true
  return request.tools?.some(({ type }) => OWN_TOOL.test(type)) === true
}

/** Prefix of an exception's name, which replaces the event type. */
const EXCEPTION = 'exception:'

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
    if (event.startsWith(EXCEPTION)) {
      const fields = record(parseJson(data))
      throw fields === null ? unknown() : streamFailure(event.slice(EXCEPTION.length), fields)
    }
    // Other events are not documented.
    if (event === 'chunk') this.#message.frame('', data)
  }

  end(): void {
    this.#message.end()
  }
}

function unknown(): GatewayError {
  return new GatewayError('provider_unavailable', 'The provider sent an event in an unknown format')
}

/** Stands in the place of Converse for such a request. */
export const INVOKE_MODEL: Omit<Format, 'name'> = {
  dialect: 'messages',
  filesByLink: false,
  truncates: false,
  hosts: new Set(),
  customTools: null,
  encode: (model, endpoint) => encodeInCloud(INVOKE, model, endpoint),
  framing: stream => (stream ? 'aws-events' : 'json'),
  decoder: (emit, _, takeMessage = null) => new InvokeDecoder(emit, takeMessage),
  failure: converseFailure,
}

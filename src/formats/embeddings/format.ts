/**
 * The contract of a wire format for embeddings: how to call one kind of provider. Pure: no I/O, no clock, no config. A
 * reply is one JSON document, from which `VectorBody` has removed the vectors.
 */
import type { GatewayError } from '../../base/errors.ts'
import type { Json } from '../../base/json.ts'
import type { EmbeddingsRequest, EmbeddingsSettings } from '../../protocol/embeddings.ts'
import type { EmbeddingsFormatName, Endpoint } from '../../protocol/provider.ts'
import type { DialectName } from '../../protocol/request.ts'
import type { Usage, WireRequest } from '../format.ts'

/** Inputs and settings that some providers do not support. */
export type EmbeddingsNeed = 'tokens' | 'images' | 'dimensions' | 'input_type'

/** A request as an encoder sees it: validated, guarded and routed. */
export interface EmbeddingsAsk {
  readonly request: EmbeddingsRequest
  readonly settings: EmbeddingsSettings
  /** Keyed hash of the end user, or null; the raw `user` is never forwarded. */
  readonly endUser: string | null
}

/** A decoded reply. */
export interface EmbeddingsReply {
  /** The provider's own id of its reply. */
  readonly upstreamId: string | null
  /** For each input, in order: the placeholder of its vector. `VectorBody.vector` returns the vector. */
  readonly vectors: readonly unknown[]
  /** Null if the provider reports no tokens. */
  readonly usage: Usage | null
}

export interface EmbeddingsFormat {
  readonly name: EmbeddingsFormatName
  /** The client dialect whose unknown fields the encoder sends; null: none. */
  readonly dialect: DialectName | null
  /** True if the endpoint supports such an input or setting. */
  takes(need: EmbeddingsNeed, endpoint: Endpoint): boolean
  /** @throws GatewayError `unprocessable` that names the field which this format cannot express. */
  encode(request: EmbeddingsAsk, endpoint: Endpoint): WireRequest
  /**
   * Reads the reply to a number of inputs.
   * @throws GatewayError if the reply is a failure, has an unknown shape, or has vectors for other inputs
   */
  decode(reply: Json, inputs: number): EmbeddingsReply
  /** The error for a reply with a status other than 2xx, as `Format.failure`. */
  failure(status: number, body: string): GatewayError
}

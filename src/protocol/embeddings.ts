/**
 * Embeddings in the vocabulary of the gateway: the request, its own settings, and the result. Pure. Each input is
 * a user message, so that guardrails, routing and limits treat it like any other request.
 */
import type { InputImage, InputText } from './parts.ts'
import type { ResponsesRequest } from './request.ts'
import type { GatewayMetadata, ResponseUsage } from './response.ts'

export type EmbeddingPart = InputText | InputImage

/** One input, for which the result has one vector. */
export interface EmbeddingItem {
  type: 'message'
  role: 'user'
  /** Empty if there are `tokens`. */
  content: string | EmbeddingPart[]
  /** Token ids of the model's own vocabulary instead of a text. */
  tokens?: readonly number[]
}

/** Unknown fields of the body are kept, as in any request. */
export interface EmbeddingsRequest extends ResponsesRequest {
  model: string
  /** Not empty. */
  input: EmbeddingItem[]
}

/** `base64` encodes float32 numbers in little-endian order. */
export type VectorEncoding = 'float' | 'base64'

/** Settings of a request. The format of each provider translates them. */
export interface EmbeddingsSettings {
  /** Numbers in each vector; null: the model's default. */
  readonly dimensions: number | null
  readonly encoding: VectorEncoding
  /** The use of the vectors, such as `query` or `search_document`; null: not stated. */
  readonly inputType: string | null
  /** True if the body had a list of inputs instead of one text or one list of tokens. */
  readonly isList: boolean
}

/** The path of an input in the body. */
export function inputPath({ isList }: Pick<EmbeddingsSettings, 'isList'>, index: number): string {
  return isList ? `input[${index}]` : 'input'
}

/** The data of a finished call, for a dialect to write. */
export interface EmbeddingsResult {
  /** Generation id. */
  readonly id: string
  /** Catalogue id of the model that answered. */
  readonly model: string
  /** Display name of its provider. */
  readonly provider: string
  /** For each input in order, the vector as JSON: an array of numbers, or base64 in quotes. */
  readonly vectors: readonly Buffer[]
  readonly usage: ResponseUsage | null
  /** Null unless the caller requested it. */
  readonly metadata: GatewayMetadata | null
}

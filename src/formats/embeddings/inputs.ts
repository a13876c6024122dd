/** Reads the inputs of an embeddings request for encoders, and checks the number of vectors in replies. Pure. */
import { GatewayError } from '../../base/errors.ts'
import { count, type Json } from '../../base/json.ts'
import {
  type EmbeddingItem,
  type EmbeddingPart,
  type EmbeddingsRequest,
  type EmbeddingsSettings,
  inputPath,
} from '../../protocol/embeddings.ts'
import { elementPath } from '../../protocol/json/schema.ts'
import { inexpressible, providerFailure } from '../failure.ts'
import { type Usage, ZERO_USAGE } from '../format.ts'
import { bareErrorIn, errorIn } from '../openai-chat/failure.ts'

/** Called with each part of an input and its path in the body. */
type PartEncoder<Part> = (part: EmbeddingPart, path: string) => Part

/**
 * The parts of each input in the form of a format.
 * @throws GatewayError `unprocessable` for token ids, and the errors of `encode`
 */
export function encodeInputs<Part>(
  { input }: EmbeddingsRequest,
  settings: EmbeddingsSettings,
  encode: PartEncoder<Part>,
): Part[][] {
  return input.map((item, index) => {
    const path = inputPath(settings, index)
    if (item.tokens !== undefined) throw noTokens(path)
    return partsOf(item).map((part, partIndex) => encode(part, elementPath(`${path}.content`, partIndex)))
  })
}

/**
 * Each input as one text; several text parts are joined as lines.
 * @throws GatewayError `unprocessable` for token ids and images
 */
export function textInputs({ input }: EmbeddingsRequest, settings: EmbeddingsSettings): string[] {
  return input.map((item, index) => {
    const path = inputPath(settings, index)
    if (item.tokens !== undefined) throw noTokens(path)
    if (typeof item.content === 'string') return item.content
    const texts = item.content.map((part, partIndex) => {
      if (part.type === 'input_text') return part.text
      throw inexpressible(elementPath(`${path}.content`, partIndex), 'this provider embeds only text')
    })
    return texts.join('\n')
  })
}

function partsOf({ content }: EmbeddingItem): readonly EmbeddingPart[] {
  return typeof content === 'string' ? [{ type: 'input_text', text: content }] : content
}

function noTokens(path: string): GatewayError {
  return inexpressible(path, 'token ids cannot be sent to this provider: send the text')
}

/** Media type and base64 of a data URL; null for any other URL. */
export function dataUrl(url: string): { readonly mediaType: string; readonly data: string } | null {
  const comma = url.slice(0, DATA_HEAD_MAX_CHARS).indexOf(',')
  const head = /^data:([\w.+-]{1,64}\/[\w.+-]{1,64})(?:;[\w=.+-]{1,64})?;base64$/i.exec(url.slice(0, comma))
  const mediaType = head?.[1]
  return mediaType === undefined ? null : { mediaType: mediaType.toLowerCase(), data: url.slice(comma + 1) }
}

const DATA_HEAD_MAX_CHARS = 256

// Replies

/**
 * The list itself, if it has one vector for each input.
 * @throws GatewayError `provider_unavailable`
 */
export function checkedVectors(vectors: readonly unknown[], inputs: number): readonly unknown[] {
  if (vectors.length === inputs) return vectors
  throw new GatewayError(
    'provider_unavailable',
    `The provider sent ${vectors.length} vectors for ${inputs} inputs`,
  )
}

/** The error for a reply that has no vectors where they should be. */
export function noVectors(reply: Json): GatewayError {
  const failure = errorIn(reply) ?? bareErrorIn(reply)
  if (failure !== null) return providerFailure(failure)
  return new GatewayError('provider_unavailable', 'The provider sent a reply without vectors')
}

/** The usage for a number of input tokens; null for 0 or an invalid count, because no model reads 0 tokens. */
export function inputUsage(tokens: unknown): Usage | null {
  const inputTokens = count(tokens) ?? 0
  return inputTokens === 0 ? null : { ...ZERO_USAGE, inputTokens }
}

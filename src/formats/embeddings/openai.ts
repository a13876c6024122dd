/**
 * Embeddings in OpenAI's format: POST /embeddings. Most providers and local servers use it; quirks in their rows
 * describe how they differ. Replies may have vectors as numbers or as base64, in any order if they have an index, else
 * in the order of the inputs. Pure.
 */
import { GatewayError } from '../../base/errors.ts'
import { count, filled, type Json, list, record, recordOrEmpty, wholeNumber } from '../../base/json.ts'
import type { EmbeddingItem, EmbeddingPart, EmbeddingsSettings } from '../../protocol/embeddings.ts'
import type { Endpoint, Quirk } from '../../protocol/provider.ts'
import type { WireRequest } from '../format.ts'
import { chatFailure } from '../openai-chat/failure.ts'
import { isUnknownField } from '../outgoing.ts'
import type { EmbeddingsAsk, EmbeddingsFormat, EmbeddingsNeed, EmbeddingsReply } from './format.ts'
import { checkedVectors, inputUsage, noVectors } from './inputs.ts'
import { taskOf } from './tasks.ts'

/** Fields that the encoder writes itself: unknown fields of a caller cannot replace them. */
const OWN_NAMES: ReadonlySet<string> = new Set([
  'dimensions',
  'output_dimension',
  'encoding_format',
  'input_type',
])

export const openaiEmbeddings: EmbeddingsFormat = {
  name: 'openai-embeddings',
  dialect: 'embeddings',
  takes: supports,
  encode,
  decode,
  failure: chatFailure,
}

function supports(need: EmbeddingsNeed, endpoint: Endpoint): boolean {
  return need !== 'input_type' || takesInputType(endpoint)
}

/** OpenAI's own API has no such field, so the provider's row must name the form that it uses. */
function takesInputType({ provider, supportedParameters }: Endpoint): boolean {
  return provider.quirks.includes('input-type') || supportedParameters?.has('input_type') === true
}

function takesEncoding({ provider: { quirks }, supportedParameters }: Endpoint): boolean {
  if (quirks.includes('float-vectors') || quirks.includes('int8-vectors')) return false
  return supportedParameters?.has('encoding_format') !== false
}

function encode({ request, settings, endUser }: EmbeddingsAsk, endpoint: Endpoint): WireRequest {
  const quirks: ReadonlySet<Quirk> = new Set(endpoint.provider.quirks)
  const fields: [string, unknown][] = [
    ...Object.entries(request).filter(([name]) => isUnknownField(name) && !OWN_NAMES.has(name)),
    ['model', endpoint.upstreamModel],
    ['input', inputOf(request.input, settings)],
    [quirks.has('output-dimension') ? 'output_dimension' : 'dimensions', settings.dimensions],
    // All providers send numbers by default, and some refuse the explicit value.
    ['encoding_format', settings.encoding === 'base64' && takesEncoding(endpoint) ? 'base64' : null],
    ['input_type', takesInputType(endpoint) ? inputType(settings) : null],
    ['truncation', quirks.has('cuts-texts') ? false : null],
    ['user', quirks.has('no-user') ? null : endUser],
  ]
  // fromEntries defines properties: a foreign key cannot reach a prototype. Later entries win.
  const body = Object.fromEntries(fields.filter(([, value]) => value !== undefined && value !== null))
  return { path: '/embeddings', body }
}

function inputOf(items: readonly EmbeddingItem[], { isList }: EmbeddingsSettings): unknown {
  const inputs = items.map(({ content, tokens }) => {
    if (tokens !== undefined) return tokens
    return typeof content === 'string' ? content : { content: content.map(partOf) }
  })
  return isList ? inputs : inputs[0]
}

/** Parts in the form that gateways of this kind accept. */
function partOf(part: EmbeddingPart): object {
  return part.type === 'input_text'
    ? { type: 'text', text: part.text }
    : { type: 'image_url', image_url: { url: part.image_url } }
}

/** The two values that all these providers know; other values are sent as the caller wrote them. */
function inputType({ inputType: type }: EmbeddingsSettings): string | null {
  if (type === null) return null
  const task = taskOf(type)
  return task === 'query' || task === 'document' ? task : type
}

function decode(reply: Json, inputs: number): EmbeddingsReply {
  const data = list(reply['data'])
  if (data === null) throw noVectors(reply)
  const usage = recordOrEmpty(reply['usage'])
  return {
    upstreamId: filled(reply['id']),
    vectors: orderedVectors(checkedVectors(data, inputs)),
    usage: inputUsage(count(usage['prompt_tokens']) ?? usage['total_tokens']),
  }
}

/** The vectors by their index. */
function orderedVectors(data: readonly unknown[]): unknown[] {
  const vectors = new Array<unknown>(data.length)
  const seenPositions = new Set<number>()
  for (const [entryIndex, entry] of data.entries()) {
    const { index, embedding } = recordOrEmpty(record(entry))
    const position = index === undefined || index === null ? entryIndex : wholeNumber(index)
    if (position === null || position >= data.length || seenPositions.has(position)) {
      throw new GatewayError('provider_unavailable', 'The provider sent vectors that do not match the inputs')
    }
    seenPositions.add(position)
    vectors[position] = embedding
  }
  return vectors
}

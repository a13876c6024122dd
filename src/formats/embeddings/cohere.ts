/** Cohere's embeddings, version 2: POST /embed. Pure. */
import { count, filled, type Json, list, recordOrEmpty } from '../../base/json.ts'
import type { EmbeddingPart, EmbeddingsRequest } from '../../protocol/embeddings.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import { inexpressible } from '../failure.ts'
import type { WireRequest } from '../format.ts'
import { chatFailure } from '../openai-chat/failure.ts'
import type { EmbeddingsAsk, EmbeddingsFormat, EmbeddingsReply } from './format.ts'
import { checkedVectors, dataUrl, encodeInputs, inputUsage, noVectors, textInputs } from './inputs.ts'
import { type EmbeddingsTask, providerTaskName } from './tasks.ts'

const INPUT_TYPES: Readonly<Partial<Record<EmbeddingsTask, string>>> = {
  query: 'search_query',
  document: 'search_document',
  classification: 'classification',
  clustering: 'clustering',
  image: 'image',
}
/** Current models refuse a request without it. The default is for storing texts, the usual case. */
const DEFAULT_INPUT_TYPE = 'search_document'

export const cohereEmbeddings: EmbeddingsFormat = {
  name: 'cohere-embeddings',
  dialect: null,
  takes: need => need !== 'tokens',
  encode,
  decode,
  failure: chatFailure,
}

function encode({ request, settings }: EmbeddingsAsk, endpoint: Endpoint): WireRequest {
  const { dimensions } = settings
  return {
    path: '/embed',
    body: {
      model: endpoint.upstreamModel,
      input_type: providerTaskName(settings, INPUT_TYPES) ?? DEFAULT_INPUT_TYPE,
      ...(isTextOnly(request)
        ? { texts: textInputs(request, settings) }
        : { inputs: encodeInputs(request, settings, contentPart).map(content => ({ content })) }),
      embedding_types: ['float'],
      ...(dimensions === null ? {} : { output_dimension: dimensions }),
      // Refuse a text that is too long, as other providers do, rather than embed only its beginning.
      truncate: 'NONE',
    },
  }
}

function isTextOnly({ input }: EmbeddingsRequest): boolean {
  return input.every(
    ({ content }) => typeof content === 'string' || content.every(({ type }) => type === 'input_text'),
  )
}

function contentPart(part: EmbeddingPart, path: string): object {
  if (part.type === 'input_text') return { type: 'text', text: part.text }
  const url = part.image_url ?? ''
  if (dataUrl(url) === null)
    throw inexpressible(`${path}.image_url.url`, 'must be a data URL for this provider')
  return { type: 'image_url', image_url: { url } }
}

function decode(reply: Json, inputs: number): EmbeddingsReply {
  const embeddings = reply['embeddings']
  // Version 1 has them without the name of their type.
  const vectors = list(embeddings) ?? list(recordOrEmpty(embeddings)['float'])
  if (vectors === null) throw noVectors(reply)
  const meta = recordOrEmpty(reply['meta'])
  const billedUnits = recordOrEmpty(meta['billed_units'])
  return {
    upstreamId: filled(reply['id']),
    vectors: checkedVectors(vectors, inputs),
    usage: inputUsage(count(billedUnits['input_tokens']) ?? recordOrEmpty(meta['tokens'])['input_tokens']),
  }
}

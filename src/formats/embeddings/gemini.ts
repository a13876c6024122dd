/** Embeddings in the Gemini API: `batchEmbedContents`, which accepts one input or many. Pure. */
import { type Json, list, record, recordOrEmpty } from '../../base/json.ts'
import type { EmbeddingPart, EmbeddingsSettings } from '../../protocol/embeddings.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import { inexpressible } from '../failure.ts'
import type { WireRequest } from '../format.ts'
import { geminiFailure } from '../google-gemini/failure.ts'
import { modelPath } from '../google-gemini/model.ts'
import type { EmbeddingsAsk, EmbeddingsFormat, EmbeddingsReply } from './format.ts'
import { checkedVectors, dataUrl, encodeInputs, inputUsage, noVectors } from './inputs.ts'
import { type EmbeddingsTask, providerTaskName } from './tasks.ts'

/** Words of both of Google's formats. */
export const GOOGLE_TASK_TYPES: Readonly<Partial<Record<EmbeddingsTask, string>>> = {
  query: 'RETRIEVAL_QUERY',
  document: 'RETRIEVAL_DOCUMENT',
  classification: 'CLASSIFICATION',
  clustering: 'CLUSTERING',
  similarity: 'SEMANTIC_SIMILARITY',
  question_answering: 'QUESTION_ANSWERING',
  fact_verification: 'FACT_VERIFICATION',
  code_query: 'CODE_RETRIEVAL_QUERY',
}

export const geminiEmbeddings: EmbeddingsFormat = {
  name: 'gemini-embeddings',
  dialect: null,
  takes: need => need !== 'tokens',
  encode,
  decode,
  failure: geminiFailure,
}

function encode({ request, settings }: EmbeddingsAsk, endpoint: Endpoint): WireRequest {
  const path = modelPath(endpoint.upstreamModel)
  const model = path.slice(1)
  const settingFields = settingsOf(settings)
  const requests = encodeInputs(request, settings, contentPart).map(parts => ({
    model,
    content: { parts },
    ...settingFields,
  }))
  return { path: `${path}:batchEmbedContents`, body: { requests } }
}

function settingsOf(settings: EmbeddingsSettings): object {
  const taskType = providerTaskName(settings, GOOGLE_TASK_TYPES)
  return {
    ...(taskType === null ? {} : { taskType }),
    ...(settings.dimensions === null ? {} : { outputDimensionality: settings.dimensions }),
  }
}

function contentPart(part: EmbeddingPart, path: string): object {
  if (part.type === 'input_text') return { text: part.text }
  const image = dataUrl(part.image_url ?? '')
  if (image === null) throw inexpressible(`${path}.image_url.url`, 'must be a data URL for this provider')
  return { inlineData: { mimeType: image.mediaType, data: image.data } }
}

function decode(reply: Json, inputs: number): EmbeddingsReply {
  const singleEmbedding = record(reply['embedding'])
  const embeddings = list(reply['embeddings']) ?? (singleEmbedding === null ? null : [singleEmbedding])
  if (embeddings === null) throw noVectors(reply)
  return {
    upstreamId: null,
    vectors: checkedVectors(embeddings, inputs).map(embedding => recordOrEmpty(embedding)['values']),
    usage: inputUsage(recordOrEmpty(reply['usageMetadata'])['promptTokenCount']),
  }
}

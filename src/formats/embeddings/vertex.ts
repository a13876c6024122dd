/** Embeddings on Vertex AI: `predict` with one instance for each text. Pure. */
import { countOrZero, type Json, list, recordOrEmpty } from '../../base/json.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { WireRequest } from '../format.ts'
import { geminiFailure } from '../google-gemini/failure.ts'
import { modelPath } from '../google-gemini/model.ts'
import type { EmbeddingsAsk, EmbeddingsFormat, EmbeddingsReply } from './format.ts'
import { GOOGLE_TASK_TYPES } from './gemini.ts'
import { checkedVectors, inputUsage, noVectors, textInputs } from './inputs.ts'
import { providerTaskName } from './tasks.ts'

export const vertexEmbeddings: EmbeddingsFormat = {
  name: 'vertex-embeddings',
  dialect: null,
  takes: need => need !== 'tokens' && need !== 'images',
  encode,
  decode,
  failure: geminiFailure,
}

function encode({ request, settings }: EmbeddingsAsk, endpoint: Endpoint): WireRequest {
  const { dimensions } = settings
  const taskType = providerTaskName(settings, GOOGLE_TASK_TYPES)
  return {
    path: `${modelPath(endpoint.upstreamModel)}:predict`,
    body: {
      instances: textInputs(request, settings).map(content => ({
        content,
        ...(taskType === null ? {} : { task_type: taskType }),
      })),
      parameters: {
        // A text that is too long is refused, as elsewhere, and not cut in silence.
        autoTruncate: false,
        ...(dimensions === null ? {} : { outputDimensionality: dimensions }),
      },
    },
  }
}

function decode(reply: Json, inputs: number): EmbeddingsReply {
  const predictions = list(reply['predictions'])
  if (predictions === null) throw noVectors(reply)
  const embeddings = checkedVectors(predictions, inputs).map(prediction =>
    recordOrEmpty(recordOrEmpty(prediction)['embeddings']),
  )
  const tokens = embeddings.map(({ statistics }) => countOrZero(recordOrEmpty(statistics)['token_count']))
  return {
    upstreamId: null,
    vectors: embeddings.map(({ values }) => values),
    usage: inputUsage(tokens.reduce((sum, count) => sum + count, 0)),
  }
}

/** Embeddings on Vertex AI: `predict` with one instance for each text. Pure. */
import { countOrZero, type Json, list, recordOrEmpty } from '../../base/json.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { WireRequest } from '../format.ts'
import { geminiFailure } from '../google-gemini/failure.ts'
import { modelPath } from '../google-gemini/model.ts'
import type { EmbeddingsAsk, EmbeddingsFormat, EmbeddingsReply } from './format.ts'
import { GOOGLE_WORDS } from './gemini.ts'
import { inputUsage, noVectors, oneForEach, textInputs } from './inputs.ts'
import { providerWord } from './tasks.ts'

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
  const word = providerWord(settings, GOOGLE_WORDS)
  return {
    path: `${modelPath(endpoint.upstreamModel)}:predict`,
    body: {
      instances: textInputs(request, settings).map(content => ({
        content,
        ...(word === null ? {} : { task_type: word }),
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
  const all = oneForEach(predictions, inputs).map(each => recordOrEmpty(recordOrEmpty(each)['embeddings']))
  const tokens = all.map(({ statistics }) => countOrZero(recordOrEmpty(statistics)['token_count']))
  return {
    upstreamId: null,
    vectors: all.map(({ values }) => values),
    usage: inputUsage(tokens.reduce((sum, each) => sum + each, 0)),
  }
}

/** Embeddings in Ollama's own API: POST /embed. Its OpenAI-compatible API speaks `openai-embeddings`. Pure. */
import { type Json, list } from '../../base/json.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { WireRequest } from '../format.ts'
import { chatFailure } from '../openai-chat/failure.ts'
import type { EmbeddingsAsk, EmbeddingsFormat, EmbeddingsReply } from './format.ts'
import { checkedVectors, inputUsage, noVectors, textInputs } from './inputs.ts'

export const ollamaEmbeddings: EmbeddingsFormat = {
  name: 'ollama-embeddings',
  dialect: null,
  takes: need => need === 'dimensions',
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
      input: textInputs(request, settings),
      // A text that is too long is refused, as elsewhere, and not cut in silence.
      truncate: false,
      ...(dimensions === null ? {} : { dimensions }),
    },
  }
}

function decode(reply: Json, inputs: number): EmbeddingsReply {
  // The older POST /embeddings, which servers of the same API still have, knows one vector alone.
  const singleVector = reply['embedding']
  const vectors = list(reply['embeddings']) ?? (Array.isArray(singleVector) ? [singleVector] : null)
  if (vectors === null) throw noVectors(reply)
  return {
    upstreamId: null,
    vectors: checkedVectors(vectors, inputs),
    usage: inputUsage(reply['prompt_eval_count']),
  }
}

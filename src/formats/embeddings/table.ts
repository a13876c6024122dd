/** The embeddings formats by name. The compiler requires a line here for each `EmbeddingsFormatName`. */
import type { EmbeddingsFormatName } from '../../protocol/provider.ts'
import { cohereEmbeddings } from './cohere.ts'
import type { EmbeddingsFormat } from './format.ts'
import { geminiEmbeddings } from './gemini.ts'
import { ollamaEmbeddings } from './ollama.ts'
import { openaiEmbeddings } from './openai.ts'
import { vertexEmbeddings } from './vertex.ts'

export const EMBEDDINGS_FORMATS: Readonly<Record<EmbeddingsFormatName, EmbeddingsFormat>> = {
  'openai-embeddings': openaiEmbeddings,
  'cohere-embeddings': cohereEmbeddings,
  'gemini-embeddings': geminiEmbeddings,
  'vertex-embeddings': vertexEmbeddings,
  'ollama-embeddings': ollamaEmbeddings,
}

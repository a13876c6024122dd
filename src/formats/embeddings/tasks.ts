/**
 * Provider names for the values of `input_type`, which says what a vector is for. A client may use the names of any
 * provider. Pure.
 */
import type { EmbeddingsSettings } from '../../protocol/embeddings.ts'
import { inexpressible } from '../failure.ts'

/** Uses of a vector that some provider distinguishes. */
export type EmbeddingsTask =
  | 'query'
  | 'document'
  | 'classification'
  | 'clustering'
  | 'similarity'
  | 'question_answering'
  | 'fact_verification'
  | 'code_query'
  | 'image'

/** All words for a use, in lower case. */
const WORDS: Readonly<Record<EmbeddingsTask, readonly string[]>> = {
  query: ['query', 'search_query', 'retrieval_query'],
  document: ['document', 'search_document', 'retrieval_document', 'passage'],
  classification: ['classification'],
  clustering: ['clustering'],
  similarity: ['similarity', 'semantic_similarity'],
  question_answering: ['question_answering'],
  fact_verification: ['fact_verification'],
  code_query: ['code_query', 'code_retrieval_query'],
  image: ['image'],
}

const TASKS: ReadonlyMap<string, EmbeddingsTask> = new Map(
  Object.entries(WORDS).flatMap(([task, words]) =>
    words.map(word => [word, task as EmbeddingsTask] as const),
  ),
)

/** The use that a word stands for; null for a word that is no provider's. */
export function taskOf(word: string): EmbeddingsTask | null {
  return TASKS.get(word.toLowerCase()) ?? null
}

/**
 * The provider's word for what the caller said; null: nothing was said.
 * @throws GatewayError `unprocessable` if the provider has no such word
 */
export function providerWord(
  { inputType }: EmbeddingsSettings,
  words: Readonly<Partial<Record<EmbeddingsTask, string>>>,
): string | null {
  if (inputType === null) return null
  const task = taskOf(inputType)
  const word = task === null ? undefined : words[task]
  if (word !== undefined) return word
  throw inexpressible('input_type', `must be one of ${Object.keys(words).join(', ')} for this provider`)
}

/**
 * Provider names for the values of `input_type`, the purpose of a vector. A client may use the names of any provider.
 * Pure.
 */
import type { EmbeddingsSettings } from '../../protocol/embeddings.ts'
import { inexpressible } from '../failure.ts'

/** Purposes of a vector that at least one provider distinguishes. */
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

/** All names of each purpose, in lower case. */
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

/** The purpose with this name; null for a name that no provider has. */
export function taskOf(word: string): EmbeddingsTask | null {
  return TASKS.get(word.toLowerCase()) ?? null
}

/**
 * The provider's name for the caller's value; null: the caller set none.
 * @throws GatewayError `unprocessable` if the provider has no such name
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

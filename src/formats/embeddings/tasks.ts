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
const TASK_NAMES: Readonly<Record<EmbeddingsTask, readonly string[]>> = {
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
  Object.entries(TASK_NAMES).flatMap(([task, names]) =>
    names.map(name => [name, task as EmbeddingsTask] as const),
  ),
)

/** The purpose with this name; null for a name that no provider has. */
export function taskOf(name: string): EmbeddingsTask | null {
  return TASKS.get(name.toLowerCase()) ?? null
}

/**
 * The provider's name for the caller's value; null: the caller set none.
 * @throws GatewayError `unprocessable` if the provider has no such name
 */
export function providerTaskName(
  { inputType }: EmbeddingsSettings,
  providerNames: Readonly<Partial<Record<EmbeddingsTask, string>>>,
): string | null {
  if (inputType === null) return null
  const task = taskOf(inputType)
  const providerName = task === null ? undefined : providerNames[task]
  if (providerName !== undefined) return providerName
  throw inexpressible(
    'input_type',
    `must be one of ${Object.keys(providerNames).join(', ')} for this provider`,
  )
}

/**
 * Finds the passages of files that match a query. SQLite searches synchronously, so a query over many files would block
 * an event loop that serves requests. Task worker, bulk.
 */
import type { FoundPassage, PassageQuery, WorkspaceScope } from '../../storage/files.ts'
import type { Store } from '../../storage/store.ts'
import { StoreError } from '../../storage/store-error.ts'
import { type AttributeFilter, hasAttributes } from './attribute-filter.ts'
import { searchWords } from './search-words.ts'
import { TaskFailure } from './task.ts'

interface SearchFilesInput extends WorkspaceScope {
  readonly storageUrl: string
  readonly queries: readonly string[]
  /** Null for all files of the workspace. */
  readonly fileIds: readonly string[] | null
  /** Null if attributes do not matter. */
  readonly filter: AttributeFilter | null
  readonly limit: number
}

/** A passage with its score, from 0 to 1. */
export interface ScoredPassage extends FoundPassage {
  readonly score: number
}

/** Maximum words of all queries; more add nothing. */
const MAX_QUERY_WORDS = 64
/** Maximum passages that the database returns; they are then scored in the same way on every engine. */
const MAX_CANDIDATES = 200
/** Files per database query, which accepts about 32,000 values. */
const FILES_PER_QUERY = 10_000
/** Files per page of the list. */
const FILES_PER_PAGE = 1_000

export function createFileSearch(
  open: (url: string) => Promise<Pick<Store, 'files' | 'close'>>,
): (input: SearchFilesInput) => Promise<readonly ScoredPassage[]> {
  return async ({ storageUrl, queries, fileIds, filter, limit, organizationId, workspaceId }) => {
    const words = [...new Set(queries.flatMap(searchWords))].slice(0, MAX_QUERY_WORDS)
    if (words.length === 0) return []
    try {
      const store = await open(storageUrl)
      try {
        const query = { organizationId, workspaceId, words, fileIds }
        if (filter === null)
          return scorePassages(await store.files.search(query, MAX_CANDIDATES), words).slice(0, limit)
        const ids = await filteredIds(store.files, query, filter)
        const passages: FoundPassage[] = []
        for (let index = 0; index < ids.length; index += FILES_PER_QUERY) {
          const group = { ...query, fileIds: ids.slice(index, index + FILES_PER_QUERY) }
          passages.push(...(await store.files.search(group, MAX_CANDIDATES)))
        }
        return scorePassages(passages, words).slice(0, limit)
      } finally {
        await store.close()
      }
    } catch (thrown) {
      throw thrown instanceof StoreError ? new TaskFailure('store', thrown.code ?? '') : thrown
    }
  }
}

/** The files among `fileIds` that match the filter. */
async function filteredIds(
  files: Store['files'],
  { organizationId, workspaceId, fileIds }: PassageQuery,
  filter: AttributeFilter,
): Promise<readonly string[]> {
  const scope = { organizationId, workspaceId }
  const requestedIds = fileIds === null ? null : new Set(fileIds)
  const ids: string[] = []
  let page = await files.list(scope, FILES_PER_PAGE)
  while (page !== null) {
    for (const file of page.items) {
      if (requestedIds?.has(file.id) !== false && hasAttributes(filter, file)) ids.push(file.id)
    }
    const lastFile = page.items.at(-1)
    page =
      page.hasMore && lastFile !== undefined
        ? await files.list({ ...scope, after: lastFile.id }, FILES_PER_PAGE)
        : null
  }
  return ids
}

/**
 * The share of the query that a passage contains; rare words count more. Only passages of the workspace are counted, so
 * that scores reveal nothing about the files of others.
 */
function scorePassages(passages: readonly FoundPassage[], words: readonly string[]): ScoredPassage[] {
  const wordsOf = passages.map(({ text }) => new Set(searchWords(text)))
  const weights = words.map(word => {
    const passageCount = wordsOf.filter(passageWords => passageWords.has(word)).length
    return [word, Math.log(1 + passages.length / (passageCount + 0.5))] as const
  })
  const totalWeight = weights.reduce((sum, [, weight]) => sum + weight, 0)
  return (
    passages
      .map((passage, index) => {
        const matchingWeights = weights.filter(([word]) => wordsOf[index]?.has(word))
        const share = matchingWeights.reduce((sum, [, weight]) => sum + weight, 0) / totalWeight
        return { ...passage, score: Math.round(share * 10_000) / 10_000 }
      })
      // Equal scores are ordered by position, because the order of the database also depends on the texts of others.
      .toSorted((a, b) => b.score - a.score || compare(a.fileId, b.fileId) || a.number - b.number)
  )
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b)
}

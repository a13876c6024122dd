/**
 * Finds text chunks of files that match a query. SQLite searches synchronously, so a query over many files would block
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
  /** Null: all files of the workspace. */
  readonly fileIds: readonly string[] | null
  /** Null: no restriction by attributes. */
  readonly filter: AttributeFilter | null
  readonly limit: number
}

/** A passage with its score, from 0 to 1. */
export interface ScoredPassage extends FoundPassage {
  readonly score: number
}

/** Maximum words of one query; more add nothing. */
const WORDS_MAX = 64
/** Candidates from the database, which are then scored in the same way on every engine. */
const CANDIDATES = 200
/** Files per database query, which accepts about 32,000 values. */
const FILES_AT_ONCE = 10_000
/** Files per page of the list. */
const PAGE = 1_000

export function createFileSearch(
  open: (url: string) => Promise<Pick<Store, 'files' | 'close'>>,
): (input: SearchFilesInput) => Promise<readonly ScoredPassage[]> {
  return async ({ storageUrl, queries, fileIds, filter, limit, organizationId, workspaceId }) => {
    const words = [...new Set(queries.flatMap(searchWords))].slice(0, WORDS_MAX)
    if (words.length === 0) return []
    try {
      const store = await open(storageUrl)
      try {
        const query = { organizationId, workspaceId, words, fileIds }
        if (filter === null) return scored(await store.files.search(query, CANDIDATES), words).slice(0, limit)
        const ids = await filteredIds(store.files, query, filter)
        const found: FoundPassage[] = []
        for (let at = 0; at < ids.length; at += FILES_AT_ONCE) {
          const group = { ...query, fileIds: ids.slice(at, at + FILES_AT_ONCE) }
          found.push(...(await store.files.search(group, CANDIDATES)))
        }
        return scored(found, words).slice(0, limit)
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
  const requested = fileIds === null ? null : new Set(fileIds)
  const ids: string[] = []
  let page = await files.list(scope, PAGE)
  while (page !== null) {
    for (const file of page.items) {
      if (requested?.has(file.id) !== false && hasAttributes(filter, file)) ids.push(file.id)
    }
    const last = page.items.at(-1)
    page = page.hasMore && last !== undefined ? await files.list({ ...scope, after: last.id }, PAGE) : null
  }
  return ids
}

/**
 * The share of the query that a passage contains; rare words count more. Only passages of the workspace are counted, so
 * that scores reveal nothing about the files of others.
 */
function scored(passages: readonly FoundPassage[], words: readonly string[]): ScoredPassage[] {
  const wordsOf = passages.map(({ text }) => new Set(searchWords(text)))
  const weights = words.map(word => {
    const passageCount = wordsOf.filter(each => each.has(word)).length
    return [word, Math.log(1 + passages.length / (passageCount + 0.5))] as const
  })
  const whole = weights.reduce((sum, [, weight]) => sum + weight, 0)
  return (
    passages
      .map((passage, at) => {
        const found = weights.filter(([word]) => wordsOf[at]?.has(word))
        const share = found.reduce((sum, [, weight]) => sum + weight, 0) / whole
        return { ...passage, score: Math.round(share * 10_000) / 10_000 }
      })
      // Equal scores are ordered by position, because the order of the database also depends on the texts of others.
      .toSorted((a, b) => b.score - a.score || compare(a.fileId, b.fileId) || a.number - b.number)
  )
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b)
}

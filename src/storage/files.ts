/**
 * Files of workspaces in the Store: metadata, text chunks for search, and the memory of tools. The bytes of a file are
 * stored elsewhere (features/files/contents.ts). Types only.
 */

/** The workspace to which files and memory belong. No other workspace can read them. */
export interface WorkspaceScope {
  readonly organizationId: string
  readonly workspaceId: string
}

/**
 * `indexed`: search finds it. `none`: it has no text that search can use. `unreadable`: its text could not be
 * extracted.
 */
export type FileText = 'indexed' | 'none' | 'unreadable'

export interface FileRecord extends WorkspaceScope {
  readonly id: string
  /** Greater than the numbers of all earlier files that the workspace still has. */
  readonly number: number
  readonly filename: string
  readonly purpose: string
  /** As the client sent it; never trusted. */
  readonly mediaType: string | null
  readonly bytes: number
  readonly text: FileText
  /** ISO 8601 UTC. */
  readonly createdAt: string
}

export type NewFile = Omit<FileRecord, 'number' | 'text'>

/** Limits of one workspace. */
interface FileRoom {
  readonly files: number
  readonly bytes: number
}

export interface FileFilter extends WorkspaceScope {
  readonly purpose?: string
  /** Text that the name contains; the case of ASCII letters is ignored. */
  readonly nameContains?: string
  /** Id of the last file of the previous page. */
  readonly after?: string
  readonly oldestFirst?: boolean
}

interface FilePage {
  readonly items: readonly FileRecord[]
  readonly hasMore: boolean
}

/** A piece of the text of a file. */
export interface NewPassage {
  readonly number: number
  readonly text: string
  /** The words by which search finds it, separated by spaces: see features/tasks/search-words.ts. */
  readonly words: string
}

export interface FoundPassage {
  readonly fileId: string
  readonly filename: string
  readonly number: number
  readonly text: string
}

export interface PassageQuery extends WorkspaceScope {
  /** In the same form as the words of passages. One match is enough. */
  readonly words: readonly string[]
  /** Null: all files of the workspace. */
  readonly fileIds: readonly string[] | null
}

/**
 * Operations on files. A file is invisible while its bytes arrive, and again after its removal until the bytes are
 * deleted.
 */
export interface FileStore {
  /** Reserves room for a file whose bytes are about to arrive. Returns the limit that was reached; null: none. */
  open(file: NewFile, room: FileRoom): Promise<'files' | 'bytes' | null>
  /** Makes the file visible. Returns null if it was removed in the meantime. */
  complete(id: string, text: FileText): Promise<FileRecord | null>
  /** Newest first, unless `oldestFirst`. Null: the file `after` does not exist. */
  list(filter: FileFilter, limit: number): Promise<FilePage | null>
  find(scope: WorkspaceScope, id: string): Promise<FileRecord | null>
  /** The newest file with exactly this name. */
  newest(scope: WorkspaceScope, filename: string): Promise<FileRecord | null>
  /** True if it existed. */
  remove(scope: WorkspaceScope, id: string): Promise<boolean>
  /** Ids of removed files, and of files whose upload began before this time and never ended. */
  leftovers(before: string, limit: number): Promise<readonly string[]>
  /** Deletes the row of an invisible file, and its passages. */
  forget(id: string): Promise<void>
  addPassages(fileId: string, passages: readonly NewPassage[]): Promise<void>
  removePassages(fileId: string): Promise<void>
  /** Passages with at least one of the words, best match first by the ranking of the database. */
  search(query: PassageQuery, limit: number): Promise<readonly FoundPassage[]>
}

/** The owner of stored tool data: a workspace, or one of its end users. */
export interface MemoryScope extends WorkspaceScope {
  /** Empty: the workspace itself. */
  readonly endUser: string
}

export interface MemoryEntry {
  readonly key: string
  readonly value: string
  readonly updatedAt: string
}

export interface MemoryStore {
  find(scope: MemoryScope, key: string): Promise<MemoryEntry | null>
  /** Ordered by key. */
  list(scope: MemoryScope, limit: number): Promise<readonly MemoryEntry[]>
  /** Sets the value. Returns false if the entry is new and the owner or its workspace has reached its limit. */
  write(
    scope: MemoryScope,
    entry: MemoryEntry,
    room: { readonly perOwner: number; readonly perWorkspace: number },
  ): Promise<boolean>
  /** True if it existed. */
  remove(scope: MemoryScope, key: string): Promise<boolean>
}

/**
 * Files of workspaces in the Store: metadata, text chunks for search, and the memory of tools. The bytes of a file are
 * stored elsewhere (features/files/contents.ts). Types only.
 */

/** Files and memory belong to one workspace; no other one sees them. */
export interface WorkspacePlace {
  readonly organizationId: string
  readonly workspaceId: string
}

/** `indexed`: search finds it. `none`: it holds no text that search reads. `unreadable`: reading it failed. */
export type FileText = 'indexed' | 'none' | 'unreadable'

export interface FileRecord extends WorkspacePlace {
  readonly id: string
  /** Greater for each later file of the workspace. */
  readonly number: number
  readonly filename: string
  readonly purpose: string
  /** As its sender said; never trusted. */
  readonly mediaType: string | null
  readonly bytes: number
  readonly text: FileText
  /** ISO 8601 UTC. */
  readonly createdAt: string
}

export type NewFile = Omit<FileRecord, 'number' | 'text'>

/** Bounds of one workspace. */
interface FileRoom {
  readonly files: number
  readonly bytes: number
}

export interface FileFilter extends WorkspacePlace {
  readonly purpose?: string
  /** Characters of the name, in any case. */
  readonly nameHas?: string
  /** The id of the last file of the page before. */
  readonly after?: string
  readonly oldestFirst?: boolean
}

interface FilePage {
  readonly items: readonly FileRecord[]
  readonly hasMore: boolean
}

/** A part of the text of a file, in its order. */
export interface NewPassage {
  readonly number: number
  readonly text: string
  /** The words by which it is found, apart by blanks: see features/tasks/search-words.ts. */
  readonly words: string
}

export interface FoundPassage {
  readonly fileId: string
  readonly filename: string
  readonly number: number
  readonly text: string
}

export interface PassageQuery extends WorkspacePlace {
  /** Of the same form as those of passages; one of them suffices. */
  readonly words: readonly string[]
  /** Null: all files of the workspace. */
  readonly fileIds: readonly string[] | null
}

/** A file is invisible while its bytes arrive, and again from its removal until they are gone. */
export interface FileStore {
  /** Takes room for a file whose bytes arrive now. Returns which bound is reached; null: none. */
  open(file: NewFile, room: FileRoom): Promise<'files' | 'bytes' | null>
  /** Makes it visible. Returns null if it was removed meanwhile. */
  complete(id: string, text: FileText): Promise<FileRecord | null>
  /** Newest first, unless `oldestFirst`. Null: there is no file `after`. */
  list(filter: FileFilter, limit: number): Promise<FilePage | null>
  find(place: WorkspacePlace, id: string): Promise<FileRecord | null>
  /** The newest file of that very name. */
  newest(place: WorkspacePlace, filename: string): Promise<FileRecord | null>
  /** True if there was one. */
  remove(place: WorkspacePlace, id: string): Promise<boolean>
  /** Ids of removed files, and of those whose bytes began to arrive before that time and never ended. */
  leftovers(before: string, limit: number): Promise<readonly string[]>
  /** Drops the row of an invisible file, and its passages. */
  forget(id: string): Promise<void>
  addPassages(fileId: string, passages: readonly NewPassage[]): Promise<void>
  removePassages(fileId: string): Promise<void>
  /** Passages with one of the words, best first by the measure of the database. */
  search(query: PassageQuery, limit: number): Promise<readonly FoundPassage[]>
}

/** Where tools keep data: for a workspace, or for one end user of it. */
export interface MemoryPlace extends WorkspacePlace {
  /** '': of the workspace. */
  readonly endUser: string
}

export interface MemoryEntry {
  readonly key: string
  readonly value: string
  readonly updatedAt: string
}

export interface MemoryStore {
  find(place: MemoryPlace, key: string): Promise<MemoryEntry | null>
  /** In the order of their keys. */
  list(place: MemoryPlace, limit: number): Promise<readonly MemoryEntry[]>
  /** Sets the value. False: it is a new entry, and the place or its workspace holds as many as they may. */
  write(
    place: MemoryPlace,
    entry: MemoryEntry,
    room: { readonly ofPlace: number; readonly ofWorkspace: number },
  ): Promise<boolean>
  /** True if there was one. */
  remove(place: MemoryPlace, key: string): Promise<boolean>
}

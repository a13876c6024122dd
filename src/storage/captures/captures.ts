/** Captures and their parts, which all instances share. The captured data itself is in sealed files. Types only. */

/** Why a capture has ended before its time: it was full. */
export type CaptureEnding = 'size'

export interface CaptureRecord {
  readonly id: string
  readonly organizationId: string
  /** Hash of the API key whose requests it has; null: those of a workspace. */
  readonly keyHash: string | null
  /** Null: those of an API key. */
  readonly workspaceId: string | null
  /** Label of the key that has asked for it. */
  readonly createdBy: string
  readonly maxBytes: number
  /** Of all files together. */
  readonly bytes: number
  /** Requests in it. */
  readonly requests: number
  /** Requests for which there was no room. */
  readonly leftOut: number
  /** ISO 8601 UTC, as all times. */
  readonly createdAt: string
  /** Requests that begin later are not in it. */
  readonly endsAt: string
  /** Before `endsAt`; null: it was not ended early. */
  readonly endedAt: string | null
  readonly endedBy: CaptureEnding | null
  /** Its files and rows are removed then. */
  readonly expiresAt: string
}

export type NewCapture = Omit<CaptureRecord, 'bytes' | 'requests' | 'leftOut' | 'endedAt' | 'endedBy'>

/** The part of a capture that one process has written, in a file of its own. */
export interface CapturePart {
  /** Names the file. */
  readonly name: string
  /** Names the data folder in which it is. */
  readonly node: string
  /** Name of the machine, for people. */
  readonly host: string
  readonly bytes: number
  readonly requests: number
  readonly leftOut: number
}

interface CaptureRoom {
  /** Captures of an organization that run at once. */
  readonly running: number
  /** Captures of an organization, ended ones too. */
  readonly kept: number
}

export interface CaptureStore {
  /** Adds it. Gives the bound that the organization has reached instead; null: it was added. */
  add(record: NewCapture, room: CaptureRoom, now: string): Promise<'running' | 'kept' | null>
  /** Newest first. */
  page(
    organizationId: string,
    page: { readonly offset: number; readonly limit: number },
  ): Promise<{ readonly items: readonly CaptureRecord[]; readonly total: number }>
  find(organizationId: string, id: string): Promise<CaptureRecord | null>
  /** All of all organizations, newest first: for whoever runs the gateway. */
  list(): Promise<readonly CaptureRecord[]>
  /** Those of the ids that are there. */
  known(ids: readonly string[]): Promise<ReadonlySet<string>>
  /** By node and name. */
  parts(id: string): Promise<readonly CapturePart[]>
  /** Those that may still grow: not ended early, and not ended by time before `since`. */
  open(since: string): Promise<readonly CaptureRecord[]>
  /**
   * Counts what a part is about to get. False: there is no such capture, it was ended early, or it has no room for so
   * many bytes; then nothing is counted.
   */
  grow(id: string, part: CapturePart): Promise<boolean>
  /** Ends it early, if it was not ended before. */
  end(id: string, by: CaptureEnding, at: string): Promise<void>
  /** Returns true if there was one. */
  remove(organizationId: string, id: string): Promise<boolean>
  /** Removes up to `limit` that have expired at a time. Returns their ids. */
  prune(now: string, limit: number): Promise<readonly string[]>
}

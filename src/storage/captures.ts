/** Captures and their parts, which all instances share. The captured data itself is in sealed files. Types only. */
import type { CaptureRecord } from '../protocol/management/captures.ts'

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
  end(id: string, by: NonNullable<CaptureRecord['endedBy']>, at: string): Promise<void>
  /** Returns true if there was one. */
  remove(organizationId: string, id: string): Promise<boolean>
  /** Removes up to `limit` that have expired at a time. Returns their ids. */
  prune(now: string, limit: number): Promise<readonly string[]>
}

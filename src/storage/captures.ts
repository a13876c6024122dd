/** Captures and their parts, which all instances share. The captured data itself is in sealed files. Types only. */
import type { CaptureRecord } from '../protocol/management/captures.ts'

export type NewCapture = Omit<CaptureRecord, 'bytes' | 'requests' | 'leftOut' | 'endedAt' | 'endedBy'>

/** The part of a capture that one process has written, in a file of its own. */
export interface CapturePart {
  /** Name of the file. */
  readonly name: string
  /** Id of the data folder that contains the file. */
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
  /** Captures of an organization, including ended ones. */
  readonly kept: number
}

export interface CaptureStore {
  /** Adds the capture. Returns the limit that the organization has reached, or null if it was added. */
  add(record: NewCapture, room: CaptureRoom, now: string): Promise<'running' | 'kept' | null>
  /** Newest first. */
  page(
    organizationId: string,
    page: { readonly offset: number; readonly limit: number },
  ): Promise<{ readonly items: readonly CaptureRecord[]; readonly total: number }>
  find(organizationId: string, id: string): Promise<CaptureRecord | null>
  /** All captures of all organizations, newest first: for the operator. */
  list(): Promise<readonly CaptureRecord[]>
  /** The ids of this list that exist. */
  existing(ids: readonly string[]): Promise<ReadonlySet<string>>
  /** Ordered by node and name. */
  parts(id: string): Promise<readonly CapturePart[]>
  /** Captures that may still grow: not ended early, and with an end after `since`. */
  open(since: string): Promise<readonly CaptureRecord[]>
  /**
   * Counts data that a part is about to store. Returns false and counts nothing if the capture does not exist, has
   * ended early, or has no room for this much.
   */
  grow(id: string, part: CapturePart): Promise<boolean>
  /** Ends the capture before its time, if that has not been done yet. */
  end(id: string, reason: NonNullable<CaptureRecord['endedBy']>, time: string): Promise<void>
  /** Returns true if it existed. */
  remove(organizationId: string, id: string): Promise<boolean>
  /** Removes up to `limit` captures that have expired at `now`. Returns their ids. */
  prune(now: string, limit: number): Promise<readonly string[]>
}

/** Providers that operators have taken out of service for a time, for all instances. Types only. */

export interface PauseRecord {
  /** The slug of the provider. Its regions are paused too: their slugs begin with it and a slash. */
  readonly provider: string
  /** Unix milliseconds. */
  readonly sinceMs: number
  /** Unix milliseconds of its planned end. */
  readonly untilMs: number
  /** Free text; null: no reason. */
  readonly reason: string | null
  /** Label of the key that paused it, or the name of the person. */
  readonly actor: string
}

export interface PauseStore {
  /** In the order of the slugs. The list may contain pauses that have ended. */
  list(): Promise<readonly PauseRecord[]>
  /** Pauses a provider, instead of an earlier pause. */
  put(record: PauseRecord): Promise<void>
  /** Ends a pause. False: there is none. */
  end(provider: string): Promise<boolean>
  /** Removes the pauses that ended before this time. */
  prune(nowMs: number): Promise<void>
}

/** What carries word between instances. Types only. */
import type { Clock } from '../clock.ts'
import type { Log } from '../log.ts'

/** A way to all instances, this one included, that comes back by itself. */
export interface Wire {
  /** Rejects when it cannot be said now. */
  say(text: string): Promise<unknown>
  close(): Promise<void>
}

export interface WireOptions {
  readonly url: string
  readonly channel: string
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  readonly onMessage: (text: string) => void
  /** It hears, for the first time or again. */
  readonly onReady: () => void
  /** What is said gets out, for the first time or again. */
  readonly onSayable: () => void
}

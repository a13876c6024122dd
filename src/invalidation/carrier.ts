/** What carries word between instances. Types only. */
import type { Clock } from '../clock.ts'
import type { Log } from '../log/log.ts'

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
  /** How long an answer may take before the connection counts as dead. Default: by the wire. */
  readonly silenceMs?: number
  readonly log: Pick<Log, 'fault' | 'notice'>
  readonly onMessage: (text: string) => void
  /** It hears, for the first time or again. */
  readonly onReady: () => void
  /** What is said gets out, for the first time or again. */
  readonly onSayable: () => void
}

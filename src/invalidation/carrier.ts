/** The contract of a transport that carries invalidations between instances. Types only. */
import type { Clock } from '../clock.ts'
import type { Log } from '../log/log.ts'

/** Sends a text to all instances, this one included. Reconnects by itself. */
export interface Carrier {
  /** Rejects when the text cannot be sent now. */
  send(text: string): Promise<unknown>
  close(): Promise<void>
}

export interface CarrierOptions {
  readonly url: string
  readonly channel: string
  readonly clock: Clock
  /** A connection without an answer for this long counts as dead. Each carrier has its own default. */
  readonly silenceMs?: number
  readonly log: Pick<Log, 'fault' | 'notice'>
  readonly onMessage: (text: string) => void
  /** Called when messages arrive, for the first time or after an outage. */
  readonly onReceiving: () => void
  /** Called when texts can be sent, for the first time or after an outage. */
  readonly onSending: () => void
}

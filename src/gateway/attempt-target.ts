/** The contract between an attempt and the receiver of its deltas. Types only. */
import type { Content } from './answer/answer.ts'

/** Takes the deltas of an attempt. */
export interface AttemptTarget {
  /** A read of the provider begins; what it brings may leave together, at the latest with `flush`. */
  hold(): void
  /** False: the reader is slow, and the attempt pauses. */
  flush(): boolean
  take(delta: Content): void
  /** The model has said all; `done` is called, now or later, once everything said may leave. */
  end(done: () => void): void
  /** The attempt failed: what is still held goes nowhere. */
  close(): void
}

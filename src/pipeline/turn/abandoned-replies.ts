/**
 * Abandoned replies: the gateway keeps reading a reply after the caller has disconnected, because the usage comes at
 * the end. Each policy has a row with the time limit: a caller who disconnects must not hold more resources than one
 * who stays.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import { HeldShare, type Holder } from '../../base/fairness/held-share.ts'
import type { WholeMessage } from '../../formats/whole-message.ts'
import type { AbortPolicy } from '../../protocol/provider.ts'
import type { Content } from '../answer/answer.ts'
import type { AttemptTarget } from './attempt-target.ts'

/** Bounds on reading an abandoned reply. */
interface ReadingBounds {
  /** True if reading continues only once the model has produced content: before that, the end is not near. */
  readonly needsContent: boolean
  /** True if the reply is closed when more content arrives. */
  readonly endsAtContent: boolean
  /** True if the reply counts towards the limit of abandoned replies. */
  readonly isBounded: boolean
  readonly maxBytes: number
  readonly maxMs: number
}

/** The bounds for each policy; null: the call is closed at once. */
export const READING_BOUNDS: Readonly<Record<AbortPolicy, ReadingBounds | null>> = {
  cancel: null,
  // A model that has finished reports its usage within milliseconds; a reply with more content is closed at its next delta.
  // Neither holds more memory than the request did.
  finish: { needsContent: true, endsAtContent: true, isBounded: false, maxBytes: 1024 * 1024, maxMs: 2_000 },
  // A long answer has some hundred kilobytes.
  drain: {
    needsContent: false,
    endsAtContent: false,
    isBounded: true,
    maxBytes: 4 * 1024 * 1024,
    maxMs: 60_000,
  },
}

/**
 * Limits of one thread, and of one key in it; beyond them, the gateway closes the upstream and estimates the tokens.
 */
const MAX_ABANDONED_REPLIES = { total: 64, perKey: 16 }

export class AbandonedReplies {
  readonly #running = new Set<() => void>()
  /** The keys of the replies that count towards the limit. */
  readonly #boundedReplies = new Map<() => void, Holder>()
  readonly #slots = new HeldShare(MAX_ABANDONED_REPLIES)

  get count(): number {
    return this.#running.size
  }

  /** Continues reading a reply whose caller has left, until `giveUp` closes it; null if it has to be closed now. */
  keepReading(
    name: AbortPolicy,
    hasContent: boolean,
    key: Holder,
    clock: Clock,
    giveUp: () => void,
  ): AbandonedReply | null {
    const bounds = READING_BOUNDS[name]
    if (bounds === null || (bounds.needsContent && !hasContent)) return null
    return this.enter(giveUp, bounds.isBounded ? key : null)
      ? new AbandonedReply(this, bounds, clock, giveUp)
      : null
  }

  /**
   * True if there was room for one more reply; `end` closes it early. `key`: null for a reply that takes no slot.
   */
  enter(end: () => void, key: Holder | null): boolean {
    if (key !== null) {
      if (this.#slots.reserve(key, 1) !== 'taken') return false
      this.#boundedReplies.set(end, key)
    }
    this.#running.add(end)
    return true
  }

  leave(end: () => void): void {
    this.#running.delete(end)
    const key = this.#boundedReplies.get(end)
    if (key !== undefined) this.#slots.release(key, 1)
    this.#boundedReplies.delete(end)
  }

  /** Closes all replies, because the thread is stopping. */
  endAll(): void {
    for (const end of [...this.#running]) end()
  }
}

/** One abandoned reply that is still being read. */
export class AbandonedReply {
  readonly #bounds: ReadingBounds
  readonly #replies: AbandonedReplies
  readonly #giveUp: () => void
  readonly #timer: Timer
  #bytesLeft: number

  constructor(replies: AbandonedReplies, bounds: ReadingBounds, clock: Clock, giveUp: () => void) {
    this.#replies = replies
    this.#bounds = bounds
    this.#giveUp = giveUp
    this.#bytesLeft = bounds.maxBytes
    this.#timer = clock.after(bounds.maxMs, giveUp)
  }

  /** The target that receives the rest of the reply. */
  targetOf(target: AttemptTarget): AttemptTarget {
    return this.#bounds.endsAtContent ? new AbandonedTarget(target, this.#giveUp) : target
  }

  /** Counts a read. False if it exceeds the limit. */
  read(bytes: number): boolean {
    this.#bytesLeft -= bytes
    return this.#bytesLeft >= 0
  }

  /** Called when the reply has ended. */
  end(): void {
    this.#timer.cancel()
    this.#replies.leave(this.#giveUp)
  }
}

/** The target of a reply that nobody reads: it waits for the end, and closes the reply if more content arrives. */
export class AbandonedTarget implements AttemptTarget {
  readonly #target: AttemptTarget
  readonly #end: () => void

  constructor(target: AttemptTarget, end: () => void) {
    this.#target = target
    this.#end = end
  }

  get sink(): AttemptTarget['sink'] {
    return this.#target.sink
  }

  receive(delta: Content): void {
    if ('text' in delta ? delta.text !== '' : delta.kind === 'open' || delta.kind === 'progress') this.#end()
  }

  message(message: WholeMessage): void {
    if (message.text !== '') this.#end()
  }

  end(done: () => void): void {
    this.#target.end(done)
  }

  close(): void {
    this.#target.close()
  }
}

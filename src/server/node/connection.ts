/** One client connection: serves one request at a time, and is closed when it has been idle for too long. */
import type { Socket } from 'node:net'
import { systemClock, type Timer } from '../../base/clock.ts'
import type { RemoteEnd } from '../connections.ts'
import { addressBytes, addressText } from './address.ts'

/**
 * Time from the beginning of a connection, or the end of an answer, to the end of the next request head. Bytes that
 * arrive slowly do not extend it. Uses the system clock, like the library of the other front.
 */
const IDLE_MS = 12_000

/** The answer that a connection waits for. */
export interface RunningAnswer {
  /** Called when the connection cannot be read any more. */
  break(): void
  /** Called when the connection is gone. */
  clientLeft(): void
  /** True if all of it has been sent, and the connection stays open. */
  hasLeft(): boolean
}

export class NodeConnection implements RemoteEnd {
  readonly address: string
  readonly #bytes: Uint8Array
  readonly #raw: Socket
  #idle: Timer | null
  /** The current answer, or the one with which the connection ends. */
  #answer: RunningAnswer | null = null
  #hadRequest = false
  #onAborted: (() => void) | null = null

  /** @param raw without TLS */
  constructor(raw: Socket) {
    this.#raw = raw
    this.#bytes = addressBytes(raw.remoteAddress ?? '0.0.0.0')
    this.address = addressText(this.#bytes)
    this.#idle = systemClock.after(IDLE_MS, this.#onIdle)
  }

  getRemoteAddress(): ArrayBuffer {
    return Uint8Array.from(this.#bytes).buffer
  }

  getRemoteAddressAsText(): ArrayBuffer {
    return Uint8Array.from(Buffer.from(this.address, 'latin1')).buffer
  }

  onAborted(callback: () => void): void {
    this.#onAborted = callback
  }

  /** True if another request may arrive: the client may know of the end of an answer before this side does. */
  get isFree(): boolean {
    return !this.#raw.destroyed && (this.#answer === null || this.#answer.hasLeft())
  }

  /** Reserves the connection for one request. */
  start(answer: RunningAnswer): void {
    this.#answer = answer
    this.#hadRequest = true
    this.#idle?.cancel()
    this.#idle = null
  }

  /** Called when the answer has been sent, and another request may arrive. */
  free(): void {
    if (this.#raw.destroyed) return
    this.#answer = null
    this.#idle = systemClock.after(IDLE_MS, this.#onIdle)
  }

  /** Called when the bytes after the request cannot be read. */
  break(): void {
    if (this.#answer === null) this.drop()
    else this.#answer.break()
  }

  /** Drops the connection; its request ends immediately. */
  drop(): void {
    this.#raw.destroy()
    this.#answer?.clientLeft()
  }

  /** Called when the connection has closed. */
  closed(): void {
    this.#idle?.cancel()
    if (!this.#hadRequest) this.#onAborted?.()
  }

  readonly #onIdle = (): void => this.drop()
}

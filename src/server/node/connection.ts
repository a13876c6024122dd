/** One client connection: serves one request at a time, and is closed when it has been idle for too long. */
import type { Socket } from 'node:net'
import { systemClock, type Timer } from '../../clock.ts'
import type { RemoteEnd } from '../connections.ts'
import { addressBytes, addressText } from './address.ts'

/**
 * From the beginning of a connection, or the end of an answer, to the end of the next request head. Bytes that come
 * slowly do not extend it. By the clock of the system, as in the library of the other front.
 */
const IDLE_MS = 12_000

/** The answer that a connection waits for. */
export interface RunningAnswer {
  /** The connection cannot be read any more. */
  break(): void
  /** The connection is gone. */
  gone(): void
  /** True if all of it has left, and the connection goes on. */
  hasLeft(): boolean
}

export class NodeConnection implements RemoteEnd {
  readonly address: string
  readonly #bytes: Uint8Array
  readonly #raw: Socket
  #idle: Timer | null
  /** The answer on its way, or the one with which the connection ends. */
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

  /** True if one more request may come: the client may know the end of an answer before this side is told. */
  get isFree(): boolean {
    return !this.#raw.destroyed && (this.#answer === null || this.#answer.hasLeft())
  }

  /** Takes the connection for one request. */
  take(answer: RunningAnswer): void {
    this.#answer = answer
    this.#hadRequest = true
    this.#idle?.cancel()
    this.#idle = null
  }

  /** The answer has left, and another request may come. */
  free(): void {
    if (this.#raw.destroyed) return
    this.#answer = null
    this.#idle = systemClock.after(IDLE_MS, this.#onIdle)
  }

  /** The bytes behind the request cannot be read. */
  break(): void {
    if (this.#answer === null) this.drop()
    else this.#answer.break()
  }

  /** Drops the connection; its request ends at once. */
  drop(): void {
    this.#raw.destroy()
    this.#answer?.gone()
  }

  /** The connection has closed. */
  closed(): void {
    this.#idle?.cancel()
    if (!this.#hadRequest) this.#onAborted?.()
  }

  readonly #onIdle = (): void => this.drop()
}

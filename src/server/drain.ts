/**
 * The drain (graceful shutdown) of a server: running requests get a grace period, the rest is aborted, then everything
 * is closed.
 */
import type { Clock } from '../base/clock.ts'
import { GatewayError } from '../base/errors.ts'

/** The parts of a server that a drain uses. */
export interface Drainable {
  readonly openRequests: number
  readonly openConnections: number
  /** Monotonic milliseconds until which complete answers may still be on their way to slow readers. */
  readonly leavingUntilMs: number
  stopListening(): void
  /** Ends every running request with this reason. */
  abortAll(reason: GatewayError): void
  /** Ends requests that did not react. */
  giveUpAll(): void
  close(): void
}

/** Time that aborted requests have to answer their clients. */
const ABORT_ANSWER_MS = 500
/** Time that complete answers have to reach slow readers before connections are cut. */
const LINGER_MS = 1000
/** Time for which idle connections stay open, because a request may be on its way. */
const IDLE_LINGER_MS = 200

export class Drain {
  readonly #server: Drainable
  readonly #clock: Clock
  /** Written only here. */
  hasBegun = false
  #running: Promise<void> | null = null
  #graceEndsMs = Number.POSITIVE_INFINITY
  /** Ends the current wait if its condition holds. */
  #onChange: (() => void) | null = null
  /** Makes the wait for running requests check the grace time again. */
  #shorten: (() => void) | null = null

  constructor(server: Drainable, clock: Clock) {
    this.#server = server
    this.#clock = clock
  }

  /** Starts the drain, or shortens the grace time of a running one. Resolves when everything is closed. */
  begin(graceMs: number): Promise<void> {
    this.#graceEndsMs = Math.min(this.#graceEndsMs, this.#clock.monotonicMs() + graceMs)
    this.#shorten?.()
    this.hasBegun = true
    this.#running ??= this.#run()
    return this.#running
  }

  /** Call it when a request is over or a connection has closed. */
  notice(): void {
    this.#onChange?.()
  }

  async #run(): Promise<void> {
    const server = this.#server
    // Continues in the turn after the poll that accepts: connections made meanwhile are accepted, and not cut off
    // unanswered.
    await new Promise(resolve => setImmediate(resolve))
    server.stopListening()
    do {
      await this.#waitForRequests()
      if (server.openRequests > 0) {
        server.abortAll(new GatewayError('service_unavailable', 'The gateway is shutting down'))
        await this.#waitUntil(() => server.openRequests === 0, ABORT_ANSWER_MS)
        server.giveUpAll()
      }
      const isLeaving = this.#clock.monotonicMs() < server.leavingUntilMs
      await this.#waitUntil(() => server.openConnections === 0, isLeaving ? LINGER_MS : IDLE_LINGER_MS)
      // Kept-alive connections may have sent more requests. Each one is closed with its answer, so this loop ends.
    } while (server.openRequests > 0)
    server.close()
  }

  /** Waits until no request runs, or the grace time is over. */
  async #waitForRequests(): Promise<void> {
    for (;;) {
      const leftMs = this.#graceEndsMs - this.#clock.monotonicMs()
      if (this.#server.openRequests === 0 || leftMs <= 0) return
      await this.#waitUntil(
        () => this.#server.openRequests === 0,
        leftMs,
        end => {
          this.#shorten = end
        },
      )
      this.#shorten = null
    }
  }

  /** Waits for the condition, or for the limit. `onWait` receives a function that ends the wait early. */
  #waitUntil(isDone: () => boolean, limitMs: number, onWait?: (end: () => void) => void): Promise<void> {
    if (isDone()) return Promise.resolve()
    return new Promise(resolve => {
      const end = (): void => {
        timer.cancel()
        this.#onChange = null
        resolve()
      }
      const timer = this.#clock.after(limitMs, end)
      this.#onChange = () => {
        if (isDone()) end()
      }
      onWait?.(end)
    })
  }
}

/**
 * Session affinity as a serve thread uses it. The main thread has the pins. A new pin is sent at once, so that it is
 * stored before its client can send the next request.
 */

import type { RemoteService } from '../../base/thread-rpc.ts'
import type { Pins } from './session-affinity.ts'

/** How long a request waits for a pin. Without one it may cost more, but it is answered. */
const ANSWER_TIMEOUT_MS = 500

export class PinClient implements Pins {
  readonly #pins: RemoteService<Pins>

  constructor(pins: RemoteService<Pins>) {
    this.#pins = pins
  }

  async get(key: string): Promise<string | null> {
    return (await this.#pins.ask('get', [key], ANSWER_TIMEOUT_MS)) ?? null
  }

  async claim(key: string, pin: string, ttlMs: number, owner: string): Promise<string> {
    return (await this.#pins.ask('claim', [key, pin, ttlMs, owner], ANSWER_TIMEOUT_MS)) ?? pin
  }

  set(key: string, pin: string, ttlMs: number, owner: string): void {
    this.#pins.send('set', [key, pin, ttlMs, owner])
    this.#pins.flush()
  }
}

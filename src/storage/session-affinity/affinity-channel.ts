/**
 * Access to session affinity from other threads. `PinClient` is the end in a serve thread, `PinServer` the end in the
 * main thread, which has the pins. A new pin is sent at once, so that it is stored before its client can send the next
 * request.
 */

import type { Clock } from '../../base/clock.ts'
import { type Call, type CallAnswer, ThreadAnswers, ThreadCalls } from '../../base/thread-rpc.ts'
import type { Pins } from './session-affinity.ts'

/** From a serve thread. `claim`: the pin is stored if there is none. */
export type PinQuestion =
  | { readonly kind: 'get'; readonly key: string }
  | {
      readonly kind: 'claim' | 'set'
      readonly key: string
      readonly pin: string
      readonly ttlMs: number
      readonly owner: string
    }

/** Null: there is none. */
export type PinAnswer = string | null

/** Answers one serve thread. Main thread. */
export class PinServer {
  readonly #pins: Pins
  readonly #answers: ThreadAnswers<PinQuestion, PinAnswer>

  constructor(pins: Pins, reply: (answers: readonly CallAnswer<PinAnswer>[]) => void) {
    this.#pins = pins
    this.#answers = new ThreadAnswers(question => this.#answer(question), reply)
  }

  receive(calls: readonly Call<PinQuestion>[]): void {
    this.#answers.receive(calls)
  }

  #answer(question: PinQuestion): PinAnswer | Promise<PinAnswer> {
    if (question.kind === 'get') return this.#pins.get(question.key)
    const { kind, key, pin, ttlMs, owner } = question
    if (kind === 'claim') return this.#pins.claim(key, pin, ttlMs, owner)
    this.#pins.set(key, pin, ttlMs, owner)
    return pin
  }
}

/** A request waits no longer for a pin. Without one it may cost more, but it is answered. */
const ANSWER_MS = 500

/** The pins as a serve thread uses them. */
export class PinClient implements Pins {
  readonly #calls: ThreadCalls<PinQuestion, PinAnswer>

  constructor(send: (calls: readonly Call<PinQuestion>[]) => void, clock: Clock) {
    this.#calls = new ThreadCalls(send, clock)
  }

  async get(key: string): Promise<string | null> {
    return (await this.#calls.ask({ kind: 'get', key }, ANSWER_MS).answer) ?? null
  }

  async claim(key: string, pin: string, ttlMs: number, owner: string): Promise<string> {
    return (await this.#calls.ask({ kind: 'claim', key, pin, ttlMs, owner }, ANSWER_MS).answer) ?? pin
  }

  set(key: string, pin: string, ttlMs: number, owner: string): void {
    this.#calls.tell({ kind: 'set', key, pin, ttlMs, owner })
    this.#calls.flush()
  }

  /** Settles questions with the answers of the main thread. */
  receive(answers: readonly CallAnswer<PinAnswer>[]): void {
    this.#calls.receive(answers)
  }
}

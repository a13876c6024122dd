/**
 * Carries session affinity between threads. `PinClient` is the end in a serve thread, `PinServer` the end in the main
 * thread, which has the pins. All questions of one iteration of the event loop are one message. A new pin is sent at
 * once, so that it is stored before its client can send the next request.
 */
import type { Clock, Timer } from '../clock.ts'
import { isPending } from '../ready.ts'
import type { Pins } from './pins.ts'

export interface PinQuestion {
  readonly id: number
  readonly key: string
  /** The pin to store if there is none; null: only look it up. */
  readonly claim: string | null
  readonly ttlMs: number
  readonly owner: string
}

export interface NewPin {
  readonly key: string
  readonly pin: string
  readonly ttlMs: number
  readonly owner: string
}

/** From a serve thread. */
export interface PinRequest {
  readonly type: 'pin'
  readonly questions: readonly PinQuestion[]
  readonly pins: readonly NewPin[]
}

export interface PinAnswer {
  readonly id: number
  readonly pin: string | null
}

/** From the main thread. */
export interface PinReply {
  readonly type: 'pinned'
  readonly answers: readonly PinAnswer[]
}

/** Answers one serve thread. Main thread. */
export class PinServer {
  readonly #pins: Pins
  readonly #reply: (answers: readonly PinAnswer[]) => void

  constructor(pins: Pins, reply: (answers: readonly PinAnswer[]) => void) {
    this.#pins = pins
    this.#reply = reply
  }

  receive(questions: readonly PinQuestion[], pins: readonly NewPin[]): void {
    for (const { key, pin, ttlMs, owner } of pins) this.#pins.set(key, pin, ttlMs, owner)
    const answers: PinAnswer[] = []
    for (const { id, key, claim, ttlMs, owner } of questions) {
      const pin = claim === null ? this.#pins.get(key) : this.#pins.claim(key, claim, ttlMs, owner)
      if (isPending<string | null>(pin)) void pin.then(late => this.#reply([{ id, pin: late }]))
      else answers.push({ id, pin })
    }
    if (answers.length > 0) this.#reply(answers)
  }
}

/** A request waits no longer for a pin. Without one it may cost more, but it is answered. */
const ANSWER_MS = 500

interface PendingQuestion {
  readonly timer: Timer
  readonly resolve: (pin: string | null) => void
}

/** The pins as a serve thread uses them. */
export class PinClient implements Pins {
  readonly #send: (request: PinRequest) => void
  readonly #clock: Clock
  readonly #pending = new Map<number, PendingQuestion>()
  #questions: PinQuestion[] = []
  #lastId = 0

  constructor(send: (request: PinRequest) => void, clock: Clock) {
    this.#send = send
    this.#clock = clock
  }

  get(key: string): Promise<string | null> {
    return this.#ask(key, null, 0, '')
  }

  async claim(key: string, pin: string, ttlMs: number, owner: string): Promise<string> {
    return (await this.#ask(key, pin, ttlMs, owner)) ?? pin
  }

  set(key: string, pin: string, ttlMs: number, owner: string): void {
    this.#send({ type: 'pin', questions: [], pins: [{ key, pin, ttlMs, owner }] })
  }

  /** Settles questions with the answers of the main thread. */
  receive(answers: readonly PinAnswer[]): void {
    for (const { id, pin } of answers) {
      const pending = this.#pending.get(id)
      if (pending === undefined) continue
      this.#pending.delete(id)
      pending.timer.cancel()
      pending.resolve(pin)
    }
  }

  #ask(key: string, claim: string | null, ttlMs: number, owner: string): Promise<string | null> {
    const id = ++this.#lastId
    if (this.#questions.length === 0) setImmediate(() => this.#flush())
    this.#questions.push({ id, key, claim, ttlMs, owner })
    return new Promise(resolve => {
      const timer = this.#clock.after(ANSWER_MS, () => {
        this.#pending.delete(id)
        resolve(null)
      })
      this.#pending.set(id, { timer, resolve })
    })
  }

  #flush(): void {
    const questions = this.#questions
    this.#questions = []
    this.#send({ type: 'pin', questions, pins: [] })
  }
}

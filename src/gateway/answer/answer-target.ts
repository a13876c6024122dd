/**
 * The way of one attempt's deltas into the answer: guardrails look at them, calls of server tools are taken out.
 * Hot path.
 */
import type { Clock } from '../../clock.ts'
import type { GatewayError } from '../../errors.ts'
import type { Attempt, AttemptTarget } from '../attempt.ts'
import type { Exchange } from '../exchange.ts'
import { type GuardedAttempt, OutputGuard, type ReplyGuarding } from '../guard/guard.ts'
import type { ToolCalls } from '../tool-calls.ts'
import type { Answer, Source } from './answer.ts'
import type { Content } from './assemble.ts'

export interface AnswerTargetParts {
  readonly clock: Clock
  readonly exchange: Exchange
  readonly answer: Answer
  readonly attempt: Attempt
  /** Catalogue id of the model that is asked. */
  readonly model: string
  /** Display name of its provider. */
  readonly provider: string
  /** Null: replies may leave unseen. */
  readonly guarding: ReplyGuarding | null
  /** Null: no server tool is declared. */
  readonly calls: ToolCalls | null
  /** Upstream bodies to echo. */
  readonly debug: readonly Readonly<Record<string, unknown>>[]
}

export class AnswerTarget implements AttemptTarget, GuardedAttempt, Source {
  readonly #parts: AnswerTargetParts
  readonly #answer: Answer
  readonly #guard: OutputGuard | null
  #hasContent = false

  constructor(parts: AnswerTargetParts) {
    this.#parts = parts
    this.#answer = parts.answer
    this.#guard = parts.guarding === null ? null : new OutputGuard(parts.guarding, parts.exchange, this)
    this.#answer.follow(this)
  }

  hold(): void {
    this.#guard?.resetBudget()
    this.#answer.hold()
  }

  flush(): boolean {
    return this.#answer.flush()
  }

  take(delta: Content): void {
    if (this.#guard !== null) {
      this.#guard.take(delta)
      return
    }
    // The body of `deliver`, one call less for each delta.
    if (!this.#hasContent) this.#begin()
    if (this.#parts.calls?.take(delta) !== true) this.#answer.take(delta)
  }

  end(done: () => void): void {
    if (this.#guard === null) this.#end(done)
    else this.#guard.end(() => this.#end(done))
  }

  close(): void {
    this.#guard?.close()
  }

  /** True once the client has seen something. */
  get committed(): boolean {
    return this.#answer.committed
  }

  deliver(delta: Content): void {
    if (!this.#hasContent) this.#begin()
    if (this.#parts.calls?.take(delta) !== true) this.#answer.take(delta)
  }

  fail(error: GatewayError): void {
    this.#parts.attempt.fail(error)
  }

  turn(work: () => void): void {
    this.#parts.attempt.turn(work)
  }

  pause(): void {
    this.#parts.attempt.pause()
  }

  resume(): void {
    this.#parts.attempt.resume()
  }

  /** An answer without a word has its opening events all the same. */
  #end(done: () => void): void {
    if (!this.#hasContent) this.#begin()
    done()
  }

  #begin(): void {
    const { clock, exchange, debug, model, provider } = this.#parts
    const nowMs = clock.monotonicMs()
    this.#hasContent = true
    exchange.watch.enter('stream', nowMs)
    if (this.#answer.begun) return
    exchange.firstTokenMs = nowMs
    this.#answer.begin(model, provider, exchange.request.stream === true ? debug : [])
  }
}

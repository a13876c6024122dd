/**
 * Access to the sandbox from other threads. `SandboxClient` is the end in a thread that serves requests,
 * `SandboxServer` the end in the main thread, which has the containers. Plain data only.
 */

import type { Clock } from '../../base/clock.ts'
import { type FailureCode, GatewayError, toGatewayError } from '../../base/errors.ts'
import type { Log } from '../../base/log/log.ts'
import { type Call, type CallAnswer, ThreadAnswers, ThreadCalls } from '../../base/thread-rpc.ts'
import type { ContainerOwner, ContainerTerms, RunRequest, SandboxCalls } from './sandbox.ts'

/** One call, by the name of its method. */
type SandboxCall =
  | { readonly op: 'check'; readonly terms: ContainerTerms }
  | {
      readonly op: 'open'
      readonly owner: ContainerOwner
      readonly id: string | null
      readonly terms: ContainerTerms
    }
  | { readonly op: 'run'; readonly owner: ContainerOwner; readonly id: string; readonly run: RunRequest }
  | { readonly op: 'list' | 'end'; readonly owner: ContainerOwner; readonly id: string }
  | { readonly op: 'read'; readonly owner: ContainerOwner; readonly id: string; readonly path: string }
  | {
      readonly op: 'write'
      readonly owner: ContainerOwner
      readonly id: string
      readonly path: string
      readonly content: Uint8Array
    }

/** From a thread: a call, or the end of the call of this number. */
export type SandboxQuestion = SandboxCall | { readonly op: 'abort'; readonly number: number }

interface PlainFailure {
  readonly code: FailureCode
  readonly message: string
  readonly retryAfterSeconds: number | null
}

/** From the main thread. */
export interface SandboxAnswer {
  readonly value: unknown
  readonly failure: PlainFailure | null
}

/** Answers one thread. Main thread. */
export class SandboxServer {
  readonly #calls: SandboxCalls
  readonly #log: Pick<Log, 'fault'>
  readonly #answers: ThreadAnswers<SandboxQuestion, SandboxAnswer>
  readonly #running = new Map<number, AbortController>()

  constructor(
    calls: SandboxCalls,
    log: Pick<Log, 'fault'>,
    reply: (answers: readonly CallAnswer<SandboxAnswer>[]) => void,
  ) {
    this.#calls = calls
    this.#log = log
    this.#answers = new ThreadAnswers((question, number) => this.#answer(question, number), reply)
  }

  receive(calls: readonly Call<SandboxQuestion>[]): void {
    this.#answers.receive(calls)
  }

  /** The thread has ended: its runs end too. */
  close(): void {
    this.#answers.close()
    for (const ending of this.#running.values())
      ending.abort(new GatewayError('client_closed', 'The thread of this request has ended'))
  }

  async #answer(question: SandboxQuestion, number: number): Promise<SandboxAnswer> {
    if (question.op === 'abort') {
      this.#running.get(question.number)?.abort(new GatewayError('client_closed', 'The call was cancelled'))
      return { value: null, failure: null }
    }
    const ending = new AbortController()
    this.#running.set(number, ending)
    try {
      return { value: await this.#run(question, ending.signal), failure: null }
    } catch (thrown) {
      return { value: null, failure: this.#plain(thrown) }
    } finally {
      this.#running.delete(number)
    }
  }

  async #run(call: SandboxCall, signal: AbortSignal): Promise<unknown> {
    const calls = this.#calls
    switch (call.op) {
      case 'check':
        return calls.check(call.terms)
      case 'open':
        return calls.open(call.owner, call.id, call.terms)
      case 'run':
        return calls.run(call.owner, call.id, call.run, signal)
      case 'list':
        return calls.list(call.owner, call.id)
      case 'read':
        return calls.read(call.owner, call.id, call.path)
      case 'write':
        return calls.write(call.owner, call.id, call.path, call.content)
      case 'end':
        return calls.end(call.owner, call.id)
    }
  }

  #plain(thrown: unknown): PlainFailure {
    if (!(thrown instanceof GatewayError)) this.#log.fault('sandbox', 'sandbox failed', thrown)
    const { code, message, retryAfterSeconds = null } = toGatewayError(thrown)
    return { code, message, retryAfterSeconds }
  }
}

/** The containers as a thread uses them. */
export class SandboxClient implements SandboxCalls {
  readonly #calls: ThreadCalls<SandboxQuestion, SandboxAnswer>

  constructor(send: (calls: readonly Call<SandboxQuestion>[]) => void, clock: Clock) {
    this.#calls = new ThreadCalls(send, clock)
  }

  check(terms: ContainerTerms) {
    return this.#ask<void>({ op: 'check', terms })
  }

  open(owner: ContainerOwner, id: string | null, terms: ContainerTerms) {
    return this.#ask<Awaited<ReturnType<SandboxCalls['open']>>>({ op: 'open', owner, id, terms })
  }

  run(owner: ContainerOwner, id: string, run: RunRequest, signal: AbortSignal) {
    return this.#ask<Awaited<ReturnType<SandboxCalls['run']>>>({ op: 'run', owner, id, run }, signal)
  }

  list(owner: ContainerOwner, id: string) {
    return this.#ask<Awaited<ReturnType<SandboxCalls['list']>>>({ op: 'list', owner, id })
  }

  read(owner: ContainerOwner, id: string, path: string) {
    return this.#ask<Uint8Array | null>({ op: 'read', owner, id, path })
  }

  write(owner: ContainerOwner, id: string, path: string, content: Uint8Array) {
    return this.#ask<void>({ op: 'write', owner, id, path, content })
  }

  end(owner: ContainerOwner, id: string) {
    return this.#ask<void>({ op: 'end', owner, id })
  }

  /** Settles calls with the answers of the main thread. */
  receive(answers: readonly CallAnswer<SandboxAnswer>[]): void {
    this.#calls.receive(answers)
  }

  async #ask<T>(call: SandboxCall, signal?: AbortSignal): Promise<T> {
    signal?.throwIfAborted()
    const { number, answer } = this.#calls.ask(call, null)
    const left = Promise.withResolvers<never>()
    const abort = (): void => {
      this.#calls.tell({ op: 'abort', number })
      left.reject(signal?.reason as Error)
    }
    signal?.addEventListener('abort', abort, { once: true })
    try {
      const answered = await Promise.race([answer, left.promise])
      const { value, failure } = answered ?? { value: null, failure: null }
      if (failure === null) return value as T
      const { code, message, retryAfterSeconds } = failure
      throw new GatewayError(code, message, retryAfterSeconds === null ? {} : { retryAfterSeconds })
    } finally {
      signal?.removeEventListener('abort', abort)
    }
  }
}

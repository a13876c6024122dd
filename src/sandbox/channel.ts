/**
 * Carries sandbox calls between threads. `SandboxClient` is the end in a thread that serves requests, `SandboxServer`
 * the end in the main thread, which has the containers. Plain data only.
 */
import { type FailureCode, GatewayError, toGatewayError } from '../errors.ts'
import type { Log } from '../log/log.ts'
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

/** From a thread. `call: null` aborts the call of this number. */
export interface SandboxQuestion {
  readonly type: 'sandbox'
  readonly number: number
  readonly call: SandboxCall | null
}

interface PlainFailure {
  readonly code: FailureCode
  readonly message: string
  readonly retryAfterSeconds: number | null
}

/** From the main thread. */
export interface SandboxAnswer {
  readonly type: 'sandboxed'
  readonly number: number
  readonly value: unknown
  readonly failure: PlainFailure | null
}

/** Answers one thread. Main thread. */
export class SandboxServer {
  readonly #calls: SandboxCalls
  readonly #log: Pick<Log, 'fault'>
  readonly #reply: (answer: SandboxAnswer) => void
  readonly #running = new Map<number, AbortController>()

  constructor(calls: SandboxCalls, log: Pick<Log, 'fault'>, reply: (answer: SandboxAnswer) => void) {
    this.#calls = calls
    this.#log = log
    this.#reply = reply
  }

  receive({ number, call }: SandboxQuestion): void {
    if (call === null) {
      this.#running.get(number)?.abort(new GatewayError('client_closed', 'The call was cancelled'))
      return
    }
    const ending = new AbortController()
    this.#running.set(number, ending)
    const answer = (value: unknown, failure: PlainFailure | null): void => {
      if (!this.#running.delete(number)) return
      this.#reply({ type: 'sandboxed', number, value, failure })
    }
    this.#answer(call, ending.signal).then(
      value => answer(value, null),
      thrown => answer(null, this.#plain(thrown)),
    )
  }

  /** The thread has ended: its runs end too. */
  close(): void {
    const running = [...this.#running.values()]
    this.#running.clear()
    for (const ending of running) ending.abort(new GatewayError('client_closed', 'The thread has ended'))
  }

  async #answer(call: SandboxCall, signal: AbortSignal): Promise<unknown> {
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

interface PendingCall {
  readonly resolve: (value: unknown) => void
  readonly reject: (error: Error) => void
}

/** The containers as a thread uses them. */
export class SandboxClient implements SandboxCalls {
  readonly #send: (question: SandboxQuestion) => void
  readonly #pending = new Map<number, PendingCall>()
  #last = 0

  constructor(send: (question: SandboxQuestion) => void) {
    this.#send = send
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

  /** Settles a call with the answer of the main thread. */
  receive({ number, value, failure }: SandboxAnswer): void {
    const pending = this.#pending.get(number)
    if (pending === undefined) return
    this.#pending.delete(number)
    if (failure === null) {
      pending.resolve(value)
      return
    }
    const { code, message, retryAfterSeconds } = failure
    pending.reject(new GatewayError(code, message, retryAfterSeconds === null ? {} : { retryAfterSeconds }))
  }

  #ask<T>(call: SandboxCall, signal?: AbortSignal): Promise<T> {
    const number = ++this.#last
    return new Promise<T>((resolve, reject) => {
      if (signal?.aborted === true) return reject(signal.reason as Error)
      const abort = (): void => {
        if (!this.#pending.delete(number)) return
        this.#send({ type: 'sandbox', number, call: null })
        reject(signal?.reason as Error)
      }
      const settled = (): void => signal?.removeEventListener('abort', abort)
      this.#pending.set(number, {
        resolve: value => {
          settled()
          resolve(value as T)
        },
        reject: error => {
          settled()
          reject(error)
        },
      })
      signal?.addEventListener('abort', abort, { once: true })
      this.#send({ type: 'sandbox', number, call })
    })
  }
}

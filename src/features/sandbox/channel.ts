/**
 * Access to the sandbox from other threads. `SandboxClient` runs in a thread that serves requests, `SandboxServer` in
 * the main thread, which has the containers. Plain data only.
 */
import { type FailureCode, GatewayError, toGatewayError } from '../../base/errors.ts'
import type { Log } from '../../base/log/log.ts'
import type { RemoteService } from '../../base/thread-rpc.ts'
import type { ContainerOwner, ContainerTerms, RunRequest, SandboxCalls } from './sandbox.ts'

/** The result of a call, or its failure as plain data. */
interface SandboxAnswer {
  readonly value: unknown
  readonly failure: {
    readonly code: FailureCode
    readonly message: string
    readonly retryAfterSeconds: number | null
  } | null
}

/** Serves one thread. Main thread. */
export class SandboxServer {
  readonly #calls: SandboxCalls
  readonly #log: Pick<Log, 'fault'>
  /** The running calls, by the number that the thread gave them. */
  readonly #running = new Map<number, AbortController>()

  constructor(calls: SandboxCalls, log: Pick<Log, 'fault'>) {
    this.#calls = calls
    this.#log = log
  }

  /** Runs a method of the sandbox. Never rejects. */
  async call(number: number, method: keyof SandboxCalls, args: readonly unknown[]): Promise<SandboxAnswer> {
    const cancelling = new AbortController()
    this.#running.set(number, cancelling)
    const run = this.#calls[method] as (...args: readonly unknown[]) => Promise<unknown>
    try {
      // Only `run` takes the signal; the others ignore it.
      return { value: await run.call(this.#calls, ...args, cancelling.signal), failure: null }
    } catch (thrown) {
      if (!(thrown instanceof GatewayError)) this.#log.fault('sandbox', 'sandbox failed', thrown)
      const { code, message, retryAfterSeconds = null } = toGatewayError(thrown)
      return { value: null, failure: { code, message, retryAfterSeconds } }
    } finally {
      this.#running.delete(number)
    }
  }

  abort(number: number): void {
    this.#running.get(number)?.abort(new GatewayError('client_closed', 'The call was cancelled'))
  }

  /** Ends all calls, because the thread has ended. */
  close(): void {
    for (const cancelling of this.#running.values())
      cancelling.abort(new GatewayError('client_closed', 'The thread of this request has ended'))
  }
}

/** Passes calls from a thread to the containers in the main thread. */
export class SandboxClient implements SandboxCalls {
  readonly #server: RemoteService<SandboxServer>
  #lastCall = 0

  constructor(server: RemoteService<SandboxServer>) {
    this.#server = server
  }

  check(terms: ContainerTerms) {
    return this.#ask('check', [terms])
  }

  open(owner: ContainerOwner, id: string | null, terms: ContainerTerms) {
    return this.#ask('open', [owner, id, terms])
  }

  run(owner: ContainerOwner, id: string, run: RunRequest, signal: AbortSignal) {
    return this.#ask('run', [owner, id, run], signal)
  }

  list(owner: ContainerOwner, id: string) {
    return this.#ask('list', [owner, id])
  }

  read(owner: ContainerOwner, id: string, path: string) {
    return this.#ask('read', [owner, id, path])
  }

  write(owner: ContainerOwner, id: string, path: string, content: Uint8Array) {
    return this.#ask('write', [owner, id, path, content])
  }

  end(owner: ContainerOwner, id: string) {
    return this.#ask('end', [owner, id])
  }

  async #ask<Name extends keyof SandboxCalls>(
    method: Name,
    args: readonly unknown[],
    signal?: AbortSignal,
  ): Promise<Awaited<ReturnType<SandboxCalls[Name]>>> {
    signal?.throwIfAborted()
    const number = ++this.#lastCall
    const aborted = Promise.withResolvers<never>()
    const abort = (): void => {
      this.#server.send('abort', [number])
      aborted.reject(signal?.reason as Error)
    }
    signal?.addEventListener('abort', abort, { once: true })
    try {
      const answer = await Promise.race([
        this.#server.ask('call', [number, method, args], null),
        aborted.promise,
      ])
      const { value, failure } = answer ?? { value: null, failure: null }
      if (failure === null) return value as Awaited<ReturnType<SandboxCalls[Name]>>
      const { code, message, retryAfterSeconds } = failure
      throw new GatewayError(code, message, retryAfterSeconds === null ? {} : { retryAfterSeconds })
    } finally {
      signal?.removeEventListener('abort', abort)
    }
  }
}

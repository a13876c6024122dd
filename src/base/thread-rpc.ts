/**
 * Calls between two threads. Each end serves an API: an object of services, whose methods the other end calls by name.
 * All calls and answers of one turn of the event loop travel as one message, in order. Only plain data passes.
 */
import type { Clock, Timer } from './clock.ts'
import { isPending } from './maybe-promise.ts'

type Method = (...args: never[]) => unknown
type Args<Service, Name extends keyof Service> = Service[Name] extends (...args: infer A) => unknown
  ? A
  : never
type Answer<Service, Name extends keyof Service> = Service[Name] extends (...args: never[]) => infer R
  ? Awaited<R>
  : never

/** The methods of a service that another thread may call. */
type MethodName<Service> = {
  [Name in keyof Service]: Service[Name] extends Method ? Name : never
}[keyof Service] &
  string

/** The services that one end serves, by name. A method must not throw or reject. */
export type ThreadApi = Readonly<Record<string, object>>

interface Call {
  readonly service: string
  readonly method: string
  readonly args: readonly unknown[]
  /** Null: no answer is expected. */
  readonly number: number | null
}

/** All calls and answers of one end in one turn. */
export interface LinkMessage {
  readonly calls: readonly Call[]
  readonly answers: readonly { readonly number: number; readonly answer: unknown }[]
}

/** Arguments, and the memory in them that is transferred to the other thread instead of copied. */
export interface MovedArgs<Values> {
  readonly args: Values
  readonly moved: readonly ArrayBuffer[]
}

interface QueuedCall extends Omit<Call, 'args'> {
  /** Builds the arguments when the call is sent. */
  readonly make: () => MovedArgs<readonly unknown[]>
}

interface PendingCall {
  readonly timer: Timer | null
  readonly resolve: (answer: unknown) => void
}

/** One end of the link between two threads. `Theirs`: the API of the other end. */
export class ThreadLink<Theirs extends object> {
  readonly #clock: Clock
  readonly #post: (message: LinkMessage, transferList: readonly ArrayBuffer[]) => void
  readonly #waiting = new Map<number, PendingCall>()
  #api: ThreadApi = {}
  #calls: QueuedCall[] = []
  #answers: { readonly number: number; readonly answer: unknown }[] = []
  #lastNumber = 0
  #isClosed = false

  /** @param post sends a message to the other end, and transfers this memory */
  constructor(clock: Clock, post: (message: LinkMessage, moved: readonly ArrayBuffer[]) => void) {
    this.#clock = clock
    this.#post = post
  }

  /** Sets the API that the other end may call. Call it before the first message is received. */
  serve(api: ThreadApi): void {
    this.#api = api
  }

  /** A service of the other end. */
  service<Name extends keyof Theirs & string>(name: Name): RemoteService<Theirs[Name]> {
    return new RemoteService(this as ThreadLink<object>, name)
  }

  receive({ calls, answers }: LinkMessage): void {
    for (const { number, answer } of answers) this.#settle(number, answer)
    if (this.#isClosed) return
    for (const { service, method, args, number } of calls) {
      const target = this.#api[service] as Readonly<Record<string, (...args: unknown[]) => unknown>>
      const answer = target[method]?.(...args)
      if (number === null) continue
      if (isPending(answer)) void answer.then(late => this.#answer(number, late))
      else this.#answers.push({ number, answer })
    }
    this.flush()
  }

  /** Sends at once, without waiting for the end of the turn. */
  flush(): void {
    if (this.#isClosed || this.#calls.length + this.#answers.length === 0) return
    const queued = this.#calls
    const answers = this.#answers
    this.#calls = []
    this.#answers = []
    const memory: ArrayBuffer[] = []
    const calls = queued.map(({ service, method, number, make }) => {
      const { args, moved } = make()
      memory.push(...moved)
      return { service, method, args, number }
    })
    this.#post({ calls, answers }, memory)
  }

  /** Call it when the other thread has ended: pending calls get no answer, and later calls do nothing. */
  close(): void {
    this.#isClosed = true
    for (const number of [...this.#waiting.keys()]) this.#settle(number, undefined)
  }

  /** Only for `RemoteService`. */
  ask(service: string, method: string, args: readonly unknown[], limitMs: number | null): Promise<unknown> {
    const number = ++this.#lastNumber
    this.send({ service, method, number, make: () => ({ args, moved: [] }) })
    return new Promise(resolve => {
      if (this.#isClosed) return resolve(undefined)
      const timer =
        limitMs === null ? null : this.#clock.after(limitMs, () => this.#settle(number, undefined))
      this.#waiting.set(number, { timer, resolve })
    })
  }

  /** Only for `RemoteService`. */
  send(call: QueuedCall): void {
    if (this.#isClosed) return
    this.#sendLater()
    this.#calls.push(call)
  }

  #answer(number: number, answer: unknown): void {
    this.#sendLater()
    this.#answers.push({ number, answer })
  }

  #sendLater(): void {
    if (this.#calls.length + this.#answers.length === 0) setImmediate(() => this.flush())
  }

  #settle(number: number, answer: unknown): void {
    const waitingCall = this.#waiting.get(number)
    if (waitingCall === undefined) return
    this.#waiting.delete(number)
    waitingCall.timer?.cancel()
    waitingCall.resolve(answer)
  }
}

/** A service in the other thread. */
export class RemoteService<Service> {
  readonly #link: ThreadLink<object>
  readonly #name: string

  constructor(link: ThreadLink<object>, name: string) {
    this.#link = link
    this.#name = name
  }

  /**
   * Calls a method and waits for its answer; undefined if it comes too late, or the other thread has ended.
   * @param limitMs null: waits until the answer comes
   */
  ask<Name extends MethodName<Service>>(
    method: Name,
    args: Args<Service, Name>,
    limitMs: number | null,
  ): Promise<Answer<Service, Name> | undefined> {
    return this.#link.ask(this.#name, method, args, limitMs) as Promise<Answer<Service, Name> | undefined>
  }

  /** Calls a method without waiting for an answer. */
  send<Name extends MethodName<Service>>(
    method: Name,
    args: Args<Service, Name>,
    moved: readonly ArrayBuffer[] = [],
  ): void {
    this.sendLater(method, () => ({ args, moved }))
  }

  /** Like `send`, but builds the arguments when the call is sent, at the end of the turn. */
  sendLater<Name extends MethodName<Service>>(
    method: Name,
    make: () => MovedArgs<Args<Service, Name>>,
  ): void {
    this.#link.send({ service: this.#name, method, number: null, make })
  }

  /** Sends all calls at once, without waiting for the end of the turn. */
  flush(): void {
    this.#link.flush()
  }
}

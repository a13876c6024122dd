/**
 * Calls between threads: all calls made in one turn of the event loop are sent as one message, and so are all answers
 * that are ready at the same time. `ThreadCalls` is the calling end, `ThreadAnswers` the answering one; only plain data
 * passes between them.
 */
import type { Clock, Timer } from './clock.ts'
import { isPending } from './maybe-promise.ts'

export interface Call<Question> {
  /** Null: nobody waits for an answer. */
  readonly number: number | null
  readonly question: Question
}

export interface CallAnswer<Answer> {
  readonly number: number
  readonly answer: Answer
}

interface Asked<Answer> {
  /** Names the call at both ends. */
  readonly number: number
  /** Undefined: it came too late, or the other thread has ended. */
  readonly answer: Promise<Answer | undefined>
}

interface Waiting<Answer> {
  readonly timer: Timer | null
  readonly resolve: (answer: Answer | undefined) => void
}

/** The end that asks. */
export class ThreadCalls<Question, Answer> {
  readonly #send: (calls: readonly Call<Question>[]) => void
  readonly #clock: Clock
  readonly #waiting = new Map<number, Waiting<Answer>>()
  #calls: Call<Question>[] = []
  #lastNumber = 0

  constructor(send: (calls: readonly Call<Question>[]) => void, clock: Clock) {
    this.#send = send
    this.#clock = clock
  }

  /** @param limitMs how long it waits for the answer; null: until it comes */
  ask(question: Question, limitMs: number | null): Asked<Answer> {
    const number = ++this.#lastNumber
    this.#push({ number, question })
    const answer = new Promise<Answer | undefined>(resolve => {
      const timer =
        limitMs === null ? null : this.#clock.after(limitMs, () => this.#settle(number, undefined))
      this.#waiting.set(number, { timer, resolve })
    })
    return { number, answer }
  }

  /** Asks for no answer. */
  tell(question: Question): void {
    this.#push({ number: null, question })
  }

  /** Settles calls with the answers of the other thread. */
  receive(answers: readonly CallAnswer<Answer>[]): void {
    for (const { number, answer } of answers) this.#settle(number, answer)
  }

  /** Sends at once, without waiting for the end of the turn. */
  flush(): void {
    if (this.#calls.length === 0) return
    const calls = this.#calls
    this.#calls = []
    this.#send(calls)
  }

  /** Call it when the other thread has ended: nobody waits any longer. */
  close(): void {
    for (const number of [...this.#waiting.keys()]) this.#settle(number, undefined)
  }

  #push(call: Call<Question>): void {
    if (this.#calls.length === 0) setImmediate(() => this.flush())
    this.#calls.push(call)
  }

  #settle(number: number, answer: Answer | undefined): void {
    const waiting = this.#waiting.get(number)
    if (waiting === undefined) return
    this.#waiting.delete(number)
    waiting.timer?.cancel()
    waiting.resolve(answer)
  }
}

/** The end that answers one thread. */
export class ThreadAnswers<Question, Answer> {
  readonly #answer: (question: Question, number: number) => Answer | Promise<Answer>
  readonly #reply: (answers: readonly CallAnswer<Answer>[]) => void
  #answers: CallAnswer<Answer>[] = []
  #isClosed = false

  /** @param answer must not reject; `number` is 0 where nobody waits */
  constructor(
    answer: (question: Question, number: number) => Answer | Promise<Answer>,
    reply: (answers: readonly CallAnswer<Answer>[]) => void,
  ) {
    this.#answer = answer
    this.#reply = reply
  }

  receive(calls: readonly Call<Question>[]): void {
    if (this.#isClosed) return
    for (const { number, question } of calls) {
      const answer = this.#answer(question, number ?? 0)
      if (number === null) continue
      if (isPending<Answer>(answer)) void answer.then(late => this.#answerLate(number, late))
      else this.#answers.push({ number, answer })
    }
    this.#flush()
  }

  /** Call it when the thread has ended: nothing is done for it any more. */
  close(): void {
    this.#isClosed = true
  }

  #answerLate(number: number, answer: Answer): void {
    if (this.#answers.length === 0) setImmediate(() => this.#flush())
    this.#answers.push({ number, answer })
  }

  #flush(): void {
    if (this.#answers.length === 0) return
    const answers = this.#answers
    this.#answers = []
    if (!this.#isClosed) this.#reply(answers)
  }
}

/**
 * Guardrails between what a model says and what the client gets: each text of the reply goes through windows, and what
 * is not yet looked at is held. One way for streams and whole answers, all formats, retries and fallbacks. One per
 * attempt. Hot path of guarded replies.
 */
import type { GatewayError } from '../errors.ts'
import type { Exchange } from '../exchange.ts'
import { strictest } from '../guardrails/rules.ts'
import { type Seen, TextWindow, type Window } from '../guardrails/window.ts'
import type { Metrics } from '../metrics.ts'
import type { Content } from './assemble.ts'
import { type GuardTasks, windowEvaluator } from './guard-evaluate.ts'
import { noteLogprobs, type Part, partName, type Spoken, saying, takeLogprobs } from './guard-part.ts'
import {
  blocked,
  countMatches,
  cutOff,
  type Match,
  stagesOf,
  unchecked,
  uncheckedStages,
} from './guard-report.ts'
import type { OutputGuardRules } from './guard-rules.ts'

/** What guards replies of one caller. */
export interface ReplyGuarding {
  readonly rules: OutputGuardRules
  readonly tasks: GuardTasks
  readonly metrics: Pick<Metrics, 'guardrailDecisions'>
}

/** What the guard needs of its attempt. */
export interface GuardedAttempt {
  readonly committed: boolean
  /** Takes what may leave. */
  deliver(delta: Content): void
  /** Ends the attempt. */
  fail(error: GatewayError): void
  /** Runs what was waited for as if the provider had sent it now. */
  turn(work: () => void): void
  pause(): void
  resume(): void
}

type Step =
  | { readonly kind: 'take'; readonly delta: Content; pushed: boolean }
  | { readonly kind: 'end'; readonly done: () => void }

/** What may wait for a verdict before the provider is asked to be slower. */
const WAITING_MAX_CHARS = 64 * 1024
/** Looking at windows may take so long of one turn of the event loop, estimated. A whole answer can have hundreds. */
const TURN_MAX_MICROS = 1_000

export class OutputGuard {
  readonly #guarding: ReplyGuarding
  readonly #exchange: Exchange
  readonly #attempt: GuardedAttempt
  readonly #parts = new Map<number, Part>()
  /** Items that have begun with no word said; they leave with the first thing that does. */
  readonly #opening: Content[] = []
  /** What came while a verdict was awaited. */
  readonly #waiting: Step[] = []
  #waitingChars = 0
  #paused = false
  /** A verdict is awaited. */
  #pending = false
  #closed = false
  readonly #matches = new Map<string, Match>()
  #unchecked = false
  /** Spent in this turn, estimated. */
  #micros = 0
  readonly #abort = new AbortController()

  constructor(guarding: ReplyGuarding, exchange: Exchange, attempt: GuardedAttempt) {
    this.#guarding = guarding
    this.#exchange = exchange
    this.#attempt = attempt
  }

  /** The event loop has been elsewhere. */
  freshTurn(): void {
    this.#micros = 0
  }

  take(delta: Content): void {
    if (this.#closed) return
    this.#waiting.push({ kind: 'take', delta, pushed: false })
    if (!this.#pending) {
      this.#pump()
      return
    }
    if ('text' in delta) this.#waitingChars += delta.text.length
    if (this.#waitingChars > WAITING_MAX_CHARS) {
      this.#paused = true
      this.#attempt.pause()
    }
  }

  /** The model has finished; `done` is called when all it said has been looked at and was let go. */
  end(done: () => void): void {
    if (this.#closed) return
    this.#waiting.push({ kind: 'end', done })
    if (!this.#pending) this.#pump()
  }

  /** The attempt is over: what is held goes nowhere. What was decided is told if the client has seen some of it. */
  close(): void {
    if (this.#closed) return
    if (this.#attempt.committed) this.#report()
    this.#closed = true
    this.#abort.abort()
  }

  /** As far as it goes without waiting. */
  #pump(): void {
    for (let step = this.#waiting[0]; step !== undefined && !this.#closed; step = this.#waiting[0]) {
      const isOver = step.kind === 'end' ? this.#endAll() : this.#process(step)
      if (!isOver || this.#closed) return
      this.#waiting.shift()
      if (step.kind !== 'end') continue
      this.#report()
      this.#closed = true
      step.done()
    }
    this.#waitingChars = 0
    if (!this.#paused) return
    this.#paused = false
    this.#attempt.resume()
  }

  /** False: a verdict has to be awaited, and the step taken again. */
  #process(step: Extract<Step, { kind: 'take' }>): boolean {
    const { delta } = step
    switch (delta.kind) {
      case 'text':
      case 'refusal':
      case 'reasoning':
      case 'arguments':
        return this.#speak(step, delta)
      case 'open':
        if (this.#attempt.committed) this.#attempt.deliver(delta)
        else this.#opening.push(delta)
        return true
      case 'annotation': {
        const part = this.#parts.get(delta.item)
        if (part === undefined || part.window.heldBytes === 0) this.#deliver(delta)
        else part.marks.push({ at: part.window.length, delta })
        return true
      }
      case 'close': {
        const part = this.#parts.get(delta.item)
        if (part !== undefined && !this.#finish(part)) return false
        this.#deliver(delta)
        return true
      }
      case 'progress':
        this.#deliver(delta)
        return true
    }
  }

  #speak(step: Extract<Step, { kind: 'take' }>, delta: Spoken): boolean {
    const name = partName(delta)
    let part = this.#parts.get(delta.item)
    if (part !== undefined && part.name !== name) {
      if (!this.#finish(part)) return false
      part = undefined
    }
    if (part === undefined) {
      part = this.#begin(name, delta)
      this.#parts.set(delta.item, part)
    }
    if (!step.pushed) {
      step.pushed = true
      part.like = delta
      if (delta.kind === 'text' && delta.logprobs !== null) noteLogprobs(part, delta.text, delta.logprobs)
      part.window.add(delta.text)
    }
    return this.#advance(part)
  }

  #begin(name: string, like: Spoken): Part {
    const { rules, tasks } = this.#guarding
    const evaluator = windowEvaluator(tasks, rules)
    return {
      name,
      item: like.item,
      window: new TextWindow(evaluator.scanner, rules.size),
      evaluator,
      like,
      logprobs: [],
      marks: [],
    }
  }

  #endAll(): boolean {
    for (const part of this.#parts.values()) if (!this.#finish(part)) return false
    // An answer without a word still has its items.
    this.#open()
    return true
  }

  #finish(part: Part): boolean {
    part.window.finish()
    if (!this.#advance(part)) return false
    this.#letMarks(part, Number.POSITIVE_INFINITY)
    this.#parts.delete(part.item)
    return true
  }

  /** Looks at all windows that are whole. */
  #advance(part: Part): boolean {
    for (let window = part.window.next(); window !== null; window = part.window.next()) {
      const seen = this.#micros < TURN_MAX_MICROS ? this.#see(part, window) : this.#seeLater(part, window)
      if (seen instanceof Promise) {
        this.#await(part, window, seen)
        return false
      }
      this.#release(part, window, seen)
      if (this.#closed) return false
    }
    return true
  }

  #see({ evaluator }: Part, window: Window): Seen | Promise<Seen> {
    this.#micros += evaluator.micros(window)
    try {
      return evaluator.see(window, this.#abort.signal)
    } catch (failed) {
      return this.#unseen(failed)
    }
  }

  async #seeLater(part: Part, window: Window): Promise<Seen> {
    await new Promise(resolve => setImmediate(resolve))
    this.freshTurn()
    return this.#see(part, window)
  }

  #await(part: Part, window: Window, promise: Promise<Seen>): void {
    this.#pending = true
    const goOn = (seenOf: () => Seen): void => {
      this.#pending = false
      if (this.#closed) return
      this.#attempt.turn(() => {
        this.#release(part, window, seenOf())
        if (!this.#closed) this.#pump()
      })
    }
    promise.then(
      seen => goOn(() => seen),
      failed => goOn(() => this.#unseen(failed)),
    )
  }

  /** The text of a window that could not be looked at goes on, unless one of the guardrails refuses that. */
  #unseen(cause: unknown): Seen {
    const { rules } = this.#guarding.rules
    this.#unchecked = true
    const refusing = rules.owners.find(({ failMode }) => failMode === 'closed')
    if (refusing !== undefined) this.#stop(unchecked(refusing, 'reply', cause))
    return { findings: [], continued: [] }
  }

  #release(part: Part, window: Window, seen: Seen): void {
    if (this.#closed) return
    for (const { rule, action, pattern, detector } of seen.findings) {
      this.#matches.set(`${rule} ${pattern}`, { rule, action, pattern, detector })
    }
    if (strictest(seen.findings) === 'block') {
      const matches = [...this.#matches.values()]
      this.#stop(this.#attempt.committed ? cutOff(matches) : blocked(matches, 'reply'))
      return
    }
    const text = part.window.release(window, seen)
    const end = part.window.released
    const logprobs = part.like.kind === 'text' ? takeLogprobs(part, end) : null
    if (text !== '') this.#deliver(saying(part.like, text, logprobs))
    this.#letMarks(part, end)
  }

  #letMarks(part: Part, end: number): void {
    for (let mark = part.marks[0]; mark !== undefined && mark.at <= end; mark = part.marks[0]) {
      part.marks.shift()
      this.#deliver(mark.delta)
    }
  }

  #stop(error: GatewayError): void {
    this.#report()
    this.#closed = true
    this.#abort.abort()
    this.#attempt.fail(error)
  }

  #deliver(delta: Content): void {
    this.#open()
    this.#attempt.deliver(delta)
  }

  #open(): void {
    for (const delta of this.#opening.splice(0)) this.#attempt.deliver(delta)
  }

  #report(): void {
    const { rules, metrics } = this.#guarding
    const { pipeline } = this.#exchange
    const matches = [...this.#matches.values()]
    pipeline.push(...stagesOf(rules.rules, matches, 'reply'))
    countMatches(metrics, rules.rules, matches)
    if (!this.#unchecked) return
    const refused = rules.rules.owners.some(({ failMode }) => failMode === 'closed')
    if (!refused) pipeline.push(...uncheckedStages(rules.rules, 'reply'))
    metrics.guardrailDecisions.inc({
      guardrail: 'all',
      action: refused ? 'refused_unchecked' : 'passed_unchecked',
    })
  }
}

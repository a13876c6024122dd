/**
 * Guardrails between what a model says and what the client gets: each text of the reply goes through windows, and what
 * is not yet looked at is held. One way for streams and whole answers, all formats, retries and fallbacks. One per
 * attempt. Hot path of guarded replies.
 */
import type { GatewayError } from '../../errors.ts'
import type { Window } from '../../guardrails/window.ts'
import type { Metrics } from '../../metrics/metrics.ts'
import type { Annotation } from '../../protocol/items.ts'
import type { Content } from '../answer/assemble.ts'
import type { Exchange } from '../exchange.ts'
import type { GuardTasks, WindowSeen } from './evaluate.ts'
import { type Fields, fieldTexts, isRunByProvider, withFieldTexts, withoutLogprobs } from './fields.ts'
import { noteLogprobs, type Part, partName, type Spoken, saying, takeLogprobs } from './part.ts'
import type { OutputGuardRules } from './rules.ts'
import { Verdicts } from './verdicts.ts'
import { Looker } from './window-scan.ts'

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

type Opening = Extract<Content, { kind: 'open' }>
type Closing = Extract<Content, { kind: 'close' }>
type HostedOpening = Opening & { readonly start: { readonly type: 'hosted' } }

type Step =
  | { readonly kind: 'take'; readonly delta: Content; pushed: boolean }
  | { readonly kind: 'end'; readonly done: () => void }

/** What may wait for a verdict before the provider is asked to be slower. */
const WAITING_MAX_CHARS = 64 * 1024

export class OutputGuard {
  readonly #looker: Looker
  readonly #verdicts: Verdicts
  readonly #exchange: Exchange
  readonly #attempt: GuardedAttempt
  readonly #parts = new Map<number, Part>()
  /** Parts that have begun, by item and name. */
  readonly #told = new Set<string>()
  /** Items that have begun with no word said; they leave with the first thing that does. */
  readonly #opening: Content[] = []
  /** By item that has begun: its type. */
  readonly #types = new Map<number, string>()
  /** An item that the client is to run: it leaves when it is whole. */
  #withheld: HostedOpening | null = null
  /** What belongs to items that began after it; they keep their order. */
  #behind: Step[] = []
  /** Fields of the first step, when they have been looked at. */
  #clean: Fields | null = null
  /** What came while a verdict was awaited. */
  #waiting: Step[] = []
  #waitingChars = 0
  #paused = false
  /** A verdict is awaited. */
  #pending = false
  #closed = false

  constructor({ rules, tasks, metrics }: ReplyGuarding, exchange: Exchange, attempt: GuardedAttempt) {
    this.#looker = new Looker(rules, tasks)
    this.#verdicts = new Verdicts(rules.rules, metrics)
    this.#exchange = exchange
    this.#attempt = attempt
  }

  /** The event loop has been elsewhere. */
  freshTurn(): void {
    this.#looker.freshTurn()
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
    if (this.#attempt.committed) this.#verdicts.report(this.#exchange)
    this.#closed = true
    this.#looker.abort()
  }

  /** As far as it goes without waiting. */
  #pump(): void {
    for (let step = this.#waiting[0]; step !== undefined && !this.#closed; step = this.#waiting[0]) {
      if (step.kind === 'end' && this.#withheld !== null) {
        if (!this.#letGo(this.#withheld, null)) return
        continue
      }
      const isOver = step.kind === 'end' ? this.#endAll() : this.#process(step)
      if (!isOver || this.#closed) return
      this.#waiting.shift()
      if (step.kind !== 'end') continue
      this.#verdicts.report(this.#exchange)
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
    if (this.#withheld !== null && this.#withheld.item !== delta.item && !this.#types.has(delta.item)) {
      this.#behind.push(step)
      return true
    }
    switch (delta.kind) {
      case 'text':
      case 'refusal':
      case 'reasoning':
      case 'arguments':
        return this.#speak(step, delta)
      case 'open':
        return this.#begun(delta)
      case 'annotation':
        return this.#annotate(delta)
      case 'close':
        return this.#ended(delta)
      case 'progress':
        if (this.#withheld?.item !== delta.item) this.#deliver(delta)
        return true
    }
  }

  #begun(delta: Opening): boolean {
    const { item, start } = delta
    if (start.type === 'hosted') {
      this.#types.set(item, start.item.type)
      if (!isRunByProvider(start.item.type)) {
        this.#withheld = { ...delta, start }
        return true
      }
    }
    let opening = delta
    if ('extra' in start && start.extra !== null) {
      const extra = this.#cleaned(start.extra)
      if (extra === null) return false
      opening = { ...delta, start: { ...start, extra } }
    }
    if (start.type !== 'hosted') this.#types.set(item, start.type)
    if (this.#attempt.committed) this.#attempt.deliver(opening)
    else this.#opening.push(opening)
    return true
  }

  #annotate(delta: Extract<Content, { kind: 'annotation' }>): boolean {
    const { annotation } = delta
    const fields = this.#cleaned({ ...annotation })
    if (fields === null) return false
    const clean = { ...delta, annotation: fields as unknown as Annotation }
    const part = this.#parts.get(delta.item)
    if (part === undefined || part.window.heldBytes === 0) this.#deliver(clean)
    else part.marks.push({ at: part.window.length, delta: clean })
    return true
  }

  #ended(delta: Closing): boolean {
    const { item, fields } = delta
    if (this.#withheld?.item === item) return this.#letGo(this.#withheld, delta)
    const part = this.#parts.get(item)
    if (part !== undefined && !this.#finish(part)) return false
    if (fields === null || isRunByProvider(this.#types.get(item) ?? '')) {
      this.#deliver(delta)
      return true
    }
    const clean = this.#cleaned(fields)
    if (clean === null) return false
    this.#deliver({ ...delta, fields: clean })
    return true
  }

  /** The item that the client is to run, in its last form, and then what began after it. */
  #letGo({ start, ...opening }: HostedOpening, closing: Closing | null): boolean {
    const { type, status } = start.item
    const clean = this.#cleaned({ ...start.item, ...closing?.fields })
    if (clean === null) return false
    this.#withheld = null
    const begun = { ...clean, type, ...(status === undefined ? {} : { status }) }
    this.#deliver({ ...opening, start: { ...start, item: begun } })
    if (closing !== null) this.#deliver({ ...closing, fields: clean })
    if (this.#behind.length > 0) {
      // Behind the step that is being taken, which is its close or comes again.
      const at = closing === null ? 0 : 1
      this.#waiting = [...this.#waiting.slice(0, at), ...this.#behind, ...this.#waiting.slice(at)]
      this.#behind = []
    }
    return true
  }

  /** The fields without what is redacted; null: a verdict has to be awaited, and the step taken again. */
  #cleaned(fields: Fields): Fields | null {
    const known = this.#clean
    this.#clean = null
    if (known !== null) return known
    const told = withoutLogprobs(fields)
    const texts = fieldTexts(told)
    if (texts.length === 0) return told
    const looking = this.#looker.seeAll(texts, seen => this.#verdicts.isEnd(seen))
    this.#await(looking, ({ seen, said }) => {
      if (seen.every(each => this.#admits(each))) this.#clean = withFieldTexts(told, said)
    })
    return null
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
    const told = `${like.item} ${name}`
    const isAgain = this.#told.has(told)
    this.#told.add(told)
    return { ...this.#looker.begin(), name, item: like.item, isAgain, like, logprobs: [], marks: [] }
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
    // They may have come when all of the text had left.
    const logprobs = takeLogprobs(part, Number.POSITIVE_INFINITY)
    if (logprobs !== null && logprobs.length > 0) this.#deliver(saying(part.like, '', logprobs))
    this.#letMarks(part, Number.POSITIVE_INFINITY)
    this.#parts.delete(part.item)
    return true
  }

  /** Looks at all windows that are whole. */
  #advance(part: Part): boolean {
    for (let window = part.window.next(); window !== null; window = part.window.next()) {
      const seen = this.#looker.see(part, window)
      if (seen instanceof Promise) {
        this.#await(seen, later => this.#release(part, window, later))
        return false
      }
      this.#release(part, window, seen)
      if (this.#closed) return false
    }
    return true
  }

  #await<T>(promise: Promise<T>, use: (value: T) => void): void {
    this.#pending = true
    const goOn = (seen: () => T): void => {
      this.#pending = false
      if (this.#closed) return
      this.#attempt.turn(() => {
        use(seen())
        if (!this.#closed) this.#pump()
      })
    }
    promise.then(
      value => goOn(() => value),
      fault =>
        goOn(() => {
          throw fault
        }),
    )
  }

  /** Takes note of what was seen; false: it goes nowhere, and nothing after it. */
  #admits(seen: WindowSeen): boolean {
    const error = this.#verdicts.note(seen, this.#attempt.committed)
    if (error !== null) this.#stop(error)
    return error === null
  }

  #release(part: Part, window: Window, seen: WindowSeen): void {
    if (this.#closed || !this.#admits(seen)) return
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
    this.#verdicts.report(this.#exchange)
    this.#closed = true
    this.#looker.abort()
    this.#attempt.fail(error)
  }

  #deliver(delta: Content): void {
    this.#open()
    this.#attempt.deliver(delta)
  }

  #open(): void {
    for (const delta of this.#opening.splice(0)) this.#attempt.deliver(delta)
  }
}

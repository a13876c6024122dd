/**
 * Output guard: scans the texts of a reply window by window, and delivers each window after its scan. It sits between
 * an attempt and the attempt's target; streams and whole answers take the same path. One per attempt. Hot path of
 * guarded replies.
 *
 * If a delta needs an asynchronous scan, the guard processes it again when the scan is done. Items that the client will
 * execute must be sent whole, so the guard withholds them until they are complete.
 */
import type { GatewayError } from '../../base/errors.ts'
import { isPending } from '../../base/maybe-promise.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type { Window } from '../../features/guardrails/window.ts'
import type { Annotation } from '../../protocol/parts.ts'
import type { Content } from '../answer/answer.ts'
import type { Sink } from '../answer/sink.ts'
import type { AttemptTarget } from '../turn/attempt-target.ts'
import type { OutputGuardRules } from './compiled-rules.ts'
import { type GuardTasks, type WindowResult, WindowScan } from './evaluate.ts'
import {
  fieldTexts,
  type ItemFields,
  isRunByProvider,
  ReplyText,
  type TextDelta,
  textName,
  withFieldTexts,
  withoutLogprobs,
} from './reply-text.ts'
import { ReplyReport } from './report.ts'
import { type QueuedDelta, type QueuedStep, type QueueOwner, ScanQueue } from './scan-queue.ts'

/** The rules for replies of one caller, and the means to evaluate them. */
export interface ReplyGuarding {
  readonly rules: OutputGuardRules
  readonly tasks: GuardTasks
  readonly metrics: Pick<Metrics, 'guardrailDecisions'>
}

/** The attempt, as the guard sees it. */
export interface GuardedAttempt extends QueueOwner {
  /** Ends the attempt, because the caller must not get the provider's output. */
  refuse(error: GatewayError): void
}

/** Receives the deltas that may be sent. */
interface GuardedTarget extends AttemptTarget {
  readonly sink: Pick<Sink, 'cork' | 'flush'> | null
  /** True if the client has seen content of this attempt. */
  readonly committed: boolean
}

type Opening = Extract<Content, { kind: 'open' }>
type Closing = Extract<Content, { kind: 'close' }>
type HostedOpening = Opening & { readonly start: { readonly type: 'hosted' } }

export class OutputGuard implements AttemptTarget {
  readonly sink: Pick<Sink, 'cork' | 'flush'>
  readonly #queue: ScanQueue
  readonly #scan: WindowScan
  readonly #report: ReplyReport
  readonly #exchange: Exchange
  readonly #attempt: GuardedAttempt
  readonly #target: GuardedTarget
  /** Keyed by item: the text that is being written. */
  readonly #texts = new Map<number, ReplyText>()
  /** The end of the text so far, over all items, because clients read it as one text. */
  #precedingText = ''
  /** Texts that have begun, by item and name. */
  readonly #begunTexts = new Set<string>()
  /** Keyed by item that has begun: its type. */
  readonly #itemTypes = new Map<number, string>()
  /** Openings of items without content: they are sent with the item's first delta that is sent. */
  readonly #openings: Content[] = []
  /** An item that the client will execute: it is sent when it is complete. */
  #withheld: HostedOpening | null = null
  /** Deltas of items that began after the withheld one, in order. */
  readonly #behindWithheld: QueuedStep[] = []
  /** Fields of the first queued delta, once they have been redacted. */
  #redactedFields: ItemFields | null = null
  #isClosed = false

  constructor(
    { rules, tasks, metrics }: ReplyGuarding,
    exchange: Exchange,
    attempt: GuardedAttempt,
    target: GuardedTarget,
    before = '',
  ) {
    this.sink = this
    this.#queue = new ScanQueue(attempt, entry =>
      entry.kind === 'end' ? this.#finish(entry) : this.#process(entry),
    )
    this.#scan = new WindowScan(rules, tasks)
    this.#report = new ReplyReport(rules.rules, metrics)
    this.#exchange = exchange
    this.#attempt = attempt
    this.#target = target
    this.#precedingText = before
  }

  /** Called when a read begins: renews the time budget for scans, which each turn of the event loop has. */
  cork(): void {
    this.#scan.resetBudget()
    this.#target.sink?.cork()
  }

  flush(): boolean {
    return this.#target.sink?.flush() ?? true
  }

  receive(delta: Content): void {
    if (!this.#isClosed) this.#queue.add({ kind: 'delta', delta, isAdded: false })
  }

  /** The model has finished; calls `done` when everything has been scanned and delivered. */
  end(done: () => void): void {
    if (!this.#isClosed) this.#queue.add({ kind: 'end', done: () => this.#target.end(done) })
  }

  /** Ends the guard with its attempt: drops held output, and reports if the client has seen some of the reply. */
  close(): void {
    if (this.#isClosed) return
    if (this.#target.committed) this.#report.publish(this.#exchange)
    this.#stop()
  }

  /**
   * False if a scan has to finish first, and the delta must be processed again. The same applies to all methods that
   * return a boolean.
   */
  #process(queued: QueuedDelta): boolean {
    const { delta } = queued
    if (this.#withheld !== null && this.#withheld.item !== delta.item && !this.#itemTypes.has(delta.item)) {
      this.#behindWithheld.push(queued)
      return true
    }
    switch (delta.kind) {
      case 'text':
      case 'refusal':
      case 'reasoning':
      case 'arguments':
        return this.#takeText(queued, delta)
      case 'open':
        return this.#openItem(delta)
      case 'annotation':
        return this.#annotate(delta)
      case 'close':
        return this.#closeItem(delta)
      case 'progress':
        if (this.#withheld?.item !== delta.item) this.#deliver(delta)
        return true
    }
  }

  #openItem(delta: Opening): boolean {
    const { item, start } = delta
    if (start.type === 'hosted') {
      this.#itemTypes.set(item, start.item.type)
      if (!isRunByProvider(start.item.type)) {
        this.#withheld = { ...delta, start }
        return true
      }
    }
    let opening = delta
    if ('extra' in start && start.extra !== null) {
      const extra = this.#redact(start.extra)
      if (extra === null) return false
      opening = { ...delta, start: { ...start, extra } }
    }
    if (start.type !== 'hosted') this.#itemTypes.set(item, start.type)
    if (this.#target.committed) this.#target.receive(opening)
    else this.#openings.push(opening)
    return true
  }

  #annotate(delta: Extract<Content, { kind: 'annotation' }>): boolean {
    const fields = this.#redact({ ...delta.annotation })
    if (fields === null) return false
    const redactedDelta = { ...delta, annotation: fields as unknown as Annotation }
    if (this.#texts.get(delta.item)?.holdAnnotation(redactedDelta) !== true) this.#deliver(redactedDelta)
    return true
  }

  #closeItem(delta: Closing): boolean {
    const { item, fields } = delta
    if (this.#withheld?.item === item) {
      if (!this.#deliverWithheld(this.#withheld, delta)) return false
      this.#queue.insert(this.#behindWithheld.splice(0))
      return true
    }
    const text = this.#texts.get(item)
    if (text !== undefined && !this.#finishText(text)) return false
    if (fields === null || isRunByProvider(this.#itemTypes.get(item) ?? '')) {
      this.#deliver(delta)
      return true
    }
    const redactedFields = this.#redact(fields)
    if (redactedFields === null) return false
    this.#deliver({ ...delta, fields: redactedFields })
    return true
  }

  /** Delivers the withheld item in its last form. */
  #deliverWithheld({ start, ...opening }: HostedOpening, closing: Closing | null): boolean {
    const { type, status } = start.item
    const fields = this.#redact({ ...start.item, ...closing?.fields })
    if (fields === null) return false
    this.#withheld = null
    const item = { ...fields, type, ...(status === undefined ? {} : { status }) }
    this.#deliver({ ...opening, start: { ...start, item } })
    if (closing !== null) this.#deliver({ ...closing, fields })
    return true
  }

  /** The fields, redacted; null if a scan has to finish first, and the delta must be processed again. */
  #redact(fields: ItemFields): ItemFields | null {
    const redactedFields = this.#redactedFields
    this.#redactedFields = null
    if (redactedFields !== null) return redactedFields
    const visibleFields = withoutLogprobs(fields)
    const texts = fieldTexts(visibleFields)
    if (texts.length === 0) return visibleFields
    const scanning = this.#scan.scanAll(texts, result => this.#report.isFinal(result))
    this.#queue.wait(scanning, scannedTexts => {
      if (scannedTexts.results.every(result => this.#allows(result)))
        this.#redactedFields = withFieldTexts(visibleFields, scannedTexts.texts)
    })
    return null
  }

  #takeText(queued: QueuedDelta, delta: TextDelta): boolean {
    let text = this.#texts.get(delta.item)
    if (text !== undefined && text.name !== textName(delta)) {
      if (!this.#finishText(text)) return false
      text = undefined
    }
    text ??= this.#beginText(delta)
    if (!queued.isAdded) {
      queued.isAdded = true
      text.add(delta)
    }
    return this.#scanText(text)
  }

  #beginText(first: TextDelta): ReplyText {
    const key = `${first.item} ${textName(first)}`
    const text = new ReplyText(
      this.#scan.begin(first.kind === 'text' ? this.#precedingText : ''),
      first,
      this.#begunTexts.has(key),
    )
    this.#begunTexts.add(key)
    this.#texts.set(first.item, text)
    return text
  }

  #finish(end: Extract<QueuedStep, { kind: 'end' }>): boolean {
    if (this.#withheld !== null) {
      if (!this.#deliverWithheld(this.#withheld, null)) return false
      this.#queue.insert([...this.#behindWithheld.splice(0), end])
      return true
    }
    for (const text of this.#texts.values()) if (!this.#finishText(text)) return false
    // Items of an answer without content are still sent.
    this.#deliverOpenings()
    this.#report.publish(this.#exchange)
    this.#isClosed = true
    end.done()
    return true
  }

  #finishText(text: ReplyText): boolean {
    text.scan.window.finish()
    if (!this.#scanText(text)) return false
    if (text.isAnswerText) this.#precedingText = text.scan.window.tail
    for (const delta of text.releaseRemaining()) this.#deliver(delta)
    this.#texts.delete(text.item)
    return true
  }

  /** Scans all windows that are full. */
  #scanText(text: ReplyText): boolean {
    const { scan } = text
    for (let window = scan.window.next(); window !== null; window = scan.window.next()) {
      const result = this.#scan.scan(scan, window)
      if (isPending(result)) {
        this.#queue.wait(result, scanResult => this.#release(text, window, scanResult))
        return false
      }
      this.#release(text, window, result)
      if (this.#isClosed) return false
    }
    return true
  }

  #release(text: ReplyText, window: Window, result: WindowResult): void {
    if (this.#isClosed || !this.#allows(result)) return
    for (const delta of text.release(window, result)) this.#deliver(delta)
  }

  /** Adds the result to the report. If it ends the reply, refuses the attempt and returns false. */
  #allows(result: WindowResult): boolean {
    const error = this.#report.add(result, this.#target.committed)
    if (error === null) return true
    this.#report.publish(this.#exchange)
    this.#stop()
    this.#attempt.refuse(error)
    return false
  }

  #stop(): void {
    this.#isClosed = true
    this.#queue.stop()
    this.#scan.abort()
  }

  #deliver(delta: Content): void {
    this.#deliverOpenings()
    this.#target.receive(delta)
  }

  #deliverOpenings(): void {
    for (const delta of this.#openings.splice(0)) this.#target.receive(delta)
  }
}

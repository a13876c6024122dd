/**
 * One request in the response cache: the terms on which it may use the cache, and, if it runs, the copy of its answer
 * for others. `response-cache.ts` decides which of them run. Serve threads.
 */
import { hash } from 'node:crypto'
import type { Clock } from '../base/clock.ts'
import { GatewayError } from '../base/errors.ts'
import type { Metrics } from '../base/metrics/metrics.ts'
import type { Candidate, ClientRequest, EndedExchange, Exchange, Finish } from '../exchange/exchange.ts'
import type { Change, Usage } from '../formats/format.ts'
import type { StreamEvent } from '../protocol/events.ts'
import type { OutputItem } from '../protocol/items.ts'
import { COMPACTS, type NotedRequest } from '../protocol/json/request-notes.ts'
import type { CachePolicy } from '../protocol/management/response-cache.ts'
import type { PipelineStage, ResponseResource } from '../protocol/response.ts'
import { framed } from '../storage/transcripts/frames.ts'
import type { TranscriptNotice, Transcripts, TranscriptWriter } from '../storage/transcripts/transcripts.ts'
import type { Answer, ItemEvent } from './answer/answer.ts'
import type { Sink } from './answer/sink.ts'
import type { PluginChain } from './plugin-chain.ts'

/** Ends after which the answer is whole. */
const COMPLETE_FINISHES: ReadonlySet<Finish['reason']> = new Set(['stop', 'tool_calls'])
/** Items that a model alone has made. A tool of the provider works for one request only. */
const KEPT_ITEMS: ReadonlySet<string> = new Set(['message', 'reasoning', 'function_call', 'custom_tool_call'])

export interface ResponseCacheDeps {
  readonly clock: Clock
  readonly metrics: Metrics
  /** Absent: nothing is cached. */
  readonly responseCache?: ResponseCacheParts
}

export interface ResponseCacheParts {
  readonly transcripts: Transcripts
  /** For keys and workspaces without a policy. */
  readonly policy: CachePolicy
  /** Bytes of all kept answers of one workspace. */
  readonly maxBytes: number
}

interface CacheTerms {
  readonly policy: CachePolicy
  readonly parts: ResponseCacheParts
  /** True: a kept answer is replaced. */
  readonly refreshes: boolean
}

/** The use that a request makes of the cache; null: none. */
export function openCacheUse(
  { responseCache: parts }: ResponseCacheDeps,
  call: ClientRequest,
): CacheUse | null {
  const { batch, cache: wish, caller, parent, request, witness } = call
  if (parts === undefined || batch !== undefined || parent !== undefined || witness !== undefined) return null
  const { enabled, seconds, scope } = caller.caching?.policy ?? parts.policy
  if (wish === undefined ? !enabled : wish.action === 'off') return null
  if (request.debug != null || (request as NotedRequest)[COMPACTS] !== undefined) return null
  const { data_collection: collection, zdr } = request.provider ?? {}
  if (zdr === true || collection === 'deny') return null
  const policy = {
    enabled: true,
    seconds: wish?.seconds ?? seconds,
    scope: enabled ? scope : ('key' as const),
  }
  return new CacheUse({ policy, parts, refreshes: wish?.action === 'refresh' })
}

/**
 * One frame of a kept answer. The first one is `begin`, except in an answer that failed before it began; the last one
 * is `end` or `failed`.
 */
export type KeptFrame =
  | {
      readonly begin: {
        readonly id: string
        readonly candidate: string
        readonly changes?: readonly Change[]
        /** Usage of the input, if the provider reported it before its first content. */
        readonly read?: ResponseResource['prompt_usage']
      }
    }
  | { readonly event: ItemEvent }
  /** Instead of events, if the first client saw none. */
  | { readonly item: OutputItem }
  | { readonly end: KeptEnd }
  | { readonly failed: KeptFailure }

export interface KeptEnd {
  /** Unix seconds. */
  readonly at: number
  readonly finish: Finish
  readonly usage: Usage
  /** Findings about the answer. */
  readonly pipeline: readonly PipelineStage[]
  /** Fields of plugins. */
  readonly fields?: Partial<ResponseResource>
  /** Set if the limits of its caller may have cut the answer. */
  readonly isLimited?: true
}

type KeptFailure = Pick<GatewayError, 'code' | 'message' | 'metadata' | 'retryAfterSeconds'>

/** An exchange whose answer others may get. */
type LeadingExchange = Exchange & {
  readonly answer: Pick<Answer, 'output' | 'sink'>
  readonly plugins: Pick<PluginChain, 'responseFields'> | null
}

/** The way of one request through the cache: it leads a run, or follows one. */
export class CacheUse {
  readonly terms: CacheTerms
  /** Fields of plugins in the answer that it got. */
  fields: Partial<ResponseResource> | undefined
  #sink: CopiedSink | null = null
  #writer: TranscriptWriter | null = null
  /** Number of pipeline stages before the answer. */
  #stagesBefore = 0
  #hasLeft = false
  /** False if nothing of the answer can be read any more. */
  #isReadable = true

  constructor(terms: CacheTerms) {
    this.terms = terms
  }

  /** Wraps the sink of the answer, so that its events can be copied. */
  around(sink: Sink): Sink {
    this.#sink = new CopiedSink(sink)
    return this.#sink
  }

  follow(exchange: Exchange, notice: TranscriptNotice): void {
    if (notice === 'read') {
      this.#sink?.flowFreely()
      return
    }
    this.#isReadable = false
    if (!this.#hasLeft) this.#sink?.flowAsRead()
    else this.#giveUp(exchange)
  }

  /** Begins the run of this request: other requests get its answer too. */
  lead(exchange: LeadingExchange, writer: TranscriptWriter): void {
    this.#writer = writer
    this.#stagesBefore = exchange.pipeline.length
    const add = (frame: KeptFrame): void => writer.add(framed(JSON.stringify(frame)), 1)
    this.#sink?.copyTo({
      begin: read => {
        const attempt = exchange.attempts.at(-1)
        if (attempt === undefined) return
        const { changes } = attempt
        add({
          begin: {
            id: exchange.id,
            candidate: referenceOf(attempt),
            ...(changes === undefined ? {} : { changes }),
            ...(read == null ? {} : { read }),
          },
        })
      },
      event: event => add({ event }),
      item: item => add({ item }),
    })
    if (exchange.answer.sink.outlivesClient !== true) return
    exchange.clientRequest.context.outlive?.(() => {
      this.#hasLeft = true
      writer.leave()
      if (this.#isReadable) this.#sink?.flowFreely()
      else this.#giveUp(exchange)
    })
  }

  /** Ends the run: its answer is kept, or delivered only to waiting requests, or dropped. */
  end(end: EndedExchange<LeadingExchange>, endedAt: number): void {
    const writer = this.#writer
    if (writer === null) return
    this.#writer = null
    const { error, exchange } = end
    const { answer, attempts, bill, finish, pipeline, plugins, reservation, signal } = exchange
    if (error === null && finish !== null && bill.total !== null) {
      const fields = plugins?.responseFields()
      const keptEnd: KeptEnd = {
        at: endedAt,
        finish,
        usage: bill.total.usage,
        pipeline: pipeline.slice(this.#stagesBefore),
        ...(fields === undefined ? {} : { fields }),
        ...(reservation?.allowance == null ? {} : { isLimited: true }),
      }
      writer.add(framed(JSON.stringify({ end: keptEnd })), 1)
      writer.end(
        COMPLETE_FINISHES.has(finish.reason) && answer.output.every(({ type }) => KEPT_ITEMS.has(type)),
      )
    } else if (error !== null && attempts.at(-1)?.error != null && !signal.aborted) {
      // A failure of its providers would be the same for everybody who waits.
      const { code, message, metadata, retryAfterSeconds } = error
      const failed = {
        code,
        message,
        ...(metadata === undefined ? {} : { metadata }),
        ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
      }
      writer.add(framed(JSON.stringify({ failed })), 1)
      writer.end(false)
    } else writer.forget()
  }

  #giveUp({ clientRequest }: Exchange): void {
    clientRequest.context.abort?.(
      new GatewayError('client_closed', 'The client disconnected, and nobody else waited for the answer'),
    )
  }
}

/** Receives the same events as a client. */
interface AnswerCopy {
  begin(read?: ResponseResource['prompt_usage']): void
  event(event: ItemEvent): void
  item(item: OutputItem): void
}

/** A sink whose events others get too. Its reader no longer sets the pace once others read. */
class CopiedSink implements Sink {
  readonly live: boolean
  /** Each event is written, because the copy needs it. */
  readonly relays = null
  readonly #sink: Sink
  #copy: AnswerCopy | null = null
  #isFree = false
  #isStalled = false
  #resume: (() => void) | null = null

  constructor(sink: Sink) {
    this.#sink = sink
    this.live = sink.live
  }

  get tellsOverflow(): boolean {
    return this.#sink.tellsOverflow === true
  }

  get outlivesClient(): boolean {
    return this.#sink.outlivesClient === true
  }

  copyTo(copy: AnswerCopy): void {
    this.#copy = copy
  }

  /** Lets the run continue without its own client, which may fall behind by the size of the buffer. */
  flowFreely(): void {
    this.#isFree = true
    if (!this.#isStalled) return
    this.#isStalled = false
    this.#resume?.()
  }

  flowAsRead(): void {
    this.#isFree = false
  }

  reportCompression(tokens: number): void {
    this.#sink.reportCompression?.(tokens)
  }

  reportChanges(changes: number): void {
    this.#sink.reportChanges?.(changes)
  }

  reportCached(ageSeconds: number): void {
    this.#sink.reportCached?.(ageSeconds)
  }

  unmask(masks: Parameters<NonNullable<Sink['unmask']>>[0]): void {
    this.#sink.unmask?.(masks)
  }

  write(event: StreamEvent): boolean {
    if (this.#copy !== null) this.#give(this.#copy, event)
    return this.#flows(this.#sink.write(event))
  }

  relay(): boolean {
    return true
  }

  cork(): void {
    this.#sink.cork()
  }

  flush(): boolean {
    return this.#flows(this.#sink.flush())
  }

  onDrain(resume: () => void): void {
    this.#resume = resume
    this.#sink.onDrain(() => {
      this.#isStalled = false
      resume()
    })
  }

  end(): void {
    this.#sink.end()
  }

  #flows(isFlowing: boolean): boolean {
    if (isFlowing || this.#isFree) return true
    this.#isStalled = true
    return false
  }

  #give(copy: AnswerCopy, event: StreamEvent): void {
    if (event.type === 'response.created') copy.begin(event.response.prompt_usage)
    else if ('output_index' in event) {
      const { sequence_number: _number, ...eventFields } = event
      // The id of its item belongs to this answer.
      const { item_id: _id, ...fields } = eventFields as typeof eventFields & { item_id?: string }
      copy.event(fields as ItemEvent)
    } else if (!this.live && (event.type === 'response.completed' || event.type === 'response.incomplete')) {
      copy.begin()
      for (const item of event.response.output) copy.item(item)
    }
  }
}

const ENDPOINT_REFERENCES = new WeakMap<object, string>()

/** Identifies an endpoint by its whole row, including prices and address, and by the key that is used there. */
export function referenceOf({ endpoint, credential }: Candidate): string {
  let reference = ENDPOINT_REFERENCES.get(endpoint)
  if (reference === undefined) {
    const json = JSON.stringify(endpoint, (_, value) => (value instanceof Set ? [...value] : value))
    reference = hash('sha256', json, 'base64url')
    ENDPOINT_REFERENCES.set(endpoint, reference)
  }
  return credential === null ? reference : `${reference} ${credential.id}`
}

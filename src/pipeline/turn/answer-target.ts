/**
 * The target of an attempt for an answer: starts the answer at the first content, intercepts server-tool calls, and
 * translates the client's calls back to the form that the client declared. One instance per attempt. Hot path.
 */
import type { Clock } from '../../base/clock.ts'
import type { AttemptRecord, Exchange } from '../../exchange/exchange.ts'
import type { Delta } from '../../formats/format.ts'
import type { WholeMessage } from '../../formats/whole-message.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import type { CompactedBy } from '../../protocol/json/request-notes.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { SEALED_BY, withMaker } from '../../protocol/sealed-content.ts'
import { inputOf } from '../accounting/charge.ts'
import type { Answer, Content } from '../answer/answer.ts'
import { type LearnFrame, Relay, type RelayDeps } from '../answer/relay.ts'
import type { Sink } from '../answer/sink.ts'
import { type SummarySeal, sealProviderSummary } from '../compaction.ts'
import type { RunningExchange } from '../exchange-stages.ts'
import type { PluginChain } from '../plugin-chain.ts'
import { makerOf } from '../routing/candidate.ts'
import { ClientCalls, type FittedRequest } from '../tool-calls/client-tools.ts'
import type { ToolCalls } from '../tool-calls/tool-calls.ts'
import type { AttemptTarget } from './attempt-target.ts'
import type { ReplyFigures } from './reply-reading.ts'

interface AnswerTargetDeps {
  readonly clock: Clock
  readonly exchange: Pick<
    RunningExchange,
    'request' | 'prompt' | 'caller' | 'dialect' | 'watch' | 'debug'
  > & {
    firstTokenMs: number | null
    readonly plugins?: Pick<PluginChain, 'removedTokens'> | null
  }
  /** Seals summaries that providers make; absent: they are sent unchanged. */
  readonly summaries?: SummarySeal | undefined
  readonly answer: Answer
  /** The outcome of the reply. */
  readonly figures: Pick<ReplyFigures, 'usage' | 'readMs'>
  readonly record: AttemptRecord
  /** Null: no server tool is declared. */
  readonly calls: ToolCalls | null
  /** The client's tools that are sent in another form; null if there are none. */
  readonly fitted: FittedRequest | null
  /** Learns which frames may be relayed; null if none may. */
  readonly learn: LearnFrame | null
}

export class AnswerTarget implements AttemptTarget {
  readonly sink: Pick<Sink, 'cork' | 'flush'> | null
  readonly #deps: AnswerTargetDeps
  readonly #answer: Answer
  readonly #calls: ToolCalls | null
  readonly #client: ClientCalls | null
  #hasContent = false
  /** Null until the reply contains something that may be sealed. */
  #seals: SealMarks | null = null
  /** Null until the reply contains a call. */
  #callIds: CallIds | null = null

  constructor(deps: AnswerTargetDeps) {
    const { answer, calls, fitted } = deps
    this.#deps = deps
    this.#answer = answer
    this.#calls = calls
    if (fitted !== null) calls?.useNames(fitted.names)
    this.#client = fitted === null ? null : new ClientCalls(fitted, delta => answer.receive(delta))
    // Nothing stands between the reads and the sink; if nobody sees events, nothing is sent during a read.
    this.sink = answer.live ? answer.sink : null
  }

  receive(content: Content): void {
    if (!this.#hasContent) this.#begin()
    let delta = content
    // A plain reply has neither closing fields nor items other than messages.
    if (
      content.kind === 'close'
        ? content.fields !== null
        : content.kind === 'open' && content.start.type !== 'message'
    )
      delta = this.#mark(content)
    if (this.#calls?.intercept(delta) !== true && this.#client?.collect(delta) !== true)
      this.#answer.receive(delta)
  }

  /**
   * Called only if the answer is not streamed, nothing else reads the reply, and no tool is a server tool or is sent in
   * another form.
   */
  message(message: WholeMessage): void {
    if (!this.#hasContent) this.#begin()
    this.#answer.message(message)
  }

  /** Ends the client's calls, and emits the opening events even if the model returned no content. */
  end(done: () => void): void {
    if (!this.#hasContent) this.#begin()
    this.#client?.end()
    done()
  }

  close(): void {
    // There is nothing to release.
  }

  relay({ parser, decode }: Pick<RelayDeps, 'parser' | 'decode'>): Relay | null {
    const { answer, learn } = this.#deps
    return learn === null ? null : new Relay({ parser, decode, answer, learn })
  }

  /** True once the client has seen something. */
  get committed(): boolean {
    return this.#answer.committed
  }

  /** Emits the calls that waited for server tools. */
  release(): void {
    for (const delta of this.#calls?.release() ?? []) {
      if (this.#client?.collect(delta) !== true) this.#answer.receive(delta)
    }
    this.#client?.end()
  }

  #mark(delta: Content): Content {
    const { record, exchange, summaries } = this.#deps
    this.#seals ??= new SealMarks(
      record,
      exchange,
      summaries === undefined ? null : summary => sealProviderSummary(summaries, exchange.caller, summary),
    )
    if (delta.kind === 'open') return this.#seals.open(this.#withToolName(delta)) as Content
    return delta.kind === 'close' ? (this.#seals.close(delta) as Content) : delta
  }

  /** The delta; if it opens a call, with an id that no other call has. */
  #withToolName(delta: Extract<Delta, { kind: 'open' }>): Extract<Delta, { kind: 'open' }> {
    const { start } = delta
    if ((start.type !== 'function_call' && start.type !== 'custom_tool_call') || start.callId === null)
      return delta
    this.#callIds ??= new CallIds(this.#deps.exchange.prompt.input)
    const callId = this.#callIds.unique(start.callId)
    return callId === start.callId ? delta : { ...delta, start: { ...start, callId } }
  }

  #begin(): void {
    const { clock, exchange, figures, record } = this.#deps
    const { request, watch } = exchange
    const answer = this.#answer
    const nowMs = figures.readMs || clock.monotonicMs()
    this.#hasContent = true
    record.health?.noteFirstContent(nowMs)
    watch.enter('stream', nowMs)
    if (request.debug != null) exchange.debug.note('first_token_received', clock, watch.startedMs)
    if (!answer.hasBegun) {
      exchange.firstTokenMs = nowMs
      const { removedTokens = 0 } = exchange.plugins ?? {}
      if (removedTokens > 0) answer.sink.reportCompression?.(removedTokens)
      if (record.changes !== undefined) answer.sink.reportChanges?.(record.changes.length)
      const { usage } = figures
      const { modelId, provider } = record.endpoint
      const facts = request.stream === true && request.debug != null ? exchange.debug.opening() : []
      answer.begin(modelId, provider.name, facts, usage === null ? null : inputOf(usage))
    }
    answer.showWaiting()
  }
}

/**
 * Ids of calls. Some servers number the calls of each reply anew, or give two calls one id; clients and other providers
 * tell results apart by nothing else. One instance per attempt.
 */
class CallIds {
  readonly #usedIds = new Set<string>()
  /** The next number for an id that came before. */
  readonly #next = new Map<string, number>()

  /** `input`: the conversation so far. */
  constructor(input: ResponsesRequest['input']) {
    if (typeof input === 'string') return
    for (const item of input) {
      const { call_id: id } = item as { readonly call_id?: unknown }
      if (typeof id === 'string') this.#usedIds.add(id)
    }
  }

  unique(id: string): string {
    let uniqueId = id
    let next = this.#next.get(id) ?? 2
    while (this.#usedIds.has(uniqueId)) uniqueId = `${id}_${next++}`
    if (uniqueId !== id) this.#next.set(id, next)
    this.#usedIds.add(uniqueId)
    return uniqueId
  }
}

/** Seals a provider's own summary. */
type SealSummary = (summary: CompactedBy & { readonly content: string }) => string

/** Labels encrypted provider content in a reply with the provider that can read it. One instance per attempt. */
class SealMarks {
  readonly #record: AttemptRecord
  /** True if the client may keep only the seal of a thought. */
  readonly #sealsThoughts: boolean
  readonly #thoughts = new Set<number>()
  /** Seals summaries that providers make; null: the client gets them in the form of its provider's API. */
  readonly #seal: SealSummary | null
  #summaryItem = -1

  constructor(
    record: AttemptRecord,
    { dialect, request: { include } }: Pick<Exchange, 'dialect' | 'request'>,
    seal: SealSummary | null,
  ) {
    this.#record = record
    this.#seal = DIALECT_ABILITIES[dialect].compacts ? seal : null
    this.#sealsThoughts =
      DIALECT_ABILITIES[dialect].thoughtsInSeals === true &&
      include?.includes('reasoning.encrypted_content') === true
  }

  open(delta: Extract<Delta, { kind: 'open' }>): Delta {
    const { start, item } = delta
    if (start.type === 'reasoning') this.#thoughts.add(item)
    if (start.type === 'hosted' && start.item.type === 'compaction' && this.#seal !== null) {
      this.#summaryItem = item
      return { ...delta, start: { ...start, item: { ...start.item, encrypted_content: '' } } }
    }
    if (start.type !== 'function_call' || start.extra === null) return delta
    const extra = withMaker(start.extra, makerOf(this.#record))
    return extra === start.extra ? delta : { ...delta, start: { ...start, extra } }
  }

  close(delta: Extract<Delta, { kind: 'close' }>): Delta {
    const { item, fields } = delta
    if (item === this.#summaryItem && fields !== null) return this.#sealSummary(delta, fields)
    if (fields === null || !this.#thoughts.has(item)) return delta
    const maker = makerOf(this.#record)
    const { signature, encrypted_content: encrypted } = fields
    const mustSeal =
      this.#sealsThoughts && typeof signature === 'string' && signature !== '' && encrypted == null
    const sealedFields = withMaker(fields, maker)
    return {
      ...delta,
      fields: mustSeal ? { ...sealedFields, [SEALED_BY]: { maker, signature } } : sealedFields,
    }
  }

  /** Seals a provider's own summary, so that only the workspace can send it and only the provider can read it. */
  #sealSummary(
    delta: Extract<Delta, { kind: 'close' }>,
    { native: _, ...fields }: Readonly<Record<string, unknown>>,
  ): Delta {
    const { encrypted_content: content } = fields
    if (this.#seal === null || typeof content !== 'string' || content === '') return { ...delta, fields }
    const provider = this.#record.endpoint.provider.name
    const summary = { maker: makerOf(this.#record), provider, content }
    return { ...delta, fields: { ...fields, encrypted_content: this.#seal(summary) } }
  }
}

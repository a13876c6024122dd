/**
 * Shadows: a part of a route's requests is also sent to the candidate of its rollout, once the caller has the answer.
 * Nobody sees a shadow's answer, and no caller pays for it: it runs at the service's own expense, under the budget of
 * the rollout. It may go only where the caller's own requests may go, with the prompt as guardrails have left it, and
 * it runs no tools. Shadows wait for nothing: those that cannot begin at once are dropped.
 */
import { randomUUID } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { ShadowOutcome } from '../../base/metrics/table.ts'
import type { EndedExchange, Exchange } from '../../exchange/exchange.ts'
import type { OutputItem } from '../../protocol/items.ts'
import { isPlain } from '../../protocol/json/plain-request.ts'
import type { DialectName, ResponsesRequest } from '../../protocol/request.ts'
import type { EndedRollout, RolloutFigures, ShadowTerms } from '../../protocol/rollout.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { ShadowedRollout } from '../../storage/rollouts.ts'
import type { UsageRecord } from '../../storage/usage.ts'
import { type Ledger, usageRecord } from '../accounting/account.ts'
import type { RunningExchange, ShadowSender } from '../exchange-stages.ts'
import { type AskApart, forHelpers } from '../inner-call.ts'
import type { Restrictions } from '../routing/restrictions.ts'
import { askJudge, type Pair, readVerdict } from './judge.ts'
import { type Purse, Purses, type PursesDeps } from './purse.ts'

/** Shadows of one thread at once, and the bytes that the request of each may hold. */
const MAX_CONCURRENT_SHADOWS = 8
const MAX_REQUEST_BYTES = 1024 * 1024
/** Time that a stop waits until the cost of its last shadows is stored. */
const CLOSE_MS = 1_000

interface ShadowsDeps extends PursesDeps {
  readonly ask: AskApart
  readonly ledger: Pick<Ledger, 'append'>
  readonly catalog: Pick<Catalog, 'model'>
  readonly metrics: Pick<Metrics, 'shadows'>
  readonly clock: Clock
  /** The time limit of requests. */
  readonly requestMs: number
  /** The model that judges answers, and the workspaces whose answers it may not see; null: answers are not judged. */
  readonly judge: {
    readonly model: string
    readonly timeoutMs: number
    readonly notFor: readonly string[]
  } | null
  /** 0 (inclusive) to 1 (exclusive). */
  readonly draw: () => number
}

/** The parts of an exchange that its shadow needs. */
interface ShadowSource {
  readonly shadowedRollout: ShadowedRollout & { readonly step: number }
  readonly terms: ShadowTerms
  readonly parent: Pick<Exchange, 'id' | 'dataRegion'>
  readonly dialect: DialectName
  readonly request: ResponsesRequest
  readonly restrictions: Restrictions | null
  readonly figures: RolloutFigures & { readonly failed: boolean }
  /** The answer, if it is compared with that of the shadow; null: it is not. */
  readonly output: readonly OutputItem[] | null
}

export class Shadows implements ShadowSender {
  readonly #deps: ShadowsDeps
  readonly #purses: Purses
  readonly #running = new Set<Promise<void>>()
  readonly #ending = new AbortController()
  /** Called before each shadow: true if there is no room for one. */
  isBusy: () => boolean = () => false
  #isStopped = false

  constructor(deps: ShadowsDeps) {
    this.#deps = deps
    this.#purses = new Purses(deps)
  }

  /** Call it when an exchange that is to be shadowed is over, and its caller has the end of the answer. */
  after(end: EndedExchange<RunningExchange>): void {
    if (this.#isStopped || end.exchange.parent !== undefined) return
    const isLarge = end.exchange.held.bytes > MAX_REQUEST_BYTES
    if (isLarge || this.#running.size >= MAX_CONCURRENT_SHADOWS || this.isBusy()) {
      this.#count(isLarge ? 'unfit' : 'dropped')
      return
    }
    const shadowRun = this.#begin(end)
      .catch((error: unknown) => {
        this.#deps.log.fault('rollouts', 'a shadow could not be sent', error)
        this.#count('dropped')
      })
      .finally(() => this.#running.delete(shadowRun))
    this.#running.add(shadowRun)
  }

  /** Lets no more shadows begin; those under way go on. */
  stop(): void {
    this.#isStopped = true
  }

  /** Ends the shadows under way, and waits at most CLOSE_MS until their cost is stored. Never rejects. */
  async close(): Promise<void> {
    this.stop()
    this.#ending.abort(new GatewayError('service_unavailable', 'The gateway stops'))
    const { promise: late, resolve } = Promise.withResolvers<void>()
    const timer = this.#deps.clock.after(CLOSE_MS, resolve)
    await Promise.race([Promise.all(this.#running), late])
    timer.cancel()
  }

  #count(outcome: ShadowOutcome): void {
    this.#deps.metrics.shadows.of(outcome).inc()
  }

  /** Null: the request says nothing about its model, or its rollout is over. */
  #sourceOf(end: EndedExchange<RunningExchange>): ShadowSource | 'unfit' | null {
    const { exchange } = end
    const record = usageRecord(end)
    const { rollout, requestedModel: route } = record
    if (rollout?.arm !== 'base' || route === undefined) return null
    const terms = this.#deps.catalog.model(route)?.route?.rollout?.shadow ?? null
    if (terms === null) return null
    if (record.isByok || !isFit(exchange)) return 'unfit'
    const { candidate, step, failed } = rollout
    return {
      shadowedRollout: { route, candidate, step },
      terms,
      parent: { id: exchange.id, dataRegion: exchange.dataRegion },
      dialect: exchange.dialect,
      request: requestOf(exchange.prompt, route, candidate),
      restrictions: exchange.guarding?.restrictions ?? null,
      figures: { ...figuresOf(record), failed },
      output: !failed && this.#mayBeJudged(exchange) ? exchange.answer.output : null,
    }
  }

  /** True if the answer may be shown to the judge, which is another provider's model. */
  #mayBeJudged({
    rollout,
    caller,
    dataRegion,
    guarding,
    masks,
    request,
    zeroRetention,
  }: RunningExchange): boolean {
    const { judge } = this.#deps
    if (rollout?.shadow !== 'answers' || judge === null) return false
    if (masks !== null || guarding?.reply != null || dataRegion !== null) return false
    if (zeroRetention || request.provider?.zdr === true) return false
    return caller.workspaceId === null || !judge.notFor.includes(caller.workspaceId)
  }

  async #begin(end: EndedExchange<RunningExchange>): Promise<void> {
    // The caller's answer goes out first.
    await new Promise(resolve => setImmediate(resolve))
    const source = this.#isStopped ? null : this.#sourceOf(end)
    if (source === 'unfit') this.#count('unfit')
    else if (source !== null) await this.#run(source)
  }

  async #run(source: ShadowSource): Promise<void> {
    const { shadowedRollout, dialect, request, figures, output } = source
    const purse = this.#purses.open(shadowedRollout, source.terms.budget, 1)
    const { record, response } = await this.#ask(request, dialect, source, purse)
    if (record === null) return this.#count(purse.isRefused ? 'over_budget' : 'unfit')
    const failed = record.outcome === 'failed'
    const { candidate, step } = shadowedRollout
    this.#keep(
      record,
      shadowedRollout,
      { candidate, step, arm: 'shadow', failed, shadowed: figures },
      purse.waitedMs,
    )
    this.#count(failed ? 'failed' : 'answered')
    if (response === null || output === null || this.#isStopped) return
    await this.#judge({ request, shadowed: output, shadow: response.output }, source)
  }

  async #judge(pair: Pair, source: ShadowSource): Promise<void> {
    const { judge, draw } = this.#deps
    if (judge === null) return
    const terms = { model: judge.model, word: randomUUID(), isShadowFirst: draw() < 0.5 }
    const question = askJudge(pair, terms)
    if (question === null) return this.#count('unjudged')
    const { shadowedRollout, restrictions } = source
    const purse = this.#purses.open(shadowedRollout, source.terms.budget, 0)
    const { record, response } = await this.#ask(
      question,
      'responses',
      { ...source, restrictions: restrictions === null ? null : forHelpers(restrictions) },
      purse,
      judge.timeoutMs,
    )
    const accepted = response?.status === 'completed' ? readVerdict(response.output, terms) : null
    const { candidate, step } = shadowedRollout
    if (record !== null)
      this.#keep(
        record,
        shadowedRollout,
        accepted === null ? undefined : { candidate, step, arm: 'judged', accepted },
      )
    this.#count(accepted === null ? 'unjudged' : 'judged')
  }

  async #ask(
    request: ResponsesRequest,
    dialect: DialectName,
    { parent, restrictions }: Pick<ShadowSource, 'parent' | 'restrictions'>,
    purse: Purse,
    deadlineMs = this.#deps.requestMs,
  ) {
    const { signal } = this.#ending
    const terms = { parent, dialect, quota: purse, restrictions, signal, deadlineMs }
    const reply = await this.#deps.ask(request, terms)
    await purse.whenSettled
    return reply
  }

  /** Writes the usage record. A call that the stop of the gateway cut off does not count for its rollout. */
  #keep(
    record: UsageRecord,
    { route }: ShadowedRollout,
    rollout: EndedRollout | undefined,
    waitedMs = 0,
  ): void {
    const rolloutField = rollout === undefined || this.#ending.signal.aborted ? {} : { rollout }
    const latencyMs = record.latencyMs - waitedMs
    this.#deps.ledger.append({ ...record, latencyMs, requestedModel: route, ...rolloutField })
  }
}

/** Fields that name the caller's session and end user, who have nothing to do with the shadow. */
const PERSONAL_FIELDS = [
  'user',
  'safety_identifier',
  'session_id',
  'prompt_cache_key',
  'metadata',
  'trace',
] as const
/** Fields, besides those of plain requests, that cause no work except the model's. */
const HARMLESS_FIELDS = [
  'provider',
  'service_tier',
  'text',
  'tools',
  'tool_choice',
  'parallel_tool_calls',
] as const

/**
 * True if one call of another model repeats the request: it has texts, and functions that the client runs. Tools of the
 * gateway and of providers have effects, files belong to the caller, and plugins and caches change what is compared.
 */
function isFit({ plugins, prompt, tools }: RunningExchange): boolean {
  if (plugins !== null || tools !== null) return false
  if (prompt.tools?.some(({ type }) => type !== 'function' && type !== 'custom') === true) return false
  return isPlain(without(prompt, HARMLESS_FIELDS))
}

/** The request to the candidate, with the variants in the name of the route. Its provider must not store it. */
function requestOf(prompt: ResponsesRequest, route: string, candidate: string): ResponsesRequest {
  const wishes = prompt.model?.startsWith(route) === true ? prompt.model.slice(route.length) : ''
  return { ...without(prompt, PERSONAL_FIELDS), model: `${candidate}${wishes}`, store: false }
}

function without(request: ResponsesRequest, fields: readonly (keyof ResponsesRequest)[]): ResponsesRequest {
  const copy = { ...request }
  for (const field of fields) delete copy[field]
  return copy
}

function figuresOf({ latencyMs, generationMs, outputTokens, cost }: UsageRecord): RolloutFigures {
  return { latencyMs, generationMs, outputTokens, cost }
}

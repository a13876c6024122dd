/** Runs the server-tool calls of one exchange in parallel, each with its deadline, fee, item and guardrails. */
import type { Clock } from '../../base/clock.ts'
import { GatewayError, overloadError } from '../../base/errors.ts'
import { itemId } from '../../base/ids.ts'
import { type Json, parseJson, record } from '../../base/json.ts'
import type { Log } from '../../base/log/log.ts'
import { isPending } from '../../base/maybe-promise.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { PicoUsd } from '../../base/money.ts'
import { abortSignalOf, type RequestSignal } from '../../base/signal.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import { noteToolCall } from '../../exchange/reasons.ts'
import type {
  ServerTool,
  ToolCall,
  ToolDisplay,
  ToolOutcome,
  ToolProgress,
  ToolSession,
} from '../../exchange/server-tool.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import type { InputItem, OutputItem } from '../../protocol/items.ts'
import type { PipelineStage } from '../../protocol/response.ts'
import type { Answer } from '../answer/answer.ts'
import type { Guarding } from '../guard/guard.ts'
import { callItem, type DeclaredFunction, type PendingCall, type ToolBudget } from './tool-calls.ts'

export interface ToolRunDeps {
  readonly clock: Clock
  readonly log: Log
  readonly metrics: Metrics
}

/** The exchange as server tools need it. */
export interface ToolExchange extends Exchange {
  readonly answer: Answer
  readonly guarding: Guarding | null
}

/** Time limit of one call, unless the tool sets its own. */
const DEFAULT_RUN_TIMEOUT_MS = 60_000
/** Calls of one turn that run concurrently. */
const MAX_PARALLEL_CALLS = 8
/** The text that the model gets for a call that does not run. */
export const BUDGET_SPENT = 'This request has reached its limit of tool calls'
/** Characters of an unknown name that are shown to the model. */
const SHOWN_NAME_MAX_CHARS = 64
/** Characters of a result that the model gets. */
const RESULT_MAX_CHARS = 200_000

export interface OpenTool {
  readonly server: ServerTool
  readonly session: ToolSession
}

export class ToolRunner {
  readonly budget: ToolBudget
  readonly #deps: ToolRunDeps
  /** Stage of the answer's metadata; null until a call has run. */
  #stage: (PipelineStage & { data: { mode: 'sdk'; tools: string[] } }) | null = null

  constructor(deps: ToolRunDeps, budget: ToolBudget) {
    this.#deps = deps
    this.budget = budget
  }

  /**
   * Runs the calls of a turn, several at a time, and shows each as an item of the answer. Resolves with the items for
   * the model: each call and its result. Rejects with the reason of the signal, or of the guardrail that refuses a
   * result; calls still running then have no further effect.
   */
  async run(calls: readonly PendingCall[], exchange: ToolExchange): Promise<ToolRun> {
    const outcomes: (string | null)[] = calls.map(() => null)
    const shownItems: OutputItem[] = []
    let endsTurn = false
    let hasFailed = false
    const isOver = (): boolean => hasFailed || exchange.signal.aborted
    const work = calls.map((call, index) => ({ call, index }))
    const worker = async (): Promise<void> => {
      for (let next = work.shift(); next !== undefined && !isOver(); next = work.shift()) {
        const outcome = await this.#runCall(next.call, exchange, isOver, shownItems)
        if (outcome === null) return
        outcomes[next.index] = await this.resultForModel(exchange, outcome.result)
        endsTurn ||= outcome.next === 'end-turn'
      }
    }
    const workers = Array.from({ length: Math.min(MAX_PARALLEL_CALLS, calls.length) }, worker)
    try {
      await untilAborted(exchange.signal, Promise.all(workers))
    } catch (thrown) {
      hasFailed = true
      throw thrown
    }
    const items = calls.map(callItem) as InputItem[]
    const results = calls.map(
      ({ callId }, index) =>
        ({ type: 'function_call_output', call_id: callId, output: outcomes[index] ?? '' }) as InputItem,
    )
    return { items: [...items, ...results], shownItems, endsTurn }
  }

  /** The result for the model: truncated, counted with the request, and checked by guardrails. */
  async resultForModel(exchange: ToolExchange, fullResult: string): Promise<string> {
    const result = cutResult(fullResult)
    holdResult(exchange, result)
    const guard = exchange.guarding?.input ?? null
    return guard === null ? result : await guard.text(exchange, result)
  }

  /** Null if the exchange ended before the call did. */
  async #runCall(
    pending: PendingCall,
    exchange: ToolExchange,
    isOver: () => boolean,
    items: OutputItem[],
  ): Promise<ToolOutcome | null> {
    const { answer, bill } = exchange
    const { declaration } = pending
    if (declaration === null) return this.#refuseUnknown(pending, exchange)
    const { tool, session, server, name } = declaration
    const { metrics, clock } = this.#deps
    const args = argumentsOf(pending.arguments.toString())
    const call: ToolCall = { callId: pending.callId, name, arguments: args ?? {}, tool }
    // A malformed call counts too: otherwise a model that repeats it would never stop. A call that does not run is
    // reported only to the model: its item would come back as a call that has a result.
    if (!this.budget.takeCall() || args === null) {
      bill.addToolCall(false)
      metrics.serverToolCalls.inc({ tool: server.name, outcome: args === null ? 'malformed' : 'over_budget' })
      return failureOutcome(args === null ? 'The arguments are not a JSON object' : BUDGET_SPENT)
    }
    const fee = session.fee?.(call) ?? 0
    if (fee > 0 && !(await canOwe(exchange, fee))) {
      bill.addToolCall(false)
      metrics.serverToolCalls.inc({ tool: server.name, outcome: 'over_budget' })
      return failureOutcome('This call would exceed a spending limit of this API key')
    }
    if (isOver()) return null
    if (session.leaves?.(call) === true) return this.#leave(pending, declaration, call, exchange)
    answer.hold()
    const item = answer.addItem({ type: tool.type, status: 'in_progress', ...session.firstForm(call) })
    answer.flush()
    const startedMs = clock.monotonicMs()
    const outcome = await this.outcome({ server, session }, call, exchange, ({ name, fields }) => {
      if (!isOver()) item.progress(name, fields)
    })
    this.noteOutcome(exchange, server.name, outcome, startedMs)
    if (isOver()) return null
    bill.dropFee(fee)
    bill.addToolCall(true, outcome.cost ?? 0, outcome.searches)
    if (outcome.item['status'] === 'in_progress') {
      answer.leaveItem(item)
      return outcome
    }
    answer.hold()
    const endedItem = answer.endItem(
      item,
      { status: outcome.ran === true ? 'completed' : 'incomplete', ...outcome.item },
      'completed',
    )
    if (server.asksModels === true) items.push(endedItem)
    answer.flush()
    return outcome
  }

  /** Handles an undeclared name: the model gets an error, and the call counts. */
  #refuseUnknown({ start }: PendingCall, { bill }: ToolExchange): ToolOutcome {
    bill.addToolCall(false)
    const isWithinBudget = this.budget.takeCall()
    this.#deps.metrics.serverToolCalls.inc({
      tool: 'unknown',
      outcome: isWithinBudget ? 'malformed' : 'over_budget',
    })
    return failureOutcome(
      isWithinBudget ? `There is no tool named ${start.name.slice(0, SHOWN_NAME_MAX_CHARS)}` : BUDGET_SPENT,
    )
  }

  /**
   * Leaves a call to the client: as an item that stays open or, if the dialect has none, as a function call by the name
   * that the model knows. The gateway has not run it.
   */
  async #leave(
    { callId, start, arguments: callArguments }: PendingCall,
    { tool, session, server }: DeclaredFunction,
    call: ToolCall,
    exchange: ToolExchange,
  ): Promise<ToolOutcome> {
    const { answer, bill, dialect } = exchange
    bill.addToolCall(false)
    this.#deps.metrics.serverToolCalls.inc({ tool: server.name, outcome: 'left' })
    answer.hold()
    if (DIALECT_ABILITIES[dialect].openItems) {
      const firstForm = { type: tool.type, ...session.firstForm(call) }
      const item = answer.addItem({ ...firstForm, status: 'in_progress' })
      const progress: ToolProgress = ({ name, fields }) => item.progress(name, fields)
      const outcome = await session.run(call, progress, abortSignalOf(exchange.signal))
      answer.endItem(item, { ...outcome.item, status: 'in_progress' }, 'in_progress')
    } else {
      const text = callArguments.length === 0 ? '{}' : callArguments.toString()
      const id = start.id ?? itemId('fc')
      const item = { type: 'function_call', id, call_id: callId, name: start.name, status: 'completed' }
      showCall(answer, { ...item, arguments: text }, text)
    }
    answer.flush()
    return { item: {}, result: '', next: 'end-turn' }
  }

  noteOutcome(
    exchange: ToolExchange,
    tool: string,
    { ran, item, cost }: RanOutcome,
    startedMs: number,
  ): void {
    const { metrics, clock } = this.#deps
    const endedMs = clock.monotonicMs()
    metrics.serverToolSeconds.of(tool).observe((endedMs - startedMs) / 1000)
    const isFailed = item['error'] != null || item['status'] === 'failed' || item['status'] === 'incomplete'
    const outcome = ran === true ? (isFailed ? 'refused' : 'completed') : ran
    metrics.serverToolCalls.of(tool, outcome).inc()
    noteToolCall(exchange, { tool, startedMs, endedMs, outcome, cost: cost ?? 0 })
    if (this.#stage === null) {
      this.#stage = { type: 'server_tools', name: 'server-tools', data: { mode: 'sdk', tools: [] } }
      exchange.pipeline.push(this.#stage)
    }
    const { tools } = this.#stage.data
    if (!tools.includes(tool)) tools.push(tool)
  }

  async outcome(
    { server, session }: OpenTool,
    call: ToolCall,
    exchange: ToolExchange,
    progress: ToolProgress,
  ): Promise<RanOutcome> {
    const ending = new AbortController()
    const signal = AbortSignal.any([abortSignalOf(exchange.signal), ending.signal])
    const { spans } = exchange
    const { clock } = this.#deps
    const span = spans?.tool(server.name, call.name, call.callId, signal, clock.monotonicMs())
    let cost: PicoUsd = 0
    let label = 'failed'
    try {
      const outcomeOrPromise = session.run(call, progress, signal)
      const outcome = isPending(outcomeOrPromise)
        ? await this.#withTimeout(outcomeOrPromise, ending, server)
        : outcomeOrPromise
      cost = outcome.cost ?? 0
      label = 'completed'
      return { ...outcome, ran: true }
    } catch (thrown) {
      exchange.signal.throwIfAborted()
      if (thrown instanceof ToolTimeout) return failureOutcome('The tool took too long', 'timeout')
      this.#deps.log.fault('gateway', 'server tool failed', thrown)
      return failureOutcome('The tool failed', 'failed')
    } finally {
      if (span !== undefined) spans?.toolEnded(span, signal, label, cost, clock.monotonicMs())
    }
  }

  #withTimeout<T>(
    work: Promise<T>,
    ending: AbortController,
    { runMs = DEFAULT_RUN_TIMEOUT_MS }: ServerTool,
  ): Promise<T> {
    const late = Promise.withResolvers<never>()
    const timer = this.#deps.clock.after(runMs, () => {
      const timeout = new ToolTimeout()
      late.reject(timeout)
      ending.abort(timeout)
    })
    return Promise.race([work, late.promise]).finally(() => timer.cancel())
  }
}

/** Adds the fee of a call to the bill. False, with the bill unchanged, if the caller's limits do not allow the fee. */
async function canOwe({ bill, reservation, attempts }: ToolExchange, fee: PicoUsd): Promise<boolean> {
  bill.holdFee(fee)
  const isOwn = attempts.at(-1)?.isByok === true
  const allowance = reservation?.allowance ?? null
  if (allowance === null) return true
  // Tools are never paid for by a BYOK credential, so limits that leave out such credentials count the fees too.
  if (
    (await allowance.cover(bill.closedCost, isOwn)) &&
    (!isOwn || (await allowance.cover(bill.tools.cost, false)))
  )
    return true
  bill.dropFee(fee)
  return false
}

/** Shows one of our function calls to the client, which has to answer it. */
export function showCall(
  answer: Answer,
  item: Parameters<ToolDisplay['item']>[0],
  callArguments: string,
): void {
  const builder = answer.addItem({ ...item, status: 'in_progress', arguments: '' })
  builder.progress('function_call_arguments.delta', { delta: callArguments })
  builder.progress('function_call_arguments.done', { name: item['name'], arguments: callArguments })
  answer.endItem(builder, item, 'completed')
}

/** The result of running the calls of a turn. */
export interface ToolRun {
  /** For the prompt of the next turn. */
  readonly items: readonly InputItem[]
  /** Items with the output of other models. */
  readonly shownItems: readonly OutputItem[]
  /** True if a tool leaves the next step to the client. */
  readonly endsTurn: boolean
}

/** The deadline of a tool. It also ends the model calls of the tool, with the error of any other deadline. */
class ToolTimeout extends GatewayError {
  constructor() {
    super('deadline_exceeded', 'The tool took too long')
  }
}

/** `ran`: true if the tool returned an outcome; otherwise how the call failed (`none`: the tool was not run). */
type RanOutcome = ToolOutcome & { readonly ran: true | 'timeout' | 'failed' | 'none' }

function failureOutcome(message: string, ran: RanOutcome['ran'] = 'none'): RanOutcome {
  return { item: {}, result: JSON.stringify({ error: message }), ran }
}

/** Null if it is not a JSON object. A call without arguments has an empty one. */
function argumentsOf(text: string): Json | null {
  if (text.trim() === '') return {}
  return record(parseJson(text))
}

function cutResult(result: string): string {
  if (result.length <= RESULT_MAX_CHARS) return result
  return `${result.slice(0, RESULT_MAX_CHARS).toWellFormed()}\n[The result was cut after ${RESULT_MAX_CHARS} characters]`
}

/** Counts a result with the request, in the prompt and in its item. @throws GatewayError `overloaded` */
function holdResult({ held }: Pick<Exchange, 'held'>, result: string): void {
  const isLatin = Buffer.byteLength(result) === result.length
  if (!held.count(2 * result.length * (isLatin ? 1 : 2))) throw overloadError()
}

/** Rejects with the reason of the signal as soon as it fires, even if work is still running. */
function untilAborted<T>(signal: RequestSignal, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason as GatewayError)
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}

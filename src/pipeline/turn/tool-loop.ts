/** The turns of one answer: calls the model, lets plugins judge the reply, runs server tools, and calls again. */
import type { Clock } from '../../base/clock.ts'
import { GatewayError, INTERNAL_MESSAGE } from '../../base/errors.ts'
import type { InputItem, OutputItem } from '../../protocol/items.ts'
import { textFormat } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { unpaidError } from '../accounting/allowance.ts'
import type { RunningExchange } from '../exchange-stages.ts'
import { type PluginChain, pluginFailure } from '../plugin-chain.ts'
import type { Prefixes } from '../routing/prompt-cache-prefix.ts'
import type { ServerTools } from '../tool-calls/server-tools.ts'
import { callItem, type DeclaredFunction, toolEndpointOf } from '../tool-calls/tool-calls.ts'
import { askModel, type TurnDeps, type TurnReply } from './turn.ts'

export type TurnsDeps = TurnDeps & {
  readonly clock: Clock
  /** Absent: nothing of conversations is remembered. */
  readonly prefixes?: Pick<Prefixes, 'of'>
}

/** Thrown if a plugin refused the turn: the error is sent to the client in the stream, if the client reads one. */
export class RefusedTurn {
  readonly error: GatewayError

  constructor(error: GatewayError) {
    this.error = error
  }
}

/** Runs the turns of an exchange. Rejects with a GatewayError, or with RefusedTurn. */
export function runTurns(deps: TurnsDeps, exchange: RunningExchange): Promise<void> {
  const { input, prompt_cache_key, session_id } = exchange.request
  // A single question belongs to no conversation: it has no name, and nothing came before it.
  if (session_id !== undefined || prompt_cache_key != null || (typeof input !== 'string' && input.length > 1))
    exchange.prefix = deps.prefixes?.of(exchange) ?? null
  if (exchange.rollout?.shadow === 'answers') exchange.answer.isRead = true
  if (exchange.masks !== null) exchange.answer.sink.unmask?.(exchange.masks)
  if (exchange.tools !== null || exchange.plugins !== null) return runTurnLoop(deps, exchange)
  // For one turn, a callback: it needs less memory than an async function that waits as long as the stream is open.
  return askModel(deps, exchange, null, reply => {
    if (reply === null) endUnpaid(exchange)
    exchange.watch.enter('flush', reply === null ? deps.clock.monotonicMs() : reply.attempt.endedMs)
  })
}

async function runTurnLoop(deps: TurnsDeps, exchange: RunningExchange): Promise<void> {
  const { answer, bill, tools } = exchange
  if (tools !== null) await runDue(deps, exchange, tools)
  if (tools !== null && (await resumeTools(deps, exchange, tools))) return
  // Output of other models that the client got since the last turn is judged with the next one.
  let inserted: readonly OutputItem[] = []
  // If a model calls a tool although it may not, its call is ignored.
  for (let isLastTurn = exchange.request.tool_choice === 'none'; ; ) {
    const reply = await askModel(
      deps,
      exchange,
      tools === null ? null : endpoint => tools.declare(exchange, endpoint, isLastTurn),
      turnReply => turnReply,
    )
    if (reply === null) {
      endUnpaid(exchange)
      break
    }
    const pendingCalls = reply.calls?.pending ?? []
    const nextTurn =
      exchange.plugins === null ? null : await judge(deps, exchange, exchange.plugins, reply, inserted)
    if (nextTurn !== null) {
      answer.dropTurn()
      bill.closeTurn()
      exchange.prompt = nextTurn
      continue
    }
    if (tools === null || pendingCalls.length === 0 || isLastTurn || reply.isCut) {
      reply.release()
      break
    }
    const output = answer.closeTurn(reply.finish.reason)
    bill.closeTurn()
    exchange.watch.enter('tools', deps.clock.monotonicMs())
    if (pendingCalls.some(({ declaration }) => declaration?.server.asksModels === true))
      releaseRemaining(exchange)
    const toolRun = await tools.run(pendingCalls, exchange)
    inserted = toolRun.shownItems
    exchange.turn = null
    const heldOutput = releaseHeld(exchange, reply)
    if (toolRun.endsTurn || output.some(isClientCall) || heldOutput.length > 0) break
    exchange.prompt = extendPrompt(exchange.prompt, [...output, ...toolRun.items] as InputItem[])
    const calledNames = pendingCalls.flatMap(({ declaration, start }) => [
      start.name,
      ...spellingsOf(declaration),
    ])
    isLastTurn = tools.budget.isSpent({ bill, finish: reply.finish, calledNames })
  }
  exchange.watch.enter('flush', deps.clock.monotonicMs())
}

function spellingsOf(declaration: DeclaredFunction | null): readonly string[] {
  if (declaration === null) return []
  const { name } = declaration.server
  return [name, `gateway:${name}`, `openrouter:${name}`]
}

/** Emits the client's calls that waited for server tools, at the places that the model gave them. */
function releaseHeld(
  { answer }: RunningExchange,
  { calls, finish, release }: TurnReply,
): readonly OutputItem[] {
  if (calls?.hasHeld !== true) return []
  answer.openTurn(false)
  answer.hold()
  release()
  const output = answer.closeTurn(finish.reason)
  answer.flush()
  return output
}

/** Runs the calls that an earlier answer asked for, and gives the results to the model. */
async function runDue(deps: TurnsDeps, exchange: RunningExchange, tools: ServerTools): Promise<void> {
  const [first] = exchange.candidates
  if (first === undefined) return
  const items = await tools.runDue(
    exchange,
    toolEndpointOf(first.endpoint, deps.formats[textFormat(first.endpoint)]),
  )
  if (items.length > 0) exchange.prompt = extendPrompt(exchange.prompt, items)
}

/** Resumes work that an earlier answer left open. True if the client has to act again, so the answer ends here. */
async function resumeTools(
  { clock }: TurnsDeps,
  exchange: RunningExchange,
  tools: ServerTools,
): Promise<boolean> {
  const calls = tools.resumed
  if (calls.length === 0) return false
  const { answer, candidates } = exchange
  const endpoint = candidates[0]?.endpoint
  answer.openTurn(false)
  answer.begin(endpoint?.modelId ?? '', endpoint?.provider.name ?? null, [])
  exchange.watch.enter('tools', clock.monotonicMs())
  releaseRemaining(exchange)
  const toolRun = await tools.run(calls, exchange)
  exchange.prompt = extendPrompt(exchange.prompt, toolRun.items)
  if (!toolRun.endsTurn) return false
  exchange.finish = { reason: 'tool_calls', native: null, serviceTier: null }
  exchange.watch.enter('flush', clock.monotonicMs())
  return true
}

/** Releases the part of the reservation that is for later turns, so that tools' model calls find room in the limits. */
function releaseRemaining({ attempts, bill, reservation }: RunningExchange): void {
  const isByok = attempts.at(-1)?.isByok === true
  const fees = isByok ? bill.tools.cost : 0
  reservation?.release?.({ cost: bill.closedCost - fees, isByok, fees, tokens: bill.tokens })
}

/**
 * Ends an answer for which the caller's limits allow no further call, as if it had reached its output limit.
 * @throws GatewayError of the limit if the answer has not begun
 */
function endUnpaid(exchange: RunningExchange): void {
  if (exchange.isSubmitted) return
  if (!exchange.answer.hasBegun) throw unpaidError(exchange)
  exchange.turn = null
  exchange.finish = { reason: 'length', native: null, serviceTier: null }
}

/** Lets plugins judge a turn, and releases it once it has passed; otherwise returns the prompt for another try. */
async function judge(
  deps: TurnsDeps,
  exchange: RunningExchange,
  plugins: PluginChain,
  { attempt, calls, finish }: TurnReply,
  inserted: readonly OutputItem[],
): Promise<ResponsesRequest | null> {
  const { answer, bill, signal, watch } = exchange
  try {
    const output = plugins.judges || plugins.finishes ? closeTurn(exchange, finish, calls) : []
    exchange.turn = { attempt, output, finish: finish.reason, number: bill.turns + 1 }
    if (plugins.judges) {
      watch.enter('judge', deps.clock.monotonicMs())
      const verdict = await plugins.judge({ ...exchange.turn, output: [...inserted, ...output] }, exchange)
      if (verdict.kind === 'again' && !answer.turnSeen) return verdict.prompt
      if (verdict.kind === 'refuse') throw new RefusedTurn(verdict.error)
      // A judge that does not hold the turn back can no longer ask for another one.
      if (verdict.kind === 'again') throw new RefusedTurn(new GatewayError('internal', INTERNAL_MESSAGE))
    }
    if (plugins.holdsTurns && answer.live) {
      // The client sees its first content only now.
      if (!answer.committed) exchange.firstTokenMs = deps.clock.monotonicMs()
      await answer.pass(signal)
    }
    return null
  } catch (thrown) {
    throw thrown instanceof RefusedTurn ? thrown : pluginFailure(thrown, exchange)
  }
}

/** Closes the turn. Returns its final items, including server-tool calls. */
function closeTurn(
  { answer }: RunningExchange,
  finish: TurnReply['finish'],
  calls: TurnReply['calls'],
): readonly OutputItem[] {
  answer.hold()
  const output = answer.closeTurn(finish.reason)
  answer.flush()
  return calls === null || calls.pending.length === 0 ? output : [...output, ...calls.pending.map(callItem)]
}

/** True for a call that the client has to answer. */
function isClientCall({ type }: OutputItem): boolean {
  return type === 'function_call' || type === 'custom_tool_call'
}

function extendPrompt(prompt: ResponsesRequest, items: readonly InputItem[]): ResponsesRequest {
  const { input } = prompt
  const before: readonly InputItem[] =
    typeof input === 'string' ? [{ type: 'message', role: 'user', content: input }] : input
  return { ...prompt, input: [...before, ...items] }
}

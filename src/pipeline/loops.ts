/**
 * Loops: an agent that sends the same call again and again, goes round in a cycle of two or three, or spends money
 * without a new message of its user. Only for keys with a policy for them, before anything is routed. What the caller
 * sent decides: calls and results since the last message of the user.
 */
import { hash } from 'node:crypto'
import type { Clock } from '../base/clock.ts'
import { GatewayError } from '../base/errors.ts'
import { whenReady } from '../base/maybe-promise.ts'
import type { Metrics } from '../base/metrics/metrics.ts'
import type { LoopKind } from '../base/metrics/table.ts'
import type { PicoUsd } from '../base/money.ts'
import type { CounterEntry, Counters } from '../callers/limits/counters.ts'
import { picoToNano } from '../callers/limits/spending.ts'
import type { Exchange } from '../exchange/exchange.ts'
import type { LoopPolicy } from '../protocol/management/loops.ts'
import type { ResponsesRequest } from '../protocol/request.ts'

/** A loop in the form of an alert: without names and texts of callers. */
export interface LoopNote {
  readonly keyHash: string
  readonly organizationId: string
  readonly workspaceId: string | null
  readonly kind: LoopKind
  /** How often it was seen; for spending, whole cents. */
  readonly times: number
  readonly action: LoopPolicy['action']
}

export interface LoopDeps {
  readonly counters: Counters
  readonly clock: Clock
  readonly metrics: Pick<Metrics, 'loops'>
  /** Absent: no alert is raised. */
  readonly onLoop?: ((note: LoopNote) => void) | undefined
}

/** Counts the spending of a session since its last user message. */
export interface SessionSpending {
  /** Call it once, when the exchange is over. */
  add(cost: PicoUsd): void
}

interface FoundLoop {
  readonly kind: LoopKind
  /** Names of the calls, in order; for spending, empty. */
  readonly names: readonly string[]
  readonly times: number
}

/** Lines, in JSON, with which Codex begins the results of its tools: they differ each time, although nothing changed. */
const MEASUREMENT_LINES = /(?:Chunk ID: [0-9a-f]+|Wall time: [\d.]+ seconds)\\n/g

/** A call with its result. Equal calls with equal results have the same text. */
interface Step {
  readonly name: string
  readonly text: string
}

const CYCLE_LENGTHS = [2, 3]
const DAY_MS = 86_400_000
const NANOS_PER_USD = 1e9
const NANOS_PER_CENT = 1e7
/** Longer names of functions are cut in headers and errors. */
const NAME_MAX_CHARS = 64

/**
 * Looks for loops and reports them. Returns the counter to which the exchange adds its cost; null: nothing is counted.
 * A promise only if the counters are in another thread.
 * @throws (or rejects with) GatewayError `loop_detected`
 */
export function watchLoops(
  deps: LoopDeps,
  exchange: Exchange,
  policy: LoopPolicy,
): SessionSpending | null | Promise<SessionSpending | null> {
  const { request } = exchange
  const loop = findLoop(request, policy)
  if (loop !== null) report(deps, exchange, policy, loop)
  if (policy.usd === null || request.session_id == null) return null
  const entry = spendingEntry(deps, exchange, policy.usd)
  const { counters } = deps
  let reserving: ReturnType<Counters['reserve']>
  try {
    reserving = counters.reserve([entry])
  } catch {
    // Limits refuse requests while their counters are away; loops do not.
    return null
  }
  const entries = [entry]
  return whenReady(reserving instanceof Promise ? reserving.catch(() => null) : reserving, reservation => {
    const usedNanos = reservation?.rooms[0]?.used ?? 0
    const isSpent = usedNanos >= (entry.ceiling ?? Number.POSITIVE_INFINITY)
    if (isSpent && loop === null) {
      const cents = Math.floor(usedNanos / NANOS_PER_CENT)
      try {
        report(deps, exchange, policy, { kind: 'spend', names: [], times: cents })
      } catch (thrown) {
        counters.settle(entries, [0])
        throw thrown
      }
    }
    return reservation === null
      ? null
      : { add: (cost: PicoUsd) => counters.settle(entries, [picoToNano(cost)]) }
  })
}

/** Reports the loop to the caller and the operator. @throws GatewayError `loop_detected` if the policy is `stop` */
function report(
  { metrics, onLoop }: LoopDeps,
  { caller, clientRequest }: Exchange,
  { action }: LoopPolicy,
  { kind, names, times }: FoundLoop,
): void {
  const { keyHash, organizationId, workspaceId } = caller
  metrics.loops.inc({ kind, action })
  onLoop?.({ keyHash, organizationId, workspaceId, kind, times, action })
  const shownCalls = kind === 'spend' ? 'spending' : names.map(shownName).join('>')
  if (action !== 'stop') {
    const headerValue = kind === 'spend' ? shownCalls : `${shownCalls}*${times}`
    clientRequest.rates?.setProviderRates({ 'X-Gateway-Loop': headerValue })
    return
  }
  const finding =
    kind === 'spend'
      ? `the session has spent ${(times / 100).toFixed(2)} USD without a new user message`
      : kind === 'repeat'
        ? `${shownCalls} was called ${times} times with the same arguments and the same result`
        : `the calls ${shownCalls} came ${times} times in this order with the same arguments and the same results`
  throw new GatewayError(
    'loop_detected',
    `This conversation runs in a circle: ${finding}. Change the conversation, or let its user say something; the policy is in the field loops of the API key and its workspace`,
    {
      metadata: { loop: kind, ...(names.length === 0 ? {} : { tools: names.map(shownName) }), times },
      headers: { 'X-Should-Retry': 'false' },
    },
  )
}

function shownName(name: string): string {
  return name.replace(/[^\w.:-]/g, '_').slice(0, NAME_MAX_CHARS)
}

/** The loop at the end of the conversation; null: there is none. */
export function findLoop(request: ResponsesRequest, { repeats, cycles }: LoopPolicy): FoundLoop | null {
  const steps = stepsOf(request)
  const last = steps.at(-1)
  if (last === undefined) return null
  const repeatCount = roundsOf(steps, 1)
  if (repeatCount >= repeats) return { kind: 'repeat', names: [last.name], times: repeatCount }
  for (const length of CYCLE_LENGTHS) {
    const rounds = roundsOf(steps, length)
    if (rounds < cycles) continue
    return { kind: 'cycle', names: steps.slice(-length).map(({ name }) => name), times: rounds }
  }
  return null
}

/** How often the last `length` calls came in a row. */
function roundsOf(steps: readonly Step[], length: number): number {
  let equalSteps = 0
  for (let index = steps.length - 1 - length; index >= 0; index--) {
    if (steps[index]?.text !== steps[index + length]?.text) break
    equalSteps++
  }
  return steps.length < length ? 0 : Math.floor(equalSteps / length) + 1
}

type Item = Exclude<ResponsesRequest['input'], string>[number]
interface CallItem {
  readonly type?: string
  readonly role?: string
  readonly call_id?: string
  readonly name?: string
  readonly namespace?: string
  readonly arguments?: string
  readonly input?: string
  readonly output?: unknown
}

/** Calls that have a result, since the last message of the user, in order. */
function stepsOf({ input }: ResponsesRequest): readonly Step[] {
  if (typeof input === 'string') return []
  const items = input as readonly (Item & CallItem)[]
  const from = lastUserMessage(items) + 1
  const results = new Map<string, string>()
  for (let index = from; index < items.length; index++) {
    const { type, call_id: id, output } = items[index] as CallItem
    if (type?.endsWith('_call_output') === true && id !== undefined) results.set(id, resultOf(output))
  }
  const steps: Step[] = []
  for (let index = from; index < items.length; index++) {
    const { type, call_id: id, name, namespace, arguments: json, input: text } = items[index] as CallItem
    if ((type !== 'function_call' && type !== 'custom_tool_call') || name === undefined) continue
    const result = results.get(id ?? '')
    if (result === undefined) continue
    const args = json === undefined ? (text ?? '') : canonicalJson(json)
    steps.push({ name, text: JSON.stringify([type, namespace, name, args, result]) })
  }
  return steps
}

/** A result as text, without the measurements that its client adds. */
function resultOf(output: unknown): string {
  return JSON.stringify(output ?? null).replace(MEASUREMENT_LINES, '')
}

function lastUserMessage(items: readonly CallItem[]): number {
  return items.findLastIndex(
    ({ type, role }) => (type === undefined || type === 'message') && role === 'user',
  )
}

/** Arguments as JSON values: white space and the order of members do not count. */
function canonicalJson(json: string): string {
  try {
    return JSON.stringify(sortMembers(JSON.parse(json)))
  } catch {
    return json
  }
}

function sortMembers(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortMembers)
  if (typeof value !== 'object' || value === null) return value
  const fields = value as Readonly<Record<string, unknown>>
  // Pairs, because a member may have any name.
  return Object.keys(fields)
    .sort()
    .map(name => [name, sortMembers(fields[name])])
}

/** A new message of the user begins a new counter. */
function spendingEntry({ clock }: LoopDeps, { caller, request }: Exchange, usd: number): CounterEntry {
  const { input } = request
  const messages = typeof input === 'string' ? [] : (input as readonly CallItem[])
  const last = lastUserMessage(messages)
  const userText = typeof input === 'string' ? input : JSON.stringify([last, messages[last] ?? null])
  const name = hash('sha256', JSON.stringify([request.session_id, userText]), 'hex')
  return {
    id: `loop/${caller.keyHash}/${name}`,
    amount: 0,
    ceiling: Math.round(usd * NANOS_PER_USD),
    origin: null,
    endsMs: clock.nowMs() + DAY_MS,
  }
}

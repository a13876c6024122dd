/**
 * Model calls that the gateway itself makes during an exchange. Each runs through the pipeline and has a usage record
 * that names the exchange. `Ask` is for the gateway's own calls, such as those to an evaluator: no plugins, shared
 * keys, no limits. Of the caller's guardrails, only those that restrict where data may go apply, because the request
 * quotes the caller; the usage record belongs to the service. `AskAs` is for calls on behalf of the caller, such as
 * those of a tool that asks models. `AskApart` is for calls after the exchange, which may not reach or cost its caller.
 */
import type { Clock } from '../base/clock.ts'
import { GatewayError, INTERNAL_MESSAGE } from '../base/errors.ts'
import { generationId } from '../base/ids.ts'
import { Stopwatch } from '../base/metrics/stages.ts'
import { UNITS_PER_USD } from '../base/money.ts'
import { abortSignalOf, type RequestSignal } from '../base/signal.ts'
import type { TraceParent } from '../base/telemetry/request-trace.ts'
import { type Quota, UNLIMITED_RESERVATION } from '../callers/limits/quota.ts'
import type { InnerUse } from '../exchange/bill.ts'
import {
  type Ask,
  type AskAs,
  type Exchange,
  type Held,
  type RequestContext,
  UNCOUNTED,
} from '../exchange/exchange.ts'
import { noteInnerCall } from '../exchange/reasons.ts'
import type { Caller } from '../protocol/records.ts'
import type { DialectName, ResponsesRequest } from '../protocol/request.ts'
import type { ResponseResource, ResponseUsage } from '../protocol/response.ts'
import { NO_CREDENTIALS } from '../providers/credentials/catalog.ts'
import { SERVICE_ORGANIZATION_ID, type UsageRecord } from '../storage/usage.ts'
import { FinalSink, type Outcome } from './answer/sink.ts'
import { type Guard, NO_GUARD } from './guard/guard.ts'
import { NO_PLUGINS } from './plugin-chain.ts'
import { createGateway, type Gateway, type GatewayDeps } from './respond.ts'
import type { Restrictions } from './routing/restrictions.ts'

const SERVICE_CALLER: Caller = {
  keyHash: '',
  organizationId: SERVICE_ORGANIZATION_ID,
  workspaceId: null,
  memberId: null,
  limit: null,
}
const NO_DISABLED_TOOLS: GatewayDeps['toolPermissions'] = { disabledFor: () => new Set() }
const NO_TOOLS: GatewayDeps['tools'] = new Map()
const UNLIMITED_QUOTA: Quota = {
  limits: () => false,
  limitsMoney: () => false,
  admit: () => UNLIMITED_RESERVATION,
}

/** Dependencies of a gateway that are shared by all callers. */
export type SharedDeps = Omit<
  GatewayDeps,
  'plugins' | 'tools' | 'toolPermissions' | 'quota' | 'credentials' | 'guard'
>

interface AskDeps extends SharedDeps {
  readonly guard: Pick<Guard, 'restrictions'>
}

/** A gateway for calls at the service's own expense. `restrictions` null: data may go anywhere. */
function serviceGateway(deps: SharedDeps, restrictions: Restrictions | null, quota: Quota): Gateway {
  return createGateway({
    ...deps,
    plugins: NO_PLUGINS,
    tools: NO_TOOLS,
    toolPermissions: NO_DISABLED_TOOLS,
    guard: restrictions === null ? NO_GUARD : dataGuard(restrictions),
    quota,
    credentials: { of: () => NO_CREDENTIALS },
  })
}

export function createAsk(deps: AskDeps): Ask {
  const gatewayWith = (restrictions: Restrictions | null) =>
    serviceGateway(deps, restrictions, UNLIMITED_QUOTA)
  const unguarded = gatewayWith(null)
  const { clock } = deps
  return (request, { parent, deadlineMs }) => {
    const trace = parent.spans?.inner(undefined) ?? null
    return withDeadline(clock, [parent.signal], deadlineMs, async signal => {
      const sink = new FinalSink()
      const restrictions = await deps.guard.restrictions(parent.caller)
      const gateway = restrictions === null ? unguarded : gatewayWith(forHelpers(restrictions))
      const outcome = await gateway.respond(
        {
          context: contextOf(clock, parent.held, signal, trace),
          parent: parent.id,
          witness: parent.clientRequest?.witness,
          caller: SERVICE_CALLER,
          dialect: 'responses',
          request: { ...request, stream: false },
          withMetadata: false,
          dataRegion: null,
        },
        sink,
      )
      return responseOf(outcome, sink.response, signal)
    })
  }
}

/** Creates `AskAs`. `gateway` returns the gateway that serves callers, which is created after its tools. */
export function createAskAs(clock: Clock, gateway: () => Gateway): AskAs {
  return (exchange, request, { deadlineMs, signal: ending, onEvent }) => {
    const { caller, clientRequest, dataRegion, held, id } = exchange
    // The tool that asks is identified by its signal, before anything is awaited.
    const trace = exchange.spans?.inner(ending) ?? null
    const signals = ending === undefined ? [exchange.signal] : [exchange.signal, ending]
    return withDeadline(clock, signals, deadlineMs, async signal => {
      const sink = new FinalSink({ listener: onEvent })
      const context = contextOf(clock, held, signal, trace)
      const outcome = await gateway().respond(
        {
          context,
          parent: id,
          masks: exchange.masks,
          witness: clientRequest.witness,
          caller,
          dialect: 'responses',
          request: { ...onBehalf(exchange, request), stream: onEvent !== undefined },
          withMetadata: false,
          dataRegion,
        },
        sink,
      )
      const chargedUsage = sink.usage ?? (outcome.answered ? null : (outcome.charged?.usage ?? null))
      const use = chargedUsage === null ? null : innerUse(chargedUsage)
      if (use !== null) exchange.bill.addInner(use)
      const { model = null, error = null } = outcome.summary ?? {}
      const { startedMs } = context.watch
      const endedMs = clock.monotonicMs()
      noteInnerCall(exchange, { id: context.id, startedMs, endedMs, model, error, cost: use?.cost ?? 0 })
      return responseOf(outcome, sink.response, signal)
    })
  }
}

interface AskApartTerms {
  /** The exchange for which the call is made; it may be over. */
  readonly parent: Pick<Exchange, 'id' | 'dataRegion'>
  /** The dialect of the request. */
  readonly dialect: DialectName
  /** Pays for the call. */
  readonly quota: Quota
  /** Null: data may go anywhere. */
  readonly restrictions: Restrictions | null
  readonly signal: AbortSignal
  /** Milliseconds from now until the call is given up. */
  readonly deadlineMs: number
}

/** The end of a call apart. */
interface ApartReply {
  /** Not in the ledger yet; null: no endpoint had its turn. */
  readonly record: UsageRecord | null
  /** Null: there is no whole answer. */
  readonly response: ResponseResource | null
}

/**
 * Calls a model of the catalogue after the exchange, as `Ask` does, but the caller of this function pays, decides where
 * data may go, and writes the usage record. Rejects only if the call cannot be made.
 */
export type AskApart = (request: ResponsesRequest, terms: AskApartTerms) => Promise<ApartReply>

export function createAskApart(deps: SharedDeps): AskApart {
  const { clock } = deps
  return async (request, { parent, dialect, quota, restrictions, signal, deadlineMs }) => {
    const records: UsageRecord[] = []
    const exchanges: Exchange[] = []
    const ledger = {
      ...deps.ledger,
      append: (record: UsageRecord) => records.push(record),
      whenWritten: () => null,
    }
    const gateway = serviceGateway({ ...deps, ledger }, restrictions, quota)
    const sink = new FinalSink(request.stream === true ? { listener: () => undefined } : {})
    await withDeadline(clock, [signal], deadlineMs, ending =>
      gateway.respond(
        {
          context: contextOf(clock, UNCOUNTED, ending, null),
          parent: parent.id,
          witness: { observe: observedExchange => exchanges.push(observedExchange) },
          caller: SERVICE_CALLER,
          dialect,
          request,
          withMetadata: false,
          dataRegion: parent.dataRegion,
        },
        sink,
      ),
    )
    const [record = null] = records
    const [exchange] = exchanges
    const isRouted = exchange !== undefined && exchange.attempts.length + exchange.passedOver.length > 0
    return { record: isRouted ? record : null, response: sink.response }
  }
}

/** An inner call has an id and times of its own; its memory counts in `held`. */
function contextOf(
  clock: Clock,
  held: Held,
  signal: RequestSignal,
  trace: TraceParent | null,
): RequestContext {
  const watch = new Stopwatch(clock.monotonicMs())
  return { id: generationId(clock.nowMs()), watch, held, signal, callerContext: null, trace }
}

/** The request with the caller's data policy and end user. */
function onBehalf({ request: parent }: Exchange, request: ResponsesRequest): ResponsesRequest {
  const { zdr, data_collection } = parent.provider ?? {}
  const { user, safety_identifier } = parent
  const provider = {
    ...request.provider,
    ...(zdr === true ? { zdr } : {}),
    ...(data_collection === 'deny' ? { data_collection } : {}),
  }
  return {
    ...request,
    ...(Object.keys(provider).length === 0 ? {} : { provider }),
    ...(user === undefined ? {} : { user }),
    ...(safety_identifier === undefined ? {} : { safety_identifier }),
  }
}

function innerUse(usage: ResponseUsage): InnerUse {
  return {
    inputTokens: usage.input_tokens,
    cachedTokens: usage.input_tokens_details.cached_tokens,
    outputTokens: usage.output_tokens,
    reasoningTokens: usage.output_tokens_details.reasoning_tokens,
    webSearchRequests: usage.server_tool_use_details?.web_search_requests ?? 0,
    cost: Math.round((usage.cost ?? 0) * UNITS_PER_USD),
  }
}

/** Runs work with a signal that fires with the first of the signals, or with `deadline_exceeded` at the deadline. */
async function withDeadline<T>(
  clock: Clock,
  signals: readonly RequestSignal[],
  deadlineMs: number,
  run: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const deadline = new AbortController()
  const timer = clock.after(deadlineMs, () =>
    deadline.abort(new GatewayError('deadline_exceeded', 'Operation timed out')),
  )
  try {
    return await run(AbortSignal.any([...signals.map(abortSignalOf), deadline.signal]))
  } finally {
    timer.cancel()
  }
}

function responseOf(
  outcome: Outcome,
  response: ResponseResource | null,
  signal: AbortSignal,
): ResponseResource {
  if (!outcome.answered) throw outcome.error
  // An aborted request gets no response.
  signal.throwIfAborted()
  if (response === null) throw outcome.refusal ?? new GatewayError('internal', INTERNAL_MESSAGE)
  return response
}

/** The restrictions for a model that the caller did not choose. */
export function forHelpers(restrictions: Restrictions): Restrictions {
  return { ...restrictions, excludedBy: restrictions.helperExcludedBy }
}

/** Restricts the request to places where the caller's own requests may go. */
function dataGuard(restrictions: Restrictions): Guard {
  const guarding = { revision: '', restrictions, input: null, reply: null }
  return { request: () => guarding, storedReply: () => guarding, restrictions: () => restrictions }
}

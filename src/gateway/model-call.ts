/**
 * Model call: asks the candidates in order until one has answered. After a failure that the client has not seen, it
 * asks the next one. What is asked, and who takes the reply, is said by its verbs.
 */
import type { Credential } from '../credentials/catalog.ts'
import { type FailureCode, type GatewayError, rewritten, toGatewayError } from '../errors.ts'
import type { Endpoint, OutgoingKey } from '../providers/provider.ts'
import { isPending, whenReady } from '../ready.ts'
import { type CallFigures, settle, type UsageEstimates } from './accounting/account.ts'
import type { Attempt, AttemptDeps } from './attempt.ts'
import type { AttemptTarget } from './attempt-target.ts'
import type { AttemptRecord, Finish } from './exchange.ts'
import { candidateAfter, lastError, type RouteCandidate } from './routing/rank.ts'
import type { RoutedExchange } from './running.ts'

export interface ModelCallDeps extends AttemptDeps {
  /** Opens keys; a promise only when one is not at hand. Fails with a GatewayError. */
  readonly providerKeys: ProviderKeys
}

/** The keys of attempts: own ones, and shared ones that their provider's row cannot carry as they are. */
export interface ProviderKeys {
  own(credential: Credential, endpoint: Endpoint): OutgoingKey | Promise<OutgoingKey>
  shared(endpoint: Endpoint): OutgoingKey | null | Promise<OutgoingKey | null>
}

/** An attempt that is ready to run, and the receiver of its reply. */
export interface OpenedAttempt {
  readonly attempt: Attempt
  readonly target: AttemptTarget
}

/** One model call, for candidates one after the other. */
export interface ModelCall {
  /**
   * Opens an attempt at a candidate whose key is open. Null: the limits of the caller leave nothing for it. A promise
   * only where something has to be awaited.
   */
  open(candidate: RouteCandidate, record: AttemptRecord): OpenedAttempt | null | Promise<OpenedAttempt | null>
  /** True if the client has seen some of it, so that nobody else may be asked. */
  isSeen(): boolean
  /** Drops what a failed attempt has brought. */
  drop(): void
  /** Default: those of text. */
  readonly estimates?: UsageEstimates
}

/** A candidate has answered. */
export interface ModelReply {
  readonly candidate: RouteCandidate
  readonly record: AttemptRecord
  readonly attempt: Attempt
  readonly finish: Finish
}

/**
 * Rejects with the last failure when no candidate is left, at once when the client has seen some of the reply. Null:
 * the limits of the caller leave nothing for it, and nobody was asked.
 */
export async function askCandidates(
  deps: ModelCallDeps,
  exchange: RoutedExchange,
  first: RouteCandidate | undefined,
  call: ModelCall,
): Promise<ModelReply | null> {
  const { attempts, bill, candidates, signal } = exchange
  const from = attempts.length
  let next = first
  while (next !== undefined) {
    const candidate = next
    const record = openRecord(candidate)
    exchange.watch.beginAttempt(deps.clock.monotonicMs(), attempts.length > from)
    attempts.push(record)
    let attempt: Attempt | null = null
    try {
      const opening = openAttempt(deps, exchange, call, candidate, record)
      const opened = isPending(opening) ? await opening : opening
      if (opened === null) {
        attempts.pop()
        next =
          exchange.fallbacks && bill.closed === null
            ? candidates[candidates.indexOf(candidate) + 1]
            : undefined
        continue
      }
      attempt = opened.attempt
      const finish = await attempt.run(opened.target)
      if (!settle(exchange, record, attempt, call.estimates)) noteImplausible(deps, candidate)
      return { candidate, record, attempt, finish }
    } catch (thrown) {
      if (thrown instanceof Deferred) throw thrown
      const error = withProvider(asGatewayError(deps, thrown), record)
      record.error = error
      settle(exchange, record, attempt ?? NOTHING_SAID, call.estimates)
      if (error.code === 'client_closed' || call.isSeen()) throw error
      call.drop()
      // No other candidate is asked if the caller has left or the request was ended here.
      const goesOn = exchange.fallbacks && !signal.aborted
      const turn = { attempts: attempts.length - from, hasCharge: bill.closed !== null }
      next = goesOn ? candidateAfter(candidates, candidate, error, turn) : undefined
    }
  }
  if (attempts.length === from) return null
  throw lastError(attempts.slice(from))
}

/** The model call went to a batch service: the exchange ends here, and another one has its reply later. */
export class Deferred extends Error {
  constructor() {
    super('a batch service has the model call')
  }
}

const NOTHING_SAID: CallFigures = {
  usage: null,
  finish: null,
  outputQuarters: 0,
  isThoughtSeen: false,
  sentBytes: 0,
  isCut: false,
  isStalled: false,
}

/** Opens the key of the candidate, and then the attempt. A promise only where one has to. */
function openAttempt(
  deps: ModelCallDeps,
  exchange: RoutedExchange,
  call: ModelCall,
  candidate: RouteCandidate,
  record: AttemptRecord,
): ReturnType<ModelCall['open']> {
  const { credential, endpoint } = candidate
  const service = exchange.batch?.service
  if (service?.kind === 'collection') {
    record.providerKey = service.providerKey
    return call.open(candidate, record)
  }
  const { providerKeys } = deps
  const key = credential === null ? providerKeys.shared(endpoint) : providerKeys.own(credential, endpoint)
  if (key === null) return call.open(candidate, record)
  return whenReady<OutgoingKey | null, OpenedAttempt | null>(key, opened => {
    record.providerKey = opened
    return call.open(candidate, record)
  })
}

function noteImplausible({ log, metrics }: ModelCallDeps, { endpoint }: RouteCandidate): void {
  const { slug } = endpoint.provider
  metrics.usageImplausible.inc({ provider: slug })
  log.notice('a provider reported implausible usage; a corrected usage was charged', {
    provider: slug,
    model: endpoint.modelId,
  })
}

function openRecord({ endpoint, credential }: RouteCandidate): AttemptRecord {
  return {
    endpoint,
    credential,
    isByok: credential !== null,
    providerKey: null,
    upstreamId: null,
    status: null,
    error: null,
    isRefused: false,
    isStarted: false,
  }
}

/** Failures that a provider had a part in, whoever found them. */
const OF_PROVIDERS: ReadonlySet<FailureCode> = new Set<FailureCode>([
  'provider_unavailable',
  'upstream_timeout',
  'unprocessable',
])

/** The failure with the name of the provider that it was met at, unless it has one. */
function withProvider(error: GatewayError, { endpoint }: AttemptRecord): GatewayError {
  if (!OF_PROVIDERS.has(error.code) || error.metadata?.['provider_name'] !== undefined) return error
  return rewritten(error, { metadata: { ...error.metadata, provider_name: endpoint.provider.name } })
}

/** The thrown value as a GatewayError; one we did not foresee is logged with its cause. */
export function asGatewayError({ log }: Pick<AttemptDeps, 'log'>, thrown: unknown): GatewayError {
  const error = toGatewayError(thrown)
  if (error.code === 'internal') log.fault('exchange failed', error.cause ?? error)
  return error
}

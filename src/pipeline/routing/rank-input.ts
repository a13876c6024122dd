/** Everything that a ranking reads: the request, its caller, and the thread's knowledge of endpoints. */
import type { Clock } from '../../base/clock.ts'
import { whenReady } from '../../base/maybe-promise.ts'
import type { Quota } from '../../callers/limits/quota.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type { DataRegion } from '../../protocol/data-regions.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { Caller } from '../../protocol/records.ts'
import type { DialectName, ResponsesRequest } from '../../protocol/request.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { CredentialCatalog, WorkspaceCredentials } from '../../providers/credentials/catalog.ts'
import type { HealthCaller } from '../../providers/health/caller-states.ts'
import type { EndpointHealth } from '../../providers/health/health.ts'
import { Exclusions, SharedCandidates } from './candidate.ts'
import type { Pauses } from './pauses.ts'
import type { Restrictions } from './restrictions.ts'
import type { Rollouts } from './rollouts.ts'
import type { RoutedRequest } from './route-targets.ts'

/** The knowledge of one thread about endpoints, and its measures of requests. */
export interface RankFacts {
  readonly clock: Pick<Clock, 'monotonicMs' | 'nowMs'>
  readonly shared: SharedCandidates
  /** The rollouts of routes. Absent: there are none. */
  readonly rollouts?: Pick<Rollouts, 'of'>
  /** Providers out of service. Absent: none is. */
  readonly pauses?: Pick<Pauses, 'filter' | 'endOf'>
  /** Null if nothing is known about any endpoint. */
  readonly health: EndpointHealth | null
  /** From 0 (inclusive) to 1 (exclusive). */
  readonly random: () => number
  /** True: requests without preferences are distributed by price. False: the order of the catalogue is kept. */
  readonly balances: boolean
  /** Approximate tokens of the input. Absent: lengths are not compared. */
  readonly inputTokens?: ((request: ResponsesRequest) => number) | undefined
  /** Minimum tokens of the input. Default: `inputTokens`. */
  readonly leastTokens?: ((request: ResponsesRequest) => number) | undefined
  /**
   * True if `inputTokens` is certain to be at most this number; costs next to nothing. Default: `inputTokens` is
   * compared.
   */
  readonly isInputBelow?: ((request: ResponsesRequest, tokens: number) => boolean) | undefined
}

interface RoutingOptions extends Omit<RankFacts, 'shared'> {
  readonly health: EndpointHealth
  readonly inputTokens: (request: ResponsesRequest) => number
  /** Silence of an endpoint after which a second one is called too. Default null: never. */
  readonly hedgeAfterMs?: number | null
}

const NO_ROLLOUTS: Pick<Rollouts, 'of'> = { of: () => null }
const NO_PAUSES: Pick<Pauses, 'filter' | 'endOf'> = { filter: null, endOf: () => null }

/** The facts of one thread. */
export class Routing implements RankFacts {
  readonly clock: Pick<Clock, 'monotonicMs' | 'nowMs'>
  readonly shared = new SharedCandidates()
  readonly rollouts: Pick<Rollouts, 'of'>
  readonly pauses: Pick<Pauses, 'filter' | 'endOf'>
  readonly health: EndpointHealth
  readonly random: () => number
  readonly balances: boolean
  readonly inputTokens: (request: ResponsesRequest) => number
  readonly leastTokens: RankFacts['leastTokens']
  readonly isInputBelow: RankFacts['isInputBelow']
  readonly hedgeAfterMs: number | null

  constructor(options: RoutingOptions) {
    this.clock = options.clock
    this.rollouts = options.rollouts ?? NO_ROLLOUTS
    this.pauses = options.pauses ?? NO_PAUSES
    this.health = options.health
    this.random = options.random
    this.balances = options.balances
    this.inputTokens = options.inputTokens
    this.leastTokens = options.leastTokens
    this.isInputBelow = options.isInputBelow
    this.hedgeAfterMs = options.hedgeAfterMs ?? null
  }
}

export type Preferences = NonNullable<ResponsesRequest['provider']>
export const NO_PREFERENCES: Preferences = {}

/** The input of rankers, besides the candidates. */
export interface RankTerms {
  readonly routing: RankFacts
  /** In its current form. */
  readonly request: ResponsesRequest
  /** The preferences of the request. */
  readonly preferences: Preferences
  readonly caller: HealthCaller
  /** Monotonic. */
  readonly nowMs: number
}

/** The plugins of a request that can make it fit an endpoint. */
export interface FittingPlugins {
  /** `cut`: a plugin makes the prompt fit this endpoint. */
  fitting(endpoint: Endpoint, prompt: ResponsesRequest): 'whole' | 'cut' | 'refused'
  /** True if a plugin turns this part of the input into text. */
  reads(part: object): boolean
}

/** The input of one ranking; made once for each. */
export interface RankInput extends RankTerms {
  readonly catalog: Catalog
  readonly caller: Caller
  /** The facts by which routes choose; null: targets are taken in the order of the file. */
  readonly routed: RoutedRequest | null
  readonly dialect: DialectName
  /** Null: data may go anywhere. */
  readonly dataRegion: DataRegion | null
  /** Restrictions of guardrails; null: none. */
  readonly restrictions: Restrictions | null
  /** Null: no plugin applies to the request. */
  readonly plugins: FittingPlugins | null
  /** The credentials of the caller's workspace. */
  readonly ownKeys: WorkspaceCredentials
  /** True if the caller has spending limits. */
  readonly isLimited: boolean
  /** Collects candidates that are left out, with the reasons; null: they are not collected. */
  readonly exclusions: Exclusions | null
}

export interface RankInputDeps {
  readonly catalog: Catalog
  readonly credentials: Pick<CredentialCatalog, 'of'>
  readonly quota: Pick<Quota, 'limitsMoney'>
  readonly routing: RankFacts
}

interface RankedRequest
  extends Pick<RankInput, 'request' | 'caller' | 'dialect' | 'dataRegion' | 'restrictions' | 'plugins'> {
  /** The exchange whose request a route may serve. Default: none. */
  readonly exchange?: Pick<Exchange, 'id' | 'request' | 'caller'>
}

/** Returns a promise only if the limits or own keys of the caller have to be fetched. */
export function rankInput(
  { catalog, credentials, quota, routing }: RankInputDeps,
  subject: RankedRequest,
): RankInput | Promise<RankInput> {
  const { caller, dataRegion, dialect, exchange, plugins, request, restrictions } = subject
  return whenReady(quota.limitsMoney(caller), isLimited =>
    whenReady(credentials.of(caller.organizationId, caller.workspaceId), ownKeys => ({
      routing,
      request,
      preferences: request.provider ?? NO_PREFERENCES,
      caller,
      nowMs: routing.clock.monotonicMs(),
      catalog,
      routed: exchange === undefined ? null : routedOf(exchange, routing),
      dialect,
      dataRegion,
      restrictions,
      plugins,
      ownKeys,
      isLimited,
      exclusions: new Exclusions(),
    })),
  )
}

/** A request as routes see it. */
export function routedOf(
  { id, caller, request }: Pick<Exchange, 'id' | 'request' | 'caller'>,
  { clock, inputTokens }: RankFacts,
): RoutedRequest {
  return {
    id,
    organizationId: caller.organizationId,
    request,
    inputTokens: inputTokens ?? (() => 0),
    nowMs: clock.nowMs(),
  }
}

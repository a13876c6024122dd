/**
 * Plans: decisions shared by all plain requests of one key for one model: which stages have work, and which endpoints
 * may serve them. Requests that use anything else take the general path. A plan has no key, no token, no balance and no
 * health: those are checked for each request. Bounded, one cache per thread. Hot path: one lookup.
 *
 * A plan expires with the earliest of the records that it was made from, when a record of its organization changes, and
 * when the catalogue is replaced. It belongs to the record of the API key: a new record has new plans.
 */

import type { Clock } from '../base/clock.ts'
import { isPending } from '../base/maybe-promise.ts'
import type { Guardrails } from '../callers/guardrails.ts'
import type { Quota } from '../callers/limits/quota.ts'
import type { ClientRequest } from '../exchange/exchange.ts'
import { isPlain } from '../protocol/json/plain-request.ts'
import { makesEmbeddings } from '../protocol/provider.ts'
import type { Caller } from '../protocol/records.ts'
import type { RouteTarget } from '../protocol/route.ts'
import type { CredentialCatalog } from '../providers/credentials/catalog.ts'
import type { Guardrail } from './guard/guard.ts'
import type { PluginChains } from './plugin-chain.ts'
import { type NamedModel, resolveModel } from './routing/names.ts'
import { Needs } from './routing/needs.ts'
import {
  type Listing,
  listFallbacks,
  listModel,
  listTarget,
  type PlainRoute,
  type PlainSplit,
  type RankDeps,
} from './routing/rank.ts'
import { type RankInput, rankInput } from './routing/rank-input.ts'
import type { Group } from './routing/rankers.ts'
import type { Restrictions } from './routing/restrictions.ts'
import { type ToolWaysDeps, toolWays } from './tool-calls/tool-ways.ts'

export interface Plan {
  readonly route: PlainRoute
  /** The listings of the targets if the name is a route; null: it is a model. */
  readonly split: PlainSplit | null
  /** True if the user that a request names may change the candidates, because there are own keys. */
  readonly readsUser: boolean
  /** True if guardrails apply to the caller, which check each request. */
  readonly isGuarded: boolean
  /** The restrictions of those guardrails; null: every candidate is allowed. */
  readonly restrictions: Restrictions | null
  /** True if the caller has a limit, so that each request makes a reservation. */
  readonly isLimited: boolean
}

interface PlansDeps extends RankDeps, ToolWaysDeps {
  readonly clock: Clock
  readonly guardrails: Pick<Guardrails<Guardrail>, 'of' | 'freshUntilMs'>
  readonly credentials: Pick<CredentialCatalog, 'of' | 'freshUntilMs'>
  readonly plugins: PluginChains
  readonly quota: Quota
}

interface CachedPlan {
  /** Null if plain requests for the model need more than a plan covers. */
  readonly plan: Plan | null
  /** Monotonic. */
  readonly untilMs: number
}

/** One organization, until one of its records changes. */
interface Organization {
  isVoid: boolean
}

/** The plans of one record of an API key. */
interface KeyPlans {
  readonly organization: Organization
  readonly plans: Map<string, CachedPlan>
}

/** A key with more plans starts over, so that a caller who names endless models makes work only for itself. */
const MAX_PLANS_PER_KEY = 64
/** Limit of one thread; if it is exceeded, all plans are dropped. */
const MAX_PLANS = 10_000

export class Plans {
  readonly #deps: PlansDeps
  #plansByCaller = new WeakMap<Caller, KeyPlans>()
  readonly #organizations = new Map<string, Organization>()
  #planCount = 0

  constructor(deps: PlansDeps) {
    this.#deps = deps
  }

  /** The plan of a request; null if it takes the general path. */
  of(call: ClientRequest): Plan | null {
    const { caller, request } = call
    if (call.batch !== undefined || call.parent !== undefined) return null
    if (caller.loops != null || !isPlain(request)) return null
    const callerPlans = this.#plansByCaller.get(caller)
    const name = `${call.dialect} ${call.dataRegion} ${request.stream === true} ${request.model}`
    let entry =
      callerPlans === undefined || callerPlans.organization.isVoid ? undefined : callerPlans.plans.get(name)
    if (entry === undefined || call.context.watch.enteredMs >= entry.untilMs) {
      entry = this.#make(call)
      if (entry === undefined) return null
      this.#keep(caller, name, entry)
    }
    const { plan } = entry
    return plan?.readsUser === true && request.user != null ? null : plan
  }

  /** Call it after records of the organization have changed, and the caches have dropped them. */
  invalidate(organizationId: string): void {
    const organization = this.#organizations.get(organizationId)
    if (organization === undefined) return
    organization.isVoid = true
    this.#organizations.delete(organizationId)
  }

  /** Call it after the catalogue was replaced, or if any record may have changed. */
  clear(): void {
    this.#plansByCaller = new WeakMap()
    this.#organizations.clear()
    this.#planCount = 0
  }

  /**
   * Undefined if something has to be loaded first, no endpoint may serve the request, or the model makes embeddings.
   */
  #make(call: ClientRequest): CachedPlan | undefined {
    const deps = this.#deps
    const { caller, request } = call
    const { model = '' } = request
    const untilMs = Math.min(
      deps.guardrails.freshUntilMs(caller),
      deps.credentials.freshUntilMs(caller.organizationId, caller.workspaceId),
    )
    if (deps.clock.monotonicMs() >= untilMs) return undefined
    const guardrail = deps.guardrails.of(caller)
    if (isPending(guardrail)) return undefined
    const restrictions = guardrail?.restrictions ?? null
    const { dialect, dataRegion } = call
    // Only the name of the model counts.
    const plain = { model, input: '' }
    const input = rankInput(deps, {
      request: plain,
      caller,
      dialect,
      dataRegion,
      restrictions,
      plugins: null,
    })
    const namedModel = resolveModel(model, deps.catalog, null)
    if (isPending(input) || namedModel === null || makesEmbeddings(namedModel.model)) return undefined
    const isRoute = namedModel.model.route !== undefined
    const needs = new Needs(input, false)
    const groups = isRoute ? [] : listModel(namedModel, needs, input)
    if (groups.length === 0 && !isRoute) return undefined
    const hasWork =
      namedModel.isThinking || toolWays(request, deps.tools).length > 0 || deps.plugins.of(request) !== null
    if (hasWork) return { plan: null, untilMs }
    const split = this.#splitOf(namedModel, needs, input)
    const route = isRoute
      ? split?.routes.values().next().value
      : this.#routeOf(namedModel, groups, input, true)
    if (route === undefined) return undefined
    const isLimited = deps.quota.limits(caller)
    const readsUser = !input.ownKeys.isEmpty
    return {
      plan: { route, split, readsUser, isGuarded: guardrail !== null, restrictions, isLimited },
      untilMs,
    }
  }

  /** Null if the name is a model. */
  #splitOf(namedModel: NamedModel, needs: Needs, input: RankInput): PlainSplit | null {
    const { route } = namedModel.model
    if (route === undefined) return null
    const routes = new Map<RouteTarget, PlainRoute>()
    const { rollout } = route
    for (const target of rollout === null ? route.targets : [...route.targets, rollout.candidate]) {
      const listing = listTarget(namedModel, target, needs, input)
      if (listing === null) continue
      const fallbacks = listFallbacks(namedModel, route, listing.namedModel.model, needs, input)
      const groups = [...listing.groups, ...fallbacks.flatMap(fallback => fallback.groups)]
      const mayFail = target.preferences?.allow_fallbacks !== false
      routes.set(target, this.#routeOf(listing.namedModel, groups, input, mayFail))
    }
    return { route, routes }
  }

  #routeOf(
    namedModel: NamedModel,
    groups: readonly Group[],
    input: RankInput,
    fallbacks: boolean,
  ): PlainRoute {
    const { shared } = this.#deps.routing
    const modelIds = new Set(
      groups.flatMap(({ candidates }) => candidates.map(({ endpoint }) => endpoint.modelId)),
    )
    let [leastContext, leastOutput] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]
    for (const id of modelIds) {
      const least = shared.of(input.catalog.model(id) ?? namedModel.model)
      leastContext = Math.min(leastContext, least.leastContext)
      leastOutput = Math.min(leastOutput, least.leastOutput)
    }
    const listing = { namedModel, skipped: [], fallbacks, exclusions: input.exclusions?.list ?? [] }
    return { ...listing, groups, leastContext, leastOutput, only: this.#onlyRankingOf(listing, groups) }
  }

  /** The ranking if it is the same for every request: one candidate in each group, each of another model; else null. */
  #onlyRankingOf(listing: Omit<Listing, 'groups'>, groups: readonly Group[]): PlainRoute['only'] {
    const candidates = groups.flatMap(group => group.candidates)
    const [first] = candidates
    if (first === undefined || candidates.length > groups.length) return null
    if (new Set(candidates.map(({ endpoint }) => endpoint.modelId)).size < candidates.length) return null
    const choice = 'only'
    const count = this.#deps.metrics.ofProvider(first.endpoint.provider.slug).endpointChoice(choice)
    const { route } = listing.namedModel
    return { ranking: { ...listing, route, candidates, affinity: null, choice, rather: null }, count }
  }

  #keep(caller: Caller, name: string, plan: CachedPlan): void {
    if (this.#planCount >= MAX_PLANS) this.clear()
    let callerPlans = this.#plansByCaller.get(caller)
    if (callerPlans === undefined || callerPlans.organization.isVoid) {
      this.#planCount -= callerPlans?.plans.size ?? 0
      callerPlans = { organization: this.#organizationOf(caller), plans: new Map() }
      this.#plansByCaller.set(caller, callerPlans)
    }
    const { plans } = callerPlans
    if (plans.size >= MAX_PLANS_PER_KEY && !plans.has(name)) {
      this.#planCount -= plans.size
      plans.clear()
    }
    if (!plans.has(name)) this.#planCount++
    plans.set(name, plan)
  }

  #organizationOf({ organizationId }: Caller): Organization {
    let organization = this.#organizations.get(organizationId)
    if (organization === undefined) {
      organization = { isVoid: false }
      this.#organizations.set(organizationId, organization)
    }
    return organization
  }
}

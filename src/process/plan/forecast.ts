/**
 * Replays usage records through the routing of a configuration, without calling a provider: which requests would go
 * elsewhere, be refused, or cost something else. A record has no prompt, so conditions on tools, images, files, audio
 * and tags count as not fulfilled; guardrails, health, pauses and own credentials of workspaces are as they were. Only what
 * the configuration changes moves a request: if it chooses as before, what served the request serves it again. Pure.
 */
import { hash } from 'node:crypto'
import { type PicoUsd, toUsd } from '../../base/money.ts'
import { priceUsage } from '../../pipeline/accounting/charge.ts'
import { hasSharedKey, namesProvider } from '../../pipeline/routing/candidate.ts'
import { resolveModel } from '../../pipeline/routing/names.ts'
import { drawnTargets } from '../../pipeline/routing/route-targets.ts'
import type { Endpoint, Model, Pricing } from '../../protocol/provider.ts'
import type { ProviderPreferences } from '../../protocol/request.ts'
import type { Route } from '../../protocol/route.ts'
import { routerOf } from '../../protocol/routers.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { UsageRecord } from '../../storage/usage.ts'
import type { Snapshot } from './snapshot.ts'

export interface ForecastChange {
  readonly generation: string
  readonly model_from: string
  /** Null: the request would be refused. */
  readonly model_to: string | null
  readonly provider_from: string | null
  readonly provider_to: string | null
  /** US dollars. */
  readonly cost_from: number
  /** Null: it would be refused, or the price is not known. */
  readonly cost_to: number | null
}

export interface ForecastResult {
  readonly requests: number
  /** Requests that another model or provider would answer. */
  readonly moved: number
  readonly refused: number
  /** Requests whose new price is not known; they count with their old cost. */
  readonly unpriced: number
  readonly cost: { readonly from: number; readonly to: number }
  /** The ten with the largest difference in cost. */
  readonly changes: readonly ForecastChange[]
}

const MAX_CHANGES = 10

export class Forecast {
  readonly #catalog: Catalog
  readonly #before: Snapshot['models']
  readonly #routesBefore: ReadonlyMap<string, Route>
  readonly #balances: boolean
  /** True for the prices of endpoints that have not changed. */
  readonly #unchangedPrices = new WeakMap<Pricing, boolean>()
  #requests = 0
  #moved = 0
  #refused = 0
  #unpriced = 0
  /** Units of 1e-12 USD. */
  #from = 0n
  #to = 0n
  #changes: (ForecastChange & { readonly weight: number })[] = []

  constructor(catalog: Catalog, before: Pick<Snapshot, 'models' | 'routes'>, balances: boolean) {
    this.#catalog = catalog
    this.#before = before.models
    this.#routesBefore = new Map(before.routes.map(route => [route.name, route]))
    this.#balances = balances
  }

  add(record: UsageRecord): void {
    const { model, provider, cost } = record
    // A request that reached no model, or a fee.
    if (model === null || provider === null) return
    this.#requests++
    this.#from += BigInt(cost)
    const endpoint = this.#newEndpointOf(record)
    if (endpoint === null) {
      this.#refused++
      this.#note(record, null, null)
      return
    }
    const isMoved = endpoint.modelId !== model || endpoint.provider.slug !== provider
    if (isMoved) this.#moved++
    const newCost = this.#costOf(record, endpoint, isMoved)
    if (newCost === null) this.#unpriced++
    this.#to += BigInt(newCost ?? cost)
    if (isMoved || newCost !== cost) this.#note(record, endpoint, newCost)
  }

  get result(): ForecastResult {
    return {
      requests: this.#requests,
      moved: this.#moved,
      refused: this.#refused,
      unpriced: this.#unpriced,
      cost: { from: toUsd(Number(this.#from)), to: toUsd(Number(this.#to)) },
      changes: this.#largest().map(({ weight: _, ...change }) => change),
    }
  }

  #note(record: UsageRecord, endpoint: Endpoint | null, cost: PicoUsd | null): void {
    this.#changes.push({
      generation: record.id,
      model_from: record.model ?? '',
      model_to: endpoint?.modelId ?? null,
      provider_from: record.provider,
      provider_to: endpoint?.provider.slug ?? null,
      cost_from: toUsd(record.cost),
      cost_to: cost === null ? null : toUsd(cost),
      weight: Math.abs(record.cost - (cost ?? 0)),
    })
    if (this.#changes.length > 100 * MAX_CHANGES) this.#changes = this.#largest()
  }

  #largest() {
    return this.#changes.toSorted((first, second) => second.weight - first.weight).slice(0, MAX_CHANGES)
  }

  /** Null: no endpoint may serve it. */
  #newEndpointOf(record: UsageRecord): Endpoint | null {
    const requested = record.requestedModel ?? record.model ?? ''
    const namedModel = resolveModel(requested, this.#catalog, null)
    // The choice of a router follows from the prompt, which a record does not have.
    if (namedModel === null) return routerOf({ model: requested }) === null ? null : this.#serverOf(record)
    const { model } = namedModel
    if (model.route !== undefined) return this.#targetOf(model.route, record)
    // Another model of the request's list served it, because this one failed or was paused.
    const isElsewhere = model.id !== record.model && this.#isAsBefore(model)
    return (isElsewhere ? this.#serverOf(record) : null) ?? this.#endpointOf(model, null, record)
  }

  /** The endpoint that served it, if it still may. */
  #serverOf(record: UsageRecord): Endpoint | null {
    const model = this.#catalog.model(record.model ?? '')
    const isSame = (endpoint: Endpoint): boolean => isServer(endpoint, record)
    return (
      model?.endpoints.find(endpoint => isSame(endpoint) && mayServe(endpoint, model, null, record)) ?? null
    )
  }

  /** True if the same providers serve the model. */
  #isAsBefore({ id, endpoints }: Model): boolean {
    const before = this.#before[id]
    return (
      before?.length === endpoints.length &&
      endpoints.every(({ provider }, at) => provider.slug === before[at]?.provider)
    )
  }

  #targetOf(route: Route, record: UsageRecord): Endpoint | null {
    const request = {
      model: route.name,
      input: '',
      ...(record.sessionId === null ? {} : { session_id: record.sessionId }),
      ...(record.endUser === null ? {} : { user: record.endUser }),
    }
    const drawnRequest = {
      id: record.id,
      organizationId: record.organizationId,
      request,
      inputTokens: () => record.inputTokens,
      nowMs: Date.parse(record.createdAt),
    }
    const targets = drawnTargets(route, drawnRequest)
    const before = this.#routesBefore.get(route.name)
    if (before !== undefined && drawnTargets(before, drawnRequest)[0]?.key === targets[0]?.key) {
      // A target with other conditions, a fallback or the candidate of a rollout may have served it.
      const endpoint = this.#leadsTo(route, record.model) ? this.#serverOf(record) : null
      if (endpoint !== null) return endpoint
    }
    const options = [...targets, ...route.fallback.map(model => ({ model, preferences: null }))]
    for (const { model, preferences } of options) {
      const catalogModel = this.#catalog.model(model)
      const endpoint = catalogModel === undefined ? null : this.#endpointOf(catalogModel, preferences, record)
      if (endpoint !== null) return endpoint
    }
    return null
  }

  #leadsTo({ targets, fallback, rollout }: Route, model: string | null): boolean {
    const names = [...targets.map(target => target.model), ...fallback, rollout?.candidate.model ?? '']
    return names.some(name => this.#catalog.model(name)?.id === model)
  }

  #endpointOf(model: Model, preferences: ProviderPreferences | null, record: UsageRecord): Endpoint | null {
    const usable = model.endpoints.filter(endpoint => mayServe(endpoint, model, preferences, record))
    // The endpoint that served it serves it again; another choice is no consequence of the file.
    const earlierEndpoint = usable.find(endpoint => isServer(endpoint, record))
    if (earlierEndpoint !== undefined) return earlierEndpoint
    const order = preferences?.order ?? []
    const first = order.flatMap(name => usable.find(endpoint => namesProvider(name, endpoint)) ?? [])[0]
    return first ?? (this.#balances ? drawEndpoint(usable, record.id) : (usable[0] ?? null))
  }

  /** Compared once for each endpoint that serves as before. */
  #isSamePrice(pricing: Pricing, oldPricing: Pricing | undefined): boolean {
    let isSame = this.#unchangedPrices.get(pricing)
    if (isSame === undefined) {
      isSame = JSON.stringify(oldPricing) === JSON.stringify(pricing)
      this.#unchangedPrices.set(pricing, isSame)
    }
    return isSame
  }

  #costOf(record: UsageRecord, { pricing }: Endpoint, isMoved: boolean): PicoUsd | null {
    const oldPricing = this.#before[record.model ?? '']?.find(
      endpoint => endpoint.provider === record.provider,
    )?.pricing
    if (!isMoved && this.#isSamePrice(pricing, oldPricing)) return record.cost
    if (pricing.isUnknown === true) return null
    // Discounts of batches, images and searches are in the old cost, and stay in proportion.
    const oldPrice =
      oldPricing === undefined || oldPricing.isUnknown === true ? 0 : priceOf(record, oldPricing)
    const factor = oldPrice === 0 ? 1 : record.cost / oldPrice
    return Math.round(priceOf(record, pricing) * factor)
  }
}

/** True if it served the request. */
function isServer({ provider, modelId }: Endpoint, record: UsageRecord): boolean {
  return provider.slug === record.provider && modelId === record.model
}

function priceOf(record: UsageRecord, pricing: Pricing): PicoUsd {
  return priceUsage(record, pricing).total
}

function mayServe(
  endpoint: Endpoint,
  model: Model,
  preferences: ProviderPreferences | null,
  { inputTokens, isByok, provider }: UsageRecord,
): boolean {
  const length = endpoint.contextLength ?? model.contextLength
  if (length !== null && inputTokens > length) return false
  if (!hasSharedKey(endpoint.provider) && !(isByok && endpoint.provider.slug === provider)) return false
  if (preferences === null) return true
  const { only, ignore } = preferences
  const isAmong = (names: readonly string[]): boolean => names.some(name => namesProvider(name, endpoint))
  return (only == null || only.length === 0 || isAmong(only)) && (ignore == null || !isAmong(ignore))
}

/** Draws by price, like the gateway, but by the id of the request, so that a plan says the same twice. */
function drawEndpoint(endpoints: readonly Endpoint[], id: string): Endpoint | null {
  const weights = endpoints.map(({ pricing }) => {
    const price = pricing.isUnknown === true ? Number.POSITIVE_INFINITY : pricing.prompt + pricing.completion
    return price === 0 ? Number.POSITIVE_INFINITY : 1 / (price * price)
  })
  const free = weights.indexOf(Number.POSITIVE_INFINITY)
  const total = weights.reduce((sum, weight) => sum + weight, 0)
  if (free !== -1 || total === 0) return endpoints[Math.max(0, free)] ?? null
  let threshold = (hash('sha256', id, 'buffer').readUInt32BE(0) / 2 ** 32) * total
  for (const [index, weight] of weights.entries()) {
    threshold -= weight
    if (threshold < 0) return endpoints[index] ?? null
  }
  return endpoints.at(-1) ?? null
}

/**
 * The models that routers choose from: those that may serve a request, with the figures that routers compare. It works
 * in short slices, because a catalogue has thousands of models and other requests wait in the meantime.
 */
import { setImmediate as turn } from 'node:timers/promises'
import type { Quota } from '../../callers/limits/quota.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type { RoutableModel, RoutableModels } from '../../exchange/plugin.ts'
import { type Endpoint, type Model, makesEmbeddings } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { routerOf, withVariants } from '../../protocol/routers.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { CredentialCatalog } from '../../providers/credentials/catalog.ts'
import { honours, usedOf } from '../../providers/parameters.ts'
import type { RouteCandidate } from './candidate.ts'
import { isFree } from './filters.ts'
import { namedModel } from './names.ts'
import type { Measures } from './needs.ts'
import type { RankTerms } from './rankers.ts'
import type { Restrictions } from './restrictions.ts'
import { type RouteScope, servable } from './route.ts'
import { priceOf } from './shared-candidates.ts'

interface RoutableDeps {
  readonly catalog: Catalog
  readonly credentials: Pick<CredentialCatalog, 'of'>
  readonly quota: Pick<Quota, 'limitsMoney'>
  readonly routing: {
    readonly measures: Measures & { readonly inputTokens: (request: ResponsesRequest) => number }
    terms(caller: null): RankTerms
  }
}

/** The parts that every routed exchange has. */
interface Guarded {
  readonly guarding?: { readonly restrictions: Restrictions | null } | null
}

/** Models that are checked before other requests get a turn: less than a millisecond of work. */
const PART = 200
/** Features of a request that a chosen model should support. */
const FEATURES = ['tools', 'response_format'] as const

export function createRoutableModels(deps: RoutableDeps): RoutableModels {
  const { catalog } = deps
  let known: Listing | null = null
  const listing = (): Listing => {
    const models = catalog.models()
    if (known?.models !== models) known = listingOf(models)
    return known
  }
  return {
    ids: () => listing().ids,
    freeIds: () => listing().freeIds,
    kindOf(name) {
      if (routerOf({ model: name }) !== null) return 'other'
      const model = namedModel(name, catalog, null)?.model
      if (model === undefined || !makesText(model)) return null
      return model.id === name ? 'plain' : 'other'
    },
    async of(exchange, ids, variants) {
      const scope = await scopeOf(deps, exchange)
      const test = testOf(deps, exchange.prompt, scope)
      const found: RoutableModel[] = []
      for (const [at, id] of ids.entries()) {
        if (at % PART === PART - 1) {
          await turn()
          exchange.signal.throwIfAborted()
        }
        const model = test(id, variants)
        if (model !== null) found.push(model)
      }
      return found
    },
  }
}

/** Created once per catalogue. */
interface Listing {
  readonly models: readonly Model[]
  readonly ids: readonly string[]
  readonly freeIds: readonly string[]
}

function listingOf(models: readonly Model[]): Listing {
  const ofText = models.filter(makesText)
  const free = ofText.filter(({ endpoints }) => endpoints.some(isFree))
  return { models, ids: ofText.map(({ id }) => id), freeIds: free.map(({ id }) => id) }
}

function makesText(model: Model): boolean {
  return !makesEmbeddings(model) && model.outputModalities.includes('text')
}

async function scopeOf(
  { credentials, quota, routing }: RoutableDeps,
  exchange: Exchange,
): Promise<RouteScope> {
  const { caller, dataRegion, dialect } = exchange
  const isLimited = await quota.limitsMoney(caller)
  const ownKeys = await credentials.of(caller.organizationId, caller.workspaceId)
  const restrictions = (exchange as Guarded).guarding?.restrictions ?? null
  const { keyHash } = caller
  return { ownKeys, keyHash, dataRegion, dialect, restrictions, isLimited, ...routing.measures }
}

type Test = (id: string, variants: string) => RoutableModel | null

function testOf({ catalog, routing }: RoutableDeps, request: ResponsesRequest, scope: RouteScope): Test {
  const terms = routing.terms(null)
  const { needed, files } = modalitiesOf(request)
  const outputs = request.modalities ?? []
  const used = usedOf(request, FEATURES)
  const tokens = routing.measures.inputTokens(request) + (request.max_output_tokens ?? 0)
  const mode = request.reasoning?.mode
  return (id, variants) => {
    const named = namedModel(withVariants(id, variants), catalog, mode)
    if (named === null || !makesText(named.model)) return null
    const { inputModalities, outputModalities } = named.model
    if (!needed.every(kind => inputModalities.includes(kind))) return null
    if (!outputs.every(kind => outputModalities.includes(kind))) return null
    const candidates = servable(named, request, scope, terms)
    if (candidates.length === 0) return null
    const takesFiles = !files || inputModalities.includes('file')
    return {
      id,
      prices: cheapest(candidates),
      isFree: candidates.some(({ endpoint }) => isFree(endpoint)),
      fits: takesFiles && candidates.some(({ endpoint }) => fits(endpoint, used, tokens)),
      throughput: () => throughputOf(candidates),
    }
  }

  function throughputOf(candidates: readonly RouteCandidate[]): number | null {
    const { health, nowMs } = terms
    if (health === null) return null
    let fastest: number | null = null
    for (const { endpoint, credential } of candidates) {
      const speed = health.of(endpoint, credential?.id ?? null).throughput?.percentiles(nowMs)?.p50 ?? null
      if (speed !== null && (fastest === null || speed > fastest)) fastest = speed
    }
    return fastest
  }
}

function fits(endpoint: Endpoint, used: readonly string[], tokens: number): boolean {
  const { contextLength } = endpoint
  return (contextLength === null || tokens <= contextLength) && used.every(name => honours(endpoint, name))
}

function cheapest(candidates: readonly RouteCandidate[]): RoutableModel['prices'] {
  let found: Endpoint | null = null
  for (const { endpoint } of candidates) {
    if (endpoint.pricing.isUnknown === true) continue
    if (found === null || priceOf(endpoint) < priceOf(found)) found = endpoint
  }
  if (found === null) return null
  const { prompt, completion, request } = found.pricing
  return { prompt, completion, request }
}

const KINDS: ReadonlyMap<unknown, string> = new Map([
  ['input_image', 'image'],
  ['input_audio', 'audio'],
  ['input_video', 'video'],
])

/** Modalities that a model must accept. Files are listed separately, because a plugin may turn them into text. */
function modalitiesOf({ input }: ResponsesRequest): { needed: readonly string[]; files: boolean } {
  const needed = new Set<string>()
  let files = false
  for (const item of typeof input === 'string' ? [] : input) {
    const { content, output } = item as { readonly content?: unknown; readonly output?: unknown }
    for (const parts of [content, output]) {
      if (!Array.isArray(parts)) continue
      for (const part of parts as readonly ({ readonly type?: unknown } | null)[]) {
        const kind = KINDS.get(part?.type)
        if (kind !== undefined) needed.add(kind)
        if (part?.type === 'input_file') files = true
      }
    }
  }
  return { needed: [...needed], files }
}

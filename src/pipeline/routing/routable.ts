/**
 * The models that routers choose from: those that may serve a request, with the figures that routers compare. It works
 * in short slices, because a catalogue has thousands of models and other requests wait in the meantime.
 */
import { setImmediate as turn } from 'node:timers/promises'
import type { RoutableModel, RoutableModels } from '../../exchange/plugin.ts'
import { type Endpoint, type Model, makesEmbeddings } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { routerOf, withVariants } from '../../protocol/routers.ts'
import { supportsParameter, usedParameters } from '../../providers/parameters.ts'
import { isFree } from '../../providers/price-rows.ts'
import { priceOf, type RouteCandidate } from './candidate.ts'
import { resolveModel } from './names.ts'
import { Needs } from './needs.ts'
import { listModel } from './rank.ts'
import { type RankInput, type RankInputDeps, type Routing, rankInput } from './rank-input.ts'
import type { Restrictions } from './restrictions.ts'

interface RoutableDeps extends RankInputDeps {
  readonly routing: Routing
}

/** The part of a routed exchange that is read here; null or absent: no guardrail applies. */
interface MaybeGuarded {
  readonly guarding?: { readonly restrictions: Restrictions | null } | null
}

/** Models that are checked before other requests get a turn: less than a millisecond of work. */
const MODELS_PER_SLICE = 200
/** Features of a request that a chosen model should support. */
const FEATURES = ['tools', 'response_format'] as const

export function createRoutableModels(deps: RoutableDeps): RoutableModels {
  const { catalog } = deps
  let lastListing: Listing | null = null
  const listing = (): Listing => {
    const models = catalog.models()
    if (lastListing?.models !== models) lastListing = listingOf(models)
    return lastListing
  }
  return {
    ids: () => listing().ids,
    freeIds: () => listing().freeIds,
    kindOf(name) {
      if (routerOf({ model: name }) !== null) return 'other'
      const model = resolveModel(name, catalog, null)?.model
      if (model === undefined || !makesText(model)) return null
      return model.id === name ? 'plain' : 'other'
    },
    async of(exchange, ids, variants) {
      const { prompt: request, caller, dialect, dataRegion } = exchange
      const restrictions = (exchange as MaybeGuarded).guarding?.restrictions ?? null
      const subject = { request, caller, dialect, dataRegion, restrictions, plugins: null }
      const test = testOf(deps, { ...(await rankInput(deps, subject)), exclusions: null })
      const routableModels: RoutableModel[] = []
      for (const [index, id] of ids.entries()) {
        if (index % MODELS_PER_SLICE === MODELS_PER_SLICE - 1) {
          await turn()
          exchange.signal.throwIfAborted()
        }
        const model = test(id, variants)
        if (model !== null) routableModels.push(model)
      }
      return routableModels
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
  const textModels = models.filter(makesText)
  const freeModels = textModels.filter(({ endpoints }) => endpoints.some(isFree))
  return { models, ids: textModels.map(({ id }) => id), freeIds: freeModels.map(({ id }) => id) }
}

function makesText(model: Model): boolean {
  return !makesEmbeddings(model) && model.outputModalities.includes('text')
}

type Test = (id: string, variants: string) => RoutableModel | null

function testOf({ catalog, routing }: RoutableDeps, input: RankInput): Test {
  const { request, nowMs } = input
  const needs = new Needs(input, false)
  const { modalities, hasFiles } = modalitiesOf(request)
  const outputs = request.modalities ?? []
  const usedFeatures = usedParameters(request, FEATURES)
  const tokens = routing.inputTokens(request) + (request.max_output_tokens ?? 0)
  const mode = request.reasoning?.mode
  return (id, variants) => {
    const namedModel = resolveModel(withVariants(id, variants), catalog, mode)
    if (namedModel === null || !makesText(namedModel.model)) return null
    const { inputModalities, outputModalities } = namedModel.model
    if (!modalities.every(kind => inputModalities.includes(kind))) return null
    if (!outputs.every(kind => outputModalities.includes(kind))) return null
    const candidates = listModel(namedModel, needs, input).flatMap(group => group.candidates)
    if (candidates.length === 0) return null
    const takesFiles = !hasFiles || inputModalities.includes('file')
    return {
      id,
      prices: cheapest(candidates),
      isFree: candidates.some(({ endpoint }) => isFree(endpoint)),
      fits: takesFiles && candidates.some(({ endpoint }) => fits(endpoint, usedFeatures, tokens)),
      throughput: () => throughputOf(candidates),
    }
  }

  function throughputOf(candidates: readonly RouteCandidate[]): number | null {
    const { health } = routing
    let fastest: number | null = null
    for (const { endpoint, credential } of candidates) {
      const speed = health.of(endpoint, credential?.id ?? null).throughput?.percentiles(nowMs)?.p50 ?? null
      if (speed !== null && (fastest === null || speed > fastest)) fastest = speed
    }
    return fastest
  }
}

function fits(endpoint: Endpoint, usedFeatures: readonly string[], tokens: number): boolean {
  const { contextLength } = endpoint
  return (
    (contextLength === null || tokens <= contextLength) &&
    usedFeatures.every(name => supportsParameter(endpoint, name))
  )
}

function cheapest(candidates: readonly RouteCandidate[]): RoutableModel['prices'] {
  let cheapestEndpoint: Endpoint | null = null
  for (const { endpoint } of candidates) {
    if (endpoint.pricing.isUnknown === true) continue
    if (cheapestEndpoint === null || priceOf(endpoint) < priceOf(cheapestEndpoint))
      cheapestEndpoint = endpoint
  }
  if (cheapestEndpoint === null) return null
  const { prompt, completion, request } = cheapestEndpoint.pricing
  return { prompt, completion, request }
}

const MODALITY_BY_PART: ReadonlyMap<unknown, string> = new Map([
  ['input_image', 'image'],
  ['input_audio', 'audio'],
  ['input_video', 'video'],
])

/** Modalities that a model must accept. Files are listed separately, because a plugin may turn them into text. */
function modalitiesOf({ input }: ResponsesRequest): { modalities: readonly string[]; hasFiles: boolean } {
  const modalities = new Set<string>()
  let hasFiles = false
  for (const item of typeof input === 'string' ? [] : input) {
    const { content, output } = item as { readonly content?: unknown; readonly output?: unknown }
    for (const parts of [content, output]) {
      if (!Array.isArray(parts)) continue
      for (const part of parts as readonly ({ readonly type?: unknown } | null)[]) {
        const kind = MODALITY_BY_PART.get(part?.type)
        if (kind !== undefined) modalities.add(kind)
        if (part?.type === 'input_file') hasFiles = true
      }
    }
  }
  return { modalities: [...modalities], hasFiles }
}

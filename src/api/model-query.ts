/** The query of a listing of models: filters, order and page. Pure. */
import { GatewayError } from '../errors.ts'
import { UNITS_PER_USD } from '../money.ts'
import type { DataRegion } from '../protocol/guardrails.ts'
import type { Model } from '../providers/provider.ts'

/** Page size when only an offset is given, and the largest one. */
const PAGE_DEFAULT = 500
const PAGE_MAX = 1000
const SEARCH_MAX_CHARACTERS = 256

const INPUT_MODALITIES: readonly string[] = ['text', 'image', 'file', 'audio', 'video']
const OUTPUT_MODALITIES: readonly string[] = ['text', 'image', 'audio', 'video', 'embeddings']

/** Regions by the names that clients give them. */
const REGIONS: Readonly<Record<string, DataRegion>> = { eu: 'europe', europe: 'europe', us: 'us' }
/** Filters of the interface for properties that the catalogue does not have. */
const UNKNOWN_HERE = ['category', 'arch', 'distillable'] as const

/** One model with the values that filters and orders compare. */
export interface ListedModel {
  readonly model: Model
  readonly parameters: ReadonlySet<string>
  /** Id and name in lower case. */
  readonly searchText: string
}

export type ModelFilter = (entry: ListedModel) => boolean
type Order = (a: ListedModel, b: ListedModel) => number

/** Null: not known. */
type Price = (entry: ListedModel) => number | null

const price: Price = entry => priceOf(entry, 'prompt')
const outputPrice: Price = entry => priceOf(entry, 'completion')
const context = ({ model }: ListedModel) => model.contextLength ?? 0

/** Null: the order of the catalogue, because nothing is known by which to sort. */
const ORDERS: Readonly<Record<string, Order | null>> = {
  'pricing-low-to-high': byPrice(1),
  'pricing-high-to-low': byPrice(-1),
  'context-high-to-low': (a, b) => context(b) - context(a),
  newest: (a, b) => b.model.created - a.model.created,
  'throughput-high-to-low': null,
  'latency-low-to-high': null,
  'most-popular': null,
  'top-weekly': null,
}

/** Prices of the endpoint that is tried first. */
function priceOf({ model }: ListedModel, part: 'prompt' | 'completion'): number | null {
  const pricing = model.endpoints[0]?.pricing
  return pricing?.isUnknown === true ? null : (pricing?.[part] ?? 0)
}

/** Unknown prices come last in either direction. */
function byPrice(direction: 1 | -1): Order {
  const compare = (a: number | null, b: number | null) => {
    if (a === null || b === null) return Number(a === null) - Number(b === null)
    return direction * (a - b)
  }
  return (a, b) => compare(price(a), price(b)) || compare(outputPrice(a), outputPrice(b))
}

/** The order that is asked for; null: that of the catalogue. @throws GatewayError `invalid_request` */
export function orderOf(query: URLSearchParams): Order | null {
  const sort = single(query, 'sort')
  if (sort === null || sort === '') return null
  if (!Object.hasOwn(ORDERS, sort)) throw bad('sort', `must be one of ${Object.keys(ORDERS).join(', ')}`)
  return ORDERS[sort] ?? null
}

/** All filters of the query. @throws GatewayError `invalid_request` that names the query parameter at fault. */
export function filtersOf(query: URLSearchParams): readonly ModelFilter[] {
  for (const name of UNKNOWN_HERE) {
    if (query.has(name)) throw bad(name, 'must be absent: the catalogue does not have this property')
  }
  return [...capabilities(query), ...origins(query), ...bounds(query)]
}

function capabilities(query: URLSearchParams): ModelFilter[] {
  const search = (single(query, 'q') ?? '').trim().toLowerCase()
  if (search.length > SEARCH_MAX_CHARACTERS)
    throw bad('q', `must be at most ${SEARCH_MAX_CHARACTERS} characters`)
  const parameters = words(query, 'supported_parameters', null)
  const input = words(query, 'input_modalities', INPUT_MODALITIES)
  const output = words(query, 'output_modalities', [...OUTPUT_MODALITIES, 'all']) ?? ['text']
  return [
    ({ searchText }) => search === '' || searchText.includes(search),
    entry => parameters === null || parameters.every(name => entry.parameters.has(name)),
    ({ model }) => input === null || input.every(modality => model.inputModalities.includes(modality)),
    // Most clients look for chat models; others are listed when they are named, or with `all`.
    ({ model }) =>
      output.includes('all') || output.every(modality => model.outputModalities.includes(modality)),
  ]
}

function origins(query: URLSearchParams): ModelFilter[] {
  const authors = names(query, 'model_authors')
  const providers = names(query, 'providers')
  const zdr = single(query, 'zdr')
  if (zdr !== null && zdr !== 'true' && zdr !== 'false') throw bad('zdr', 'must be true or false')
  const region = single(query, 'region')
  if (region !== null && !Object.hasOwn(REGIONS, region)) throw bad('region', 'must be eu or us')
  const wanted = region === null ? null : (REGIONS[region] ?? null)
  return [
    ({ model }) => authors === null || authors.has(model.id.slice(0, model.id.indexOf('/')).toLowerCase()),
    ({ model }) =>
      providers === null ||
      model.endpoints.some(
        ({ provider }) => providers.has(provider.slug) || providers.has(provider.name.toLowerCase()),
      ),
    ({ model }) => zdr !== 'true' || model.endpoints.some(endpoint => endpoint.zdr),
    entry => wanted === null || isInRegion(entry, wanted),
  ]
}

/** True if an endpoint of the model keeps data in the region. */
export function isInRegion({ model }: ListedModel, region: DataRegion): boolean {
  return model.endpoints.some(endpoint => endpoint.region === region)
}

function bounds(query: URLSearchParams): ModelFilter[] {
  const context = integer(query, 'context', 1, Number.MAX_SAFE_INTEGER)
  const between = (least: string, most: string, value: Price): ModelFilter => {
    const from = perMillion(query, least)
    const to = perMillion(query, most)
    if (from === null && to === null) return () => true
    return entry => {
      const found = value(entry)
      return found !== null && (from === null || found >= from) && (to === null || found <= to)
    }
  }
  return [
    between('min_price', 'max_price', price),
    between('min_output_price', 'max_output_price', outputPrice),
    ({ model }) => context === null || (model.contextLength ?? 0) >= context,
  ]
}

/** USD for a million tokens, as the price of one. */
function perMillion(query: URLSearchParams, name: string): number | null {
  const text = single(query, name)
  if (text === null) return null
  if (!/^\d{1,9}(?:\.\d{1,9})?$/.test(text)) throw bad(name, 'must be a number of USD per million tokens')
  return Math.round(Number(text) * (UNITS_PER_USD / 1e6))
}

/** A list of slugs or names, in lower case. */
function names(query: URLSearchParams, name: string): ReadonlySet<string> | null {
  const text = single(query, name)
  if (text === null || text === '') return null
  const list = text.split(',').map(word => word.trim().toLowerCase())
  if (!list.every(word => word !== '' && word.length <= 100))
    throw bad(name, 'must be names, separated by commas')
  return new Set(list)
}

/** The page that is asked for; to infinity where none is. */
export function page(query: URLSearchParams): { readonly from: number; readonly to: number } {
  const offset = integer(query, 'offset', 0, Number.MAX_SAFE_INTEGER)
  const limit = integer(query, 'limit', 1, PAGE_MAX)
  const from = offset ?? 0
  if (offset === null && limit === null) return { from, to: Number.POSITIVE_INFINITY }
  return { from, to: from + (limit ?? PAGE_DEFAULT) }
}

export function nextPage(query: URLSearchParams, offset: number, limit: number): string {
  const next = new URLSearchParams(query)
  next.set('offset', String(offset))
  next.set('limit', String(limit))
  return `/v1/models?${next}`
}

export function single(query: URLSearchParams, name: string): string | null {
  if (query.getAll(name).length > 1) throw bad(name, 'must be given once')
  return query.get(name)
}

function integer(query: URLSearchParams, name: string, minimum: number, maximum: number): number | null {
  const text = single(query, name)
  if (text === null) return null
  const value = Number(text)
  if (!/^\d{1,16}$/.test(text) || value < minimum || value > maximum) {
    const range =
      maximum === Number.MAX_SAFE_INTEGER ? `not less than ${minimum}` : `from ${minimum} to ${maximum}`
    throw bad(name, `must be an integer ${range}`)
  }
  return value
}

/** A comma-separated list; `known` null takes any word. */
function words(
  query: URLSearchParams,
  name: string,
  known: readonly string[] | null,
): readonly string[] | null {
  const text = single(query, name)
  if (text === null || text === '') return null
  const list = text.split(',').map(word => word.trim())
  if (known === null) {
    if (!list.every(word => /^[a-z0-9_]{1,64}$/.test(word)))
      throw bad(name, 'must be parameter names, separated by commas')
  } else if (!list.every(word => known.includes(word))) {
    throw bad(name, `must be some of ${known.join(', ')}`)
  }
  return list
}

function bad(name: string, problem: string): GatewayError {
  return new GatewayError('invalid_request', `${name}: ${problem}`)
}

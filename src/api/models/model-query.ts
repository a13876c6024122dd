/** Query parameters for listing models: filters, order and page. Pure. */
import { refuseField } from '../../base/errors.ts'
import { UNITS_PER_USD } from '../../base/money.ts'
import { DATA_REGIONS, type DataRegion } from '../../protocol/data-regions.ts'
import { MODEL_SEARCH_MAX_CHARS, MODELS_PAGE_MAX } from '../../protocol/limits.ts'
import type { Model } from '../../protocol/provider.ts'
import { type EndpointFigures, type MeasuredEndpoints, NO_FIGURES } from '../../providers/endpoint-figures.ts'
import { hasParameter } from './model-documents.ts'

/** Page size if only an offset is sent, and the maximum. */
const DEFAULT_PAGE_SIZE = 500

const INPUT_MODALITIES: readonly string[] = ['text', 'image', 'file', 'audio', 'video']
const OUTPUT_MODALITIES: readonly string[] = [
  'text',
  'image',
  'audio',
  'video',
  'embeddings',
  'rerank',
  'speech',
  'transcription',
]

/** Regions by the names that clients use. */
const REGIONS_BY_NAME: Readonly<Record<string, DataRegion>> = {
  eu: 'europe',
  ...Object.fromEntries(DATA_REGIONS.map(region => [region, region])),
}
/** Filters for properties that this catalogue does not have. */
const UNSUPPORTED_FILTERS = ['category', 'arch', 'distillable'] as const

export type ModelFilter = (model: Model) => boolean
export type Order = (a: Model, b: Model) => number

/** Null: unknown. */
type ModelValue = (model: Model) => number | null

const price: ModelValue = model => priceOf(model, 'prompt')
const outputPrice: ModelValue = model => priceOf(model, 'completion')
const context = ({ contextLength }: Model) => contextLength ?? 0

/** Orders by measured values of the best endpoint. */
const MEASURED_ORDERS: Readonly<Record<string, (measures: MeasuredEndpoints) => Order>> = {
  'throughput-high-to-low': measures =>
    byValue(
      -1,
      best(measures, Math.max, ({ throughputLast30m }) => throughputLast30m?.p50 ?? null),
    ),
  'latency-low-to-high': measures =>
    byValue(
      1,
      best(measures, Math.min, ({ latencyLast30m }) => latencyLast30m?.p50 ?? null),
    ),
}

/** Null: the order of the catalogue, because there is nothing to sort by. */
const ORDERS: Readonly<Record<string, Order | null>> = {
  'pricing-low-to-high': byPrice(1),
  'pricing-high-to-low': byPrice(-1),
  'context-high-to-low': (a, b) => context(b) - context(a),
  newest: (a, b) => b.created - a.created,
  'most-popular': null,
  'top-weekly': null,
  'intelligence-high-to-low': null,
  'coding-high-to-low': null,
  'agentic-high-to-low': null,
  'design-arena-elo-high-to-low': null,
}

/** Prices of the first endpoint in the row. */
function priceOf({ endpoints }: Model, part: 'prompt' | 'completion'): number | null {
  const pricing = endpoints[0]?.pricing
  return pricing?.isUnknown === true ? null : (pricing?.[part] ?? 0)
}

/** Unknown values come last in either direction. */
function byValue(direction: 1 | -1, value: ModelValue): Order {
  return (first, second) => {
    const a = value(first)
    const b = value(second)
    if (a === null || b === null) return Number(a === null) - Number(b === null)
    return direction * (a - b)
  }
}

function byPrice(direction: 1 | -1): Order {
  const input = byValue(direction, price)
  const output = byValue(direction, outputPrice)
  return (a, b) => input(a, b) || output(a, b)
}

function best(
  measures: MeasuredEndpoints,
  choose: (...values: number[]) => number,
  figure: (figures: EndpointFigures) => number | null,
): ModelValue {
  return ({ endpoints }) => {
    const values = endpoints.flatMap(endpoint => {
      const figures = measures.of(endpoint)
      const value = figures === null ? null : figure(figures)
      return value === null ? [] : [value]
    })
    return values.length === 0 ? null : choose(...values)
  }
}

/** The requested order; null: the catalogue's order. @throws GatewayError `invalid_request` */
export function orderOf(query: URLSearchParams, measures: MeasuredEndpoints = NO_FIGURES): Order | null {
  const sort = singleParameter(query, 'sort')
  if (sort === null || sort === '') return null
  const measuredOrder = Object.hasOwn(MEASURED_ORDERS, sort) ? MEASURED_ORDERS[sort] : undefined
  if (measuredOrder !== undefined) return measuredOrder(measures)
  if (!Object.hasOwn(ORDERS, sort)) {
    throw refuseField(
      'sort',
      `must be one of ${[...Object.keys(ORDERS), ...Object.keys(MEASURED_ORDERS)].join(', ')}`,
    )
  }
  return ORDERS[sort] ?? null
}

/** All filters of the query. @throws GatewayError `invalid_request` that names the invalid parameter. */
export function filtersOf(query: URLSearchParams, nowSeconds: number): readonly ModelFilter[] {
  for (const name of UNSUPPORTED_FILTERS) {
    if (query.has(name))
      throw refuseField(name, 'must be left out: the catalogue does not have this property')
  }
  return [
    ...capabilityFilters(query),
    ...originFilters(query),
    ...boundFilters(query),
    ...ageFilters(query, nowSeconds),
    ...indexFilters(query),
  ]
}

function capabilityFilters(query: URLSearchParams): ModelFilter[] {
  const search = (singleParameter(query, 'q') ?? '').trim().toLowerCase()
  if (search.length > MODEL_SEARCH_MAX_CHARS)
    throw refuseField('q', `must be at most ${MODEL_SEARCH_MAX_CHARS} characters`)
  const parameters = words(query, 'supported_parameters', null)
  const input = words(query, 'input_modalities', INPUT_MODALITIES)
  const output = words(query, 'output_modalities', [...OUTPUT_MODALITIES, 'all']) ?? ['text']
  const filters: ModelFilter[] = []
  if (search !== '') {
    filters.push(({ id, name }) => id.toLowerCase().includes(search) || name.toLowerCase().includes(search))
  }
  if (parameters !== null) {
    filters.push(({ endpoints }) =>
      parameters.every(name => endpoints.some(endpoint => hasParameter(endpoint, name))),
    )
  }
  if (input !== null) {
    filters.push(({ inputModalities }) => input.every(modality => inputModalities.includes(modality)))
  }
  // Most clients look for chat models. Others are listed if they are named, or with `all`.
  if (!output.includes('all')) {
    filters.push(({ outputModalities }) => output.every(modality => outputModalities.includes(modality)))
  }
  return filters
}

function originFilters(query: URLSearchParams): ModelFilter[] {
  const authors = names(query, 'model_authors')
  const providers = names(query, 'providers')
  const zdr = singleParameter(query, 'zdr')
  if (zdr !== null && zdr !== 'true' && zdr !== 'false') throw refuseField('zdr', 'must be true or false')
  const region = singleParameter(query, 'region')
  if (region !== null && !Object.hasOwn(REGIONS_BY_NAME, region))
    throw refuseField('region', 'must be eu or us')
  const wantedRegion = region === null ? null : (REGIONS_BY_NAME[region] ?? null)
  const filters: ModelFilter[] = []
  if (authors !== null) filters.push(({ id }) => authors.has(id.slice(0, id.indexOf('/')).toLowerCase()))
  if (providers !== null) {
    filters.push(({ endpoints }) =>
      endpoints.some(
        ({ provider }) => providers.has(provider.slug) || providers.has(provider.name.toLowerCase()),
      ),
    )
  }
  if (zdr === 'true') filters.push(({ endpoints }) => endpoints.some(endpoint => endpoint.zdr))
  if (wantedRegion !== null) filters.push(model => isInRegion(model, wantedRegion))
  return filters
}

/** True if an endpoint of the model keeps the data of requests in the region. */
export function isInRegion({ endpoints }: Model, region: DataRegion): boolean {
  return endpoints.some(endpoint => endpoint.region === region)
}

function boundFilters(query: URLSearchParams): ModelFilter[] {
  const context = integer(query, 'context', 1, Number.MAX_SAFE_INTEGER)
  const between = (minName: string, maxName: string, value: ModelValue): ModelFilter[] => {
    const from = perMillion(query, minName)
    const to = perMillion(query, maxName)
    if (from === null && to === null) return []
    const isWithin: ModelFilter = model => {
      const number = value(model)
      return number !== null && (from === null || number >= from) && (to === null || number <= to)
    }
    return [isWithin]
  }
  return [
    ...between('min_price', 'max_price', price),
    ...between('min_output_price', 'max_output_price', outputPrice),
    ...(context === null ? [] : [({ contextLength }: Model) => (contextLength ?? 0) >= context]),
  ]
}

const DAY_SECONDS = 86_400

/** Days since the creation of a model, inclusive. */
function ageFilters(query: URLSearchParams, nowSeconds: number): ModelFilter[] {
  const minAge = decimal(query, 'min_age_days')
  const maxAge = decimal(query, 'max_age_days')
  const filters: ModelFilter[] = []
  if (minAge !== null) filters.push(({ created }) => nowSeconds - created >= minAge * DAY_SECONDS)
  if (maxAge !== null) filters.push(({ created }) => nowSeconds - created <= maxAge * DAY_SECONDS)
  return filters
}

const INDEX_NAMES = ['intelligence_index', 'coding_index', 'agentic_index', 'tool_success_rate'] as const

/** No model has an index here, so a limit on an index matches none. */
function indexFilters(query: URLSearchParams): ModelFilter[] {
  const bounds = INDEX_NAMES.flatMap(name => [decimal(query, `min_${name}`), decimal(query, `max_${name}`)])
  return bounds.every(bound => bound === null) ? [] : [() => false]
}

function decimal(query: URLSearchParams, name: string): number | null {
  const text = singleParameter(query, name)
  if (text === null) return null
  if (!/^\d{1,9}(?:\.\d{1,9})?$/.test(text)) throw refuseField(name, 'must be a number of at least 0')
  return Number(text)
}

/** USD per million tokens, converted to the price of one. */
function perMillion(query: URLSearchParams, name: string): number | null {
  const text = singleParameter(query, name)
  if (text === null) return null
  if (!/^\d{1,9}(?:\.\d{1,9})?$/.test(text))
    throw refuseField(name, 'must be a price in USD per million tokens')
  return Math.round(Number(text) * (UNITS_PER_USD / 1e6))
}

/** A list of slugs or names, in lower case. */
function names(query: URLSearchParams, name: string): ReadonlySet<string> | null {
  const text = singleParameter(query, name)
  if (text === null || text === '') return null
  const list = text.split(',').map(word => word.trim().toLowerCase())
  if (!list.every(word => word !== '' && word.length <= 100))
    throw refuseField(name, 'must be a comma-separated list of names')
  return new Set(list)
}

/** The requested page; unlimited if none is requested. */
export function pageOf(query: URLSearchParams): { readonly from: number; readonly to: number } {
  const offset = integer(query, 'offset', 0, Number.MAX_SAFE_INTEGER)
  const limit = integer(query, 'limit', 1, MODELS_PAGE_MAX)
  const from = offset ?? 0
  if (offset === null && limit === null) return { from, to: Number.POSITIVE_INFINITY }
  return { from, to: from + (limit ?? DEFAULT_PAGE_SIZE) }
}

export function nextPage(query: URLSearchParams, offset: number, limit: number): string {
  const next = new URLSearchParams(query)
  next.set('offset', String(offset))
  next.set('limit', String(limit))
  return `/v1/models?${next}`
}

export function singleParameter(query: URLSearchParams, name: string): string | null {
  if (query.getAll(name).length > 1) throw refuseField(name, 'must be given once')
  return query.get(name)
}

function integer(query: URLSearchParams, name: string, minimum: number, maximum: number): number | null {
  const text = singleParameter(query, name)
  if (text === null) return null
  const value = Number(text)
  if (!/^\d{1,16}$/.test(text) || value < minimum || value > maximum) {
    const range =
      maximum === Number.MAX_SAFE_INTEGER ? `of at least ${minimum}` : `from ${minimum} to ${maximum}`
    throw refuseField(name, `must be an integer ${range}`)
  }
  return value
}

/** A comma-separated list; `known` null accepts any word. */
function words(
  query: URLSearchParams,
  name: string,
  known: readonly string[] | null,
): readonly string[] | null {
  const text = singleParameter(query, name)
  if (text === null || text === '') return null
  const list = text.split(',').map(word => word.trim())
  if (known === null) {
    if (!list.every(word => /^[a-z0-9_]{1,64}$/.test(word)))
      throw refuseField(name, 'must be parameter names, separated by commas')
  } else if (!list.every(word => known.includes(word))) {
    throw refuseField(name, `must be one or more of ${known.join(', ')}`)
  }
  return list
}

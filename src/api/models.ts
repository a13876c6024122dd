/**
 * The public catalogue: GET /models and its relatives, GET /providers. Documents are written once, together with the
 * catalogue; a request only filters them, and one without filters gets the same bytes as the one before.
 */
import { createHash } from 'node:crypto'
import { callerOf } from '../access/keys.ts'
import { GatewayError } from '../errors.ts'
import type { Restrictions } from '../gateway/routing/rank.ts'
import type { DataRegion } from '../protocol/guardrails.ts'
import type { Caller } from '../protocol/records.ts'
import type { Catalog } from '../providers/catalog.ts'
import type { Model } from '../providers/provider.ts'
import type { DataRegionOf } from './inference.ts'
import {
  endpointDocument,
  endpointsDocument,
  modelDocument,
  parametersOf,
  providerDocument,
} from './model-documents.ts'
import {
  filtersOf,
  isInRegion,
  type ListedModel,
  type ModelFilter,
  nextPage,
  orderOf,
  page,
} from './model-query.ts'
import type { ApiRequest, Handler, Reply } from './operation.ts'

interface Listed extends ListedModel {
  /** Its document as JSON. */
  readonly json: string
}

/** A document as it leaves. */
export interface WrittenDocument {
  readonly json: string | Buffer
  /** Changes with the document; null: it depends on who asks. */
  readonly etag: string | null
}

/** Filters of a listing that are not in its query. */
export interface ListingTerms {
  /** Null: models of everywhere. */
  readonly region: DataRegion | null
  /** Null: models for everybody. */
  readonly allows: ((model: Model) => boolean) | null
}

export interface Listing {
  /** One page of models. @throws GatewayError `invalid_request` that names the query parameter at fault. */
  models(query: URLSearchParams, terms?: ListingTerms): WrittenDocument
  /** How many models a listing without pages would have. @throws as `models` */
  count(query: URLSearchParams, terms?: ListingTerms): object
  /** One model, at top level and again as `data`; null when there is none. */
  model(id: string): object | null
  /** The endpoints of a model; null when there is no such model. */
  endpoints(id: string): object | null
  /** All endpoints that keep nothing. */
  zeroRetention(): WrittenDocument
  providers(): object
}

const EVERYBODY: ListingTerms = { region: null, allows: null }

export function createListing(catalog: Catalog): Listing {
  const all = catalog.models().map(toListed)
  const version = digest(all.map(({ json }) => json).join())
  const whole = new Map<DataRegion | null, Buffer>()
  const found = (query: URLSearchParams, { region, allows }: ListingTerms): readonly Listed[] => {
    const wanted: ModelFilter[] = [...filtersOf(query)]
    if (region !== null) wanted.push(entry => isInRegion(entry, region))
    if (allows !== null) wanted.push(({ model }) => allows(model))
    return all.filter(entry => wanted.every(matches => matches(entry)))
  }
  const written = (query: URLSearchParams, terms: ListingTerms): string => {
    const order = orderOf(query)
    const entries = found(query, terms)
    const sorted = order === null ? entries : entries.toSorted(order)
    const { from, to } = page(query)
    const next = to < sorted.length ? nextPage(query, to, to - from) : null
    const data = sorted.slice(from, to).map(({ json }) => json)
    return `{"data":[${data.join(',')}],"total_count":${sorted.length},"links":${JSON.stringify({ next })}}`
  }
  const retaining = catalog
    .models()
    .flatMap(model => model.endpoints.filter(({ zdr }) => zdr).map(each => endpointDocument(model, each)))
  const zeroRetention = { json: JSON.stringify({ data: retaining }), etag: `"${version}-zdr"` }
  const providers = { data: catalog.providers().map(providerDocument) }
  return {
    models(query, terms = EVERYBODY) {
      const { region, allows } = terms
      if (allows !== null) return { json: written(query, terms), etag: null }
      const etag = `"${version}-${digest(`${region} ${query}`)}"`
      if (query.size > 0) return { json: written(query, terms), etag }
      let bytes = whole.get(region)
      if (bytes === undefined) {
        bytes = Buffer.from(written(query, terms))
        whole.set(region, bytes)
      }
      return { json: bytes, etag }
    },
    count: (query, terms = EVERYBODY) => ({ data: { count: found(query, terms).length } }),
    model(id) {
      const model = catalog.model(id)
      if (model === undefined) return null
      const record = documentOf(model)
      const owner = id.slice(0, id.indexOf('/'))
      return { ...record, object: 'model', owned_by: owner, data: record }
    },
    endpoints(id) {
      const model = catalog.model(id)
      return model === undefined ? null : { data: endpointsDocument(model) }
    },
    zeroRetention: () => zeroRetention,
    providers: () => providers,
  }
}

function toListed(model: Model): Listed {
  return {
    model,
    parameters: parametersIn(model),
    searchText: `${model.id}\n${model.name}`.toLowerCase(),
    json: JSON.stringify(documentOf(model)),
  }
}

function documentOf(model: Model): object {
  return modelDocument(model, [...parametersIn(model)].sort())
}

function parametersIn(model: Model): ReadonlySet<string> {
  return new Set(model.endpoints.flatMap(parametersOf))
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 16)
}

export interface ListingDeps {
  readonly listing: Listing
  readonly dataRegionOf: DataRegionOf
  /** The restrictions of the caller's guardrails; null: none. */
  readonly restrictionsOf: (caller: Caller) => Restrictions | null | Promise<Restrictions | null>
}

export function listModels({ listing, dataRegionOf }: ListingDeps): Handler {
  return (request, reply) => {
    const terms = { region: dataRegionOf(request.host), allows: null }
    answer(request, reply, listing.models(request.query, terms))
  }
}

/** Models of vectors alone. */
export function listEmbeddingModels({ listing, dataRegionOf }: ListingDeps): Handler {
  return (request, reply) => {
    const query = new URLSearchParams(request.query)
    query.set('output_modalities', 'embeddings')
    answer(request, reply, listing.models(query, { region: dataRegionOf(request.host), allows: null }))
  }
}

/** The models that the guardrails of the caller allow. */
export function listOwnModels(deps: ListingDeps): Handler {
  return async (request, reply) => {
    const restrictions = await deps.restrictionsOf(callerOf(request.key))
    const allows =
      restrictions === null
        ? null
        : ({ endpoints }: Model) =>
            endpoints.some(endpoint => restrictions.excludedBy({ endpoint, credential: null }) === null)
    const terms = { region: deps.dataRegionOf(request.host), allows }
    answer(request, reply, deps.listing.models(request.query, terms))
  }
}

export function countModels({ listing, dataRegionOf }: ListingDeps): Handler {
  return (request, reply) => {
    reply.json(200, listing.count(request.query, { region: dataRegionOf(request.host), allows: null }))
  }
}

/** One model by author and slug, or by its whole id. */
export function findModel({ listing }: ListingDeps): Handler {
  return (request, reply) => reply.json(200, foundOr404(listing.model(idOf(request))))
}

export function listEndpoints({ listing }: ListingDeps): Handler {
  return (request, reply) => reply.json(200, foundOr404(listing.endpoints(idOf(request))))
}

export function listZeroRetention({ listing }: ListingDeps): Handler {
  return (request, reply) => answer(request, reply, listing.zeroRetention())
}

export function listProviders({ listing }: ListingDeps): Handler {
  return (_request, reply) => reply.json(200, listing.providers())
}

function idOf({ params }: ApiRequest): string {
  return params.get('model') ?? `${params.get('author')}/${params.get('slug')}`
}

function foundOr404(document: object | null): object {
  if (document === null) throw new GatewayError('not_found', 'Model not found: GET /v1/models lists the ids')
  return document
}

/** The document, or only the word that the client has it already. */
function answer({ headers }: ApiRequest, reply: Reply, { json, etag }: WrittenDocument): void {
  if (etag === null) {
    reply.written(json)
    return
  }
  reply.header('ETag', etag)
  reply.header('Cache-Control', 'private, no-cache')
  if (hasTag(headers.get('if-none-match'), etag)) reply.notModified()
  else reply.written(json)
}

function hasTag(known: string | undefined, etag: string): boolean {
  if (known === undefined) return false
  return known.split(',').some(tag => tag.trim() === '*' || tag.trim().replace(/^W\//, '') === etag)
}

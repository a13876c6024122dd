/**
 * The public catalogue: GET /models and its variants, GET /providers. Model documents are serialised once per
 * catalogue; a request only selects among them, and requests without filters all get the same bytes.
 */
import { createHash } from 'node:crypto'
import { type Clock, systemClock, unixSeconds } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import { callerOf } from '../../callers/keys.ts'
import type { Restrictions } from '../../pipeline/routing/restrictions.ts'
import type { DataRegion } from '../../protocol/data-regions.ts'
import type { Model } from '../../protocol/provider.ts'
import type { Caller } from '../../protocol/records.ts'
import { type Catalog, listedModels } from '../../providers/catalog.ts'
import { type MeasuredEndpoints, NO_FIGURES } from '../../providers/endpoint-figures.ts'
import { type PackedTexts, packTexts } from '../../providers/shared-catalogue.ts'
import type { ApiRequest, Handler, Reply } from '../operation.ts'
import type { DataRegionOf } from '../request-facts.ts'
import { googleModel, googlePage } from './google-models.ts'
import { messagesModel, messagesPage, wantsMessagesShape } from './messages-models.ts'
import { endpointDocument, endpointsDocument, modelDocument, providerDocument } from './model-documents.ts'
import {
  filtersOf,
  isInRegion,
  type ModelFilter,
  nextPage,
  type Order,
  orderOf,
  pageOf,
} from './model-query.ts'

/** A document in serialized form. */
export interface WrittenDocument {
  readonly json: string | Buffer
  /** Changes whenever the document changes; null: the document depends on the caller. */
  readonly etag: string | null
}

/** Filters of a listing that do not come from its query. */
interface ListingTerms {
  /** Null: models in all regions. */
  readonly region: DataRegion | null
  /** Null: no restriction. */
  readonly allows: ((model: Model) => boolean) | null
  /** See messages-models.ts. */
  readonly inMessagesShape?: boolean
}

export interface Listing {
  /** One page of models. @throws GatewayError `invalid_request` that names the query parameter at fault. */
  models(query: URLSearchParams, terms?: ListingTerms): WrittenDocument
  /** Number of models in the listing without paging. @throws like `models` */
  count(query: URLSearchParams, terms?: ListingTerms): object
  /** One model, at top level and again as `data`; null if it does not exist. */
  model(id: string, inMessagesShape?: boolean): object | null
  /** One page in the form of Google's API. @throws like `models` */
  inGoogleShape(query: URLSearchParams, region: DataRegion | null): object
  /** One model in that form; null if it does not exist. */
  googleModel(id: string): object | null
  /** The endpoints of a model; null if it does not exist. */
  endpoints(id: string): object | null
  /** All endpoints that keep no data. */
  zeroRetention(): WrittenDocument
  providers(): object
}

interface ListingOptions {
  /** Documents of the models that are already serialized. Default: they are serialized now. */
  readonly documents?: PackedTexts
  /** Changes whenever the documents change. */
  readonly version?: string
  readonly measures?: MeasuredEndpoints
  readonly clock?: Clock
}

const NO_TERMS: ListingTerms = { region: null, allows: null }
/** Maximum cached listings: one for each region. */
const MAX_CACHED_LISTINGS = 3
const LIST_START = '{"data":['

/** A digest for ETags and versions. */
export function shortDigest(content: string | Uint8Array): string {
  return createHash('sha256').update(content).digest('hex').slice(0, 16)
}

export function createListing(catalog: Catalog, options: ListingOptions = {}): Listing {
  const { measures = NO_FIGURES, clock = systemClock } = options
  const models = listedModels(catalog)
  const documents = options.documents ?? packDocuments(models)
  const version = options.version ?? shortDigest(new Uint8Array(documents.bytes))
  const cachedListings = new Map<DataRegion | null, Buffer>()
  const matchingIndexes = (query: URLSearchParams, { region, allows }: ListingTerms): readonly number[] => {
    const filters: ModelFilter[] = [...filtersOf(query, unixSeconds(clock))]
    if (region !== null) filters.push(model => isInRegion(model, region))
    if (allows !== null) filters.push(allows)
    const indexes: number[] = []
    for (const [index, model] of models.entries()) {
      if (filters.every(matches => matches(model))) indexes.push(index)
    }
    return indexes
  }
  const serialize = (query: URLSearchParams, terms: ListingTerms): Buffer => {
    const order = orderOf(query, measures)
    const indexes = matchingIndexes(query, terms)
    const sorted = order === null ? indexes : sortedBy(indexes, models, order)
    if (terms.inMessagesShape === true) {
      const pageModels = sorted.flatMap(index => models[index] ?? [])
      return Buffer.from(JSON.stringify(messagesPage(pageModels, query)))
    }
    const { from, to } = pageOf(query)
    const next = to < sorted.length ? nextPage(query, to, to - from) : null
    const end = `],"total_count":${sorted.length},"links":${JSON.stringify({ next })}}`
    return listBytes(documents, sorted.slice(from, to), end)
  }
  let zdrDocument: WrittenDocument | null = null
  return {
    models(query, terms = NO_TERMS) {
      const { region, allows, inMessagesShape = false } = terms
      if (allows !== null) return { json: serialize(query, terms), etag: null }
      const etag = `"${version}-${shortDigest(`${region} ${inMessagesShape} ${query}`)}"`
      if (query.size > 0 || inMessagesShape) return { json: serialize(query, terms), etag }
      let bytes = cachedListings.get(region)
      if (bytes === undefined) {
        bytes = serialize(query, terms)
        if (cachedListings.size < MAX_CACHED_LISTINGS) cachedListings.set(region, bytes)
      }
      return { json: bytes, etag }
    },
    count: (query, terms = NO_TERMS) => ({ data: { count: matchingIndexes(query, terms).length } }),
    model(id, inMessagesShape = false) {
      const model = catalog.model(id)
      if (model === undefined) return null
      if (inMessagesShape) return messagesModel(model)
      const record = modelDocument(model)
      const [owner] = model.id.split('/')
      return { ...record, object: 'model', owned_by: owner, data: record }
    },
    inGoogleShape: (query, region) =>
      googlePage(region === null ? models : models.filter(model => isInRegion(model, region)), query),
    googleModel(id) {
      const model = catalog.model(id)
      return model === undefined ? null : googleModel(model)
    },
    endpoints(id) {
      const model = catalog.model(id)
      return model === undefined ? null : { data: endpointsDocument(model, measures) }
    },
    zeroRetention() {
      zdrDocument ??= {
        json: JSON.stringify({
          data: catalog
            .models()
            .flatMap(model =>
              model.endpoints
                .filter(({ zdr }) => zdr)
                .map(endpoint => endpointDocument(model, endpoint, NO_FIGURES)),
            ),
        }),
        etag: `"${version}-zdr"`,
      }
      return zdrDocument
    },
    providers: () => ({ data: catalog.providers().map(providerDocument) }),
  }
}

/**
 * The documents of models in the form that a listing copies: each ends in a comma, so that neighbours can be copied at
 * once.
 */
export function packDocuments(models: readonly Model[]): PackedTexts {
  return packTexts(models.map(model => `${JSON.stringify(modelDocument(model))},`))
}

/** A listing of these documents, without the last comma. */
function listBytes({ bytes, ends }: PackedTexts, indexes: readonly number[], end: string): Buffer {
  const startOf = (index: number): number => (index === 0 ? 0 : (ends[index - 1] ?? 0))
  const size = indexes.reduce((sum, index) => sum + (ends[index] ?? 0) - startOf(index), 0)
  const documentBytes = Math.max(0, size - 1)
  const target = Buffer.allocUnsafe(LIST_START.length + documentBytes + Buffer.byteLength(end))
  let offset = target.write(LIST_START)
  const source = new Uint8Array(bytes)
  for (let first = 0; first < indexes.length; ) {
    let last = first
    while (indexes[last + 1] === (indexes[last] ?? 0) + 1) last++
    const run = source.subarray(startOf(indexes[first] ?? 0), ends[indexes[last] ?? 0] ?? 0)
    target.set(run, offset)
    offset += run.length
    first = last + 1
  }
  target.write(end, LIST_START.length + documentBytes)
  return target
}

/** The sort is stable, so equal models keep the order of the catalogue. */
function sortedBy(indexes: readonly number[], models: readonly Model[], order: Order): readonly number[] {
  return indexes.toSorted((a, b) => {
    const [first, second] = [models[a], models[b]]
    return first === undefined || second === undefined ? 0 : order(first, second)
  })
}

/** A listing whose catalogue can be replaced while requests run. */
export class LiveListing implements Listing {
  #current: Listing

  constructor(first: Listing) {
    this.#current = first
  }

  replace(next: Listing): void {
    this.#current = next
  }

  models(query: URLSearchParams, terms?: ListingTerms): WrittenDocument {
    return this.#current.models(query, terms)
  }

  count(query: URLSearchParams, terms?: ListingTerms): object {
    return this.#current.count(query, terms)
  }

  model(id: string, inMessagesShape?: boolean): object | null {
    return this.#current.model(id, inMessagesShape)
  }

  inGoogleShape(query: URLSearchParams, region: DataRegion | null): object {
    return this.#current.inGoogleShape(query, region)
  }

  googleModel(id: string): object | null {
    return this.#current.googleModel(id)
  }

  endpoints(id: string): object | null {
    return this.#current.endpoints(id)
  }

  zeroRetention(): WrittenDocument {
    return this.#current.zeroRetention()
  }

  providers(): object {
    return this.#current.providers()
  }
}

export interface ListingDeps {
  readonly listing: Listing
  readonly dataRegionOf: DataRegionOf
  /** The restrictions of the caller's guardrails; null: none. */
  readonly restrictionsOf: (caller: Caller) => Restrictions | null | Promise<Restrictions | null>
}

export function listModels({ listing, dataRegionOf }: ListingDeps): Handler {
  return (request, reply) => {
    const inMessagesShape = wantsMessagesShape(request.headers)
    const terms = { region: dataRegionOf(request.host), allows: null, inMessagesShape }
    sendWritten(request, reply, listing.models(request.query, terms))
  }
}

/** Models that create embeddings. */
export function listEmbeddingModels({ listing, dataRegionOf }: ListingDeps): Handler {
  return (request, reply) => {
    const query = new URLSearchParams(request.query)
    query.set('output_modalities', 'embeddings')
    sendWritten(request, reply, listing.models(query, { region: dataRegionOf(request.host), allows: null }))
  }
}

/** The models that the caller's guardrails allow. */
export function listOwnModels(deps: ListingDeps): Handler {
  return async (request, reply) => {
    const restrictions = await deps.restrictionsOf(callerOf(request.key))
    const allows =
      restrictions === null
        ? null
        : ({ endpoints }: Model) =>
            endpoints.some(endpoint => restrictions.excludedBy({ endpoint, credential: null }) === null)
    const inMessagesShape = wantsMessagesShape(request.headers)
    const terms = { region: deps.dataRegionOf(request.host), allows, inMessagesShape }
    sendWritten(request, reply, deps.listing.models(request.query, terms))
  }
}

export function countModels({ listing, dataRegionOf }: ListingDeps): Handler {
  return (request, reply) => {
    reply.json(200, listing.count(request.query, { region: dataRegionOf(request.host), allows: null }))
  }
}

/** One model by author and slug, or by its full id. */
export function findModel({ listing }: ListingDeps): Handler {
  return (request, reply) => {
    const model = listing.model(idOf(request), wantsMessagesShape(request.headers))
    reply.json(200, requireModel(model))
  }
}

export function listEndpoints({ listing }: ListingDeps): Handler {
  return (request, reply) => reply.json(200, requireModel(listing.endpoints(idOf(request))))
}

export function listZeroRetention({ listing }: ListingDeps): Handler {
  return (request, reply) => sendWritten(request, reply, listing.zeroRetention())
}

export function listProviders({ listing }: ListingDeps): Handler {
  return (_request, reply) => reply.json(200, listing.providers())
}

function idOf({ params }: ApiRequest): string {
  return params.get('model') ?? `${params.get('author')}/${params.get('slug')}`
}

function requireModel(document: object | null): object {
  if (document === null) throw new GatewayError('not_found', 'Model not found: GET /v1/models lists the ids')
  return document
}

/** Sends the document, or 304 if the client already has it. */
export function sendWritten(
  { headers }: Pick<ApiRequest, 'headers'>,
  reply: Reply,
  { json, etag }: WrittenDocument,
  contentType?: string,
): void {
  if (etag === null) {
    reply.written(json, contentType)
    return
  }
  reply.header('ETag', etag)
  reply.header('Cache-Control', 'private, no-cache')
  if (hasTag(headers.get('if-none-match'), etag)) reply.notModified()
  else reply.written(json, contentType)
}

function hasTag(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false
  return header.split(',').some(tag => tag.trim() === '*' || tag.trim().replace(/^W\//, '') === etag)
}

/**
 * A catalogue packed into bytes that all threads share. The main thread checks and packs it. Serve threads unpack it
 * into compact rows, a few at a time, so that streams continue in the meantime. Equal parts of rows share one object.
 * Pure.
 */

import type { Endpoint, Model, Pricing, Provider } from '../protocol/provider.ts'
import type { Route } from '../protocol/route.ts'
import { type CatalogParts, catalogOf, listedModels } from './catalog.ts'

/** Texts stored one after the other in shared memory. */
export interface PackedTexts {
  readonly bytes: SharedArrayBuffer
  /** The end position of each text. */
  readonly ends: Uint32Array
}

export interface PackedCatalogue {
  readonly providers: readonly Provider[]
  readonly aliases: readonly (readonly [string, string])[]
  readonly routes: readonly Route[]
  readonly defaultModel: string | null
  /** Models as JSON; wildcards come last. */
  readonly models: PackedTexts
  readonly wildcardCount: number
  /** Number of models from the configuration, which come first. */
  readonly configured: number
  /** The public document of each route and model except wildcards, as sent by the API. */
  readonly documents: PackedTexts
  /** Changes whenever the documents change. */
  readonly version: string
}

/** A catalogue's parts, with the public documents of its models in the same order. */
export interface UnpackedCatalogue {
  readonly parts: CatalogParts
  /** The packed catalogue of the models. */
  readonly models: PackedTexts
  readonly documents: PackedTexts
  readonly version: string
}

interface PackDeps {
  readonly documentsOf: (models: readonly Model[]) => PackedTexts
  readonly digest: (bytes: Uint8Array) => string
}

type PackedEndpoint = Omit<Endpoint, 'provider' | 'supportedParameters' | 'modelId'> & {
  readonly provider: string
  readonly supportedParameters: readonly string[] | null
}
type PackedModel = Omit<Model, 'endpoints'> & { readonly endpoints: readonly PackedEndpoint[] }

export function packCatalogue(parts: CatalogParts, { documentsOf, digest }: PackDeps): PackedCatalogue {
  const models = packTexts(
    [...parts.models, ...parts.wildcards].map(model => JSON.stringify(packModel(model))),
  )
  const documents = documentsOf(listedModels(catalogOf(parts)))
  return {
    providers: [...parts.providers.values()],
    aliases: [...parts.aliases],
    routes: parts.routes,
    defaultModel: parts.defaultModel,
    models,
    wildcardCount: parts.wildcards.length,
    configured: parts.configured,
    documents,
    version: digest(new Uint8Array(documents.bytes)),
  }
}

function packModel({ endpoints, ...model }: Model): PackedModel {
  return {
    ...model,
    endpoints: endpoints.map(({ provider, supportedParameters, modelId: _id, ...endpoint }) => ({
      ...endpoint,
      provider: provider.slug,
      supportedParameters: supportedParameters === null ? null : [...supportedParameters],
    })),
  }
}

/** Concatenates texts in memory that threads can share. */
export function packTexts(texts: readonly string[]): PackedTexts {
  const sizes = texts.map(text => Buffer.byteLength(text))
  const bytes = new SharedArrayBuffer(sizes.reduce((sum, size) => sum + size, 0))
  const ends = new Uint32Array(new SharedArrayBuffer(texts.length * Uint32Array.BYTES_PER_ELEMENT))
  const target = Buffer.from(bytes)
  let end = 0
  for (const [index, text] of texts.entries()) {
    end += target.write(text, end)
    ends[index] = end
  }
  return { bytes, ends }
}

/** The bytes of one text, still shared. */
function packedText({ bytes, ends }: PackedTexts, index: number): Buffer {
  const start = index === 0 ? 0 : (ends[index - 1] ?? 0)
  return Buffer.from(bytes, start, (ends[index] ?? start) - start)
}

/** Models to unpack between two pauses: well below a millisecond of work. */
const MODELS_PER_SLICE = 32

/** Unpacks without pauses, before a thread serves requests. */
export function unpackCatalogue(catalogue: PackedCatalogue): UnpackedCatalogue {
  const steps = unpack(catalogue, null)
  let step = steps.next()
  while (step.done !== true) step = steps.next()
  return step.value
}

/**
 * Unpacks while requests run, which `pause` lets continue. Providers and models that are equal to earlier ones stay the
 * same objects, and keep the measurements of their endpoints.
 */
export async function unpackInSlices(
  catalogue: PackedCatalogue,
  earlier: UnpackedCatalogue,
  pause: () => Promise<void>,
): Promise<UnpackedCatalogue> {
  const steps = unpack(catalogue, earlier)
  let step = steps.next()
  while (step.done !== true) {
    await pause()
    step = steps.next()
  }
  return step.value
}

function* unpack(
  catalogue: PackedCatalogue,
  earlier: UnpackedCatalogue | null,
): Generator<void, UnpackedCatalogue> {
  const providers = new Map<string, Provider>()
  for (const provider of catalogue.providers) {
    const earlierProvider = earlier?.parts.providers.get(provider.slug)
    // Connections and prepared requests are cached by row object, so an equal row keeps its object.
    const isSame =
      earlierProvider !== undefined && JSON.stringify(earlierProvider) === JSON.stringify(provider)
    providers.set(provider.slug, isSame ? earlierProvider : provider)
  }
  const sharedParts = new SharedParts()
  const indexes = new Map(earlier?.parts.models.map(({ id }, index) => [id, index]))
  const models: Model[] = []
  const count = catalogue.models.ends.length
  for (let index = 0; index < count; index++) {
    const bytes = packedText(catalogue.models, index)
    const row = JSON.parse(bytes.toString()) as PackedModel
    models.push(
      sameModel(row.id, bytes, earlier, indexes, providers) ?? unpackModel(row, providers, sharedParts),
    )
    if (index % MODELS_PER_SLICE === MODELS_PER_SLICE - 1) yield
  }
  const wildcards = models.splice(count - catalogue.wildcardCount)
  return {
    parts: {
      providers,
      models,
      configured: catalogue.configured,
      aliases: new Map(catalogue.aliases),
      routes: catalogue.routes,
      wildcards,
      defaultModel: catalogue.defaultModel,
    },
    models: catalogue.models,
    documents: catalogue.documents,
    version: catalogue.version,
  }
}

/** The earlier model with this id if nothing has changed, including its providers. */
function sameModel(
  id: string,
  bytes: Buffer,
  earlier: UnpackedCatalogue | null,
  indexes: ReadonlyMap<string, number>,
  providers: ReadonlyMap<string, Provider>,
): Model | null {
  const index = indexes.get(id)
  const model = index === undefined ? undefined : earlier?.parts.models[index]
  if (earlier === null || index === undefined || model === undefined) return null
  const isSame =
    packedText(earlier.models, index).equals(bytes) &&
    model.endpoints.every(({ provider }) => providers.get(provider.slug) === provider)
  return isSame ? model : null
}

function unpackModel(
  { endpoints, ...model }: PackedModel,
  providers: ReadonlyMap<string, Provider>,
  sharedParts: SharedParts,
): Model {
  return {
    ...model,
    inputModalities: sharedParts.words(model.inputModalities),
    outputModalities: sharedParts.words(model.outputModalities),
    endpoints: endpoints.map((endpoint): Endpoint => {
      const provider = providers.get(endpoint.provider)
      if (provider === undefined) throw new Error('a packed endpoint names a provider that was not packed')
      return {
        ...endpoint,
        modelId: model.id,
        provider,
        pricing: sharedParts.pricing(endpoint.pricing),
        quantization: sharedParts.text(endpoint.quantization),
        supportedParameters:
          endpoint.supportedParameters === null ? null : sharedParts.set(endpoint.supportedParameters),
      }
    }),
  }
}

/** Makes equal values share one object. Used only while a catalogue is unpacked. */
class SharedParts {
  readonly #texts = new Map<string, string>()
  readonly #words = new Map<string, readonly string[]>()
  readonly #sets = new Map<string, ReadonlySet<string>>()
  readonly #pricings = new Map<string, Pricing>()

  text(text: string): string {
    return memoize(this.#texts, text, () => text)
  }

  words(words: readonly string[]): readonly string[] {
    return memoize(this.#words, words.join(), () => words.map(word => this.text(word)))
  }

  set(words: readonly string[]): ReadonlySet<string> {
    return memoize(this.#sets, words.join(), () => new Set(words.map(word => this.text(word))))
  }

  pricing(pricing: Pricing): Pricing {
    return memoize(this.#pricings, JSON.stringify(pricing), () => pricing)
  }
}

function memoize<Value>(values: Map<string, Value>, key: string, make: () => Value): Value {
  let value = values.get(key)
  if (value === undefined) {
    value = make()
    values.set(key, value)
  }
  return value
}

/**
 * Memory and time of a large catalogue in one thread: `node --expose-gc bench/micro/catalogue.ts [MODELS]`. Prints the
 * heap bytes of a model with three endpoints, and the times of packing, unpacking and listing.
 */
import { createListing, packDocuments, shortDigest } from '../../src/api/models/models.ts'
import { catalogOf, readParts } from '../../src/providers/catalog.ts'
import { packCatalogue, unpackCatalogue } from '../../src/providers/shared-catalogue.ts'

const count = Number(process.argv[2] ?? 5_000)
const collect: () => void = Reflect.get(globalThis, 'gc') ?? (() => undefined)

function usedBytes(): number {
  collect()
  collect()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

function timed<T>(name: string, work: () => T): T {
  const beganMs = performance.now()
  const result = work()
  process.stdout.write(`${name.padEnd(32)} ${(performance.now() - beganMs).toFixed(1)} ms\n`)
  return result
}

const slugs = ['acme', 'bolt', 'core']
const parts = timed('read rows', () =>
  readParts({
    providers: slugs.map(slug => ({
      slug,
      format: 'openai-chat',
      baseUrl: `http://${slug}.test`,
      apiKey: 'k',
    })),
    models: Array.from({ length: count }, (_, at) => ({
      id: `acme/model-${at}`,
      name: `Model ${at}`,
      contextLength: 128_000,
      inputModalities: ['text', 'image'],
      endpoints: slugs.map((provider, tier) => ({
        provider,
        upstreamModel: `m-${at}`,
        pricing: {
          prompt: `0.00000${(at % 9) + 1}`,
          completion: `0.00000${tier + 3}`,
          inputCacheRead: '0.0000001',
        },
        supportedParameters: ['tools', 'temperature', 'response_format', 'max_tokens', 'top_p'],
      })),
    })),
  }),
)
const packed = timed('pack', () => packCatalogue(parts, { documentsOf: packDocuments, digest: shortDigest }))
const before = usedBytes()
const unpacked = timed('unpack', () => unpackCatalogue(packed))
const catalog = catalogOf(unpacked.parts)
const behind = usedBytes()
const listing = createListing(catalog, unpacked)
const all = new URLSearchParams()
timed('GET /models, first', () => listing.models(all))
const listed = usedBytes()
timed('GET /models, again', () => listing.models(all))
const query = new URLSearchParams('q=model-1&supported_parameters=tools&sort=pricing-low-to-high')
for (let warm = 0; warm < 20; warm++) listing.models(query)
timed('GET /models, filters and order', () => listing.models(query))
const each = (bytes: number): string => (bytes / count).toFixed(0)
process.stdout.write(
  `${catalog.models().length} models: ${each(behind - before)} bytes each in a thread, ${each(listed - before)} with the listing, ${each(packed.models.bytes.byteLength + packed.documents.bytes.byteLength)} shared\n`,
)

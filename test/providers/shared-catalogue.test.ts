/** The catalogue as bytes that threads share. */
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads'
import t from 'tap'
import { createListing, packDocuments, shortDigest } from '../../src/api/models/models.ts'
import { catalogOf, readParts } from '../../src/providers/catalog.ts'
import {
  type PackedCatalogue,
  packCatalogue,
  unpackCatalogue,
  unpackInSlices,
} from '../../src/providers/shared-catalogue.ts'

const DEPS = { documentsOf: packDocuments, digest: shortDigest }

function parts(count: number) {
  return readParts({
    providers: [{ slug: 'acme', format: 'openai-chat', baseUrl: 'http://a.test', apiKey: 'k' }],
    models: [
      ...Array.from({ length: count }, (_, index) => ({
        id: `acme/m-${index}`,
        aliases: [`acme/alias-${index}`],
        endpoints: [
          {
            provider: 'acme',
            pricing: { prompt: '0.000001', overrides: [{ minPromptTokens: 5, prompt: '0.000002' }] },
            supportedParameters: ['tools', 'seed'],
            serviceTier: 'flex' as const,
            trains: true,
          },
          { provider: 'acme', upstreamModel: 'é', region: 'us' as const },
        ],
      })),
      { id: 'acme/*', endpoints: [{ provider: 'acme' }] },
    ],
    defaultModel: 'acme/m-0',
    created: 9,
  })
}

/** As it arrives at another thread. */
function sent(packed: PackedCatalogue): PackedCatalogue {
  const { port1, port2 } = new MessageChannel()
  port1.postMessage(packed)
  const message = receiveMessageOnPort(port2) as { message: PackedCatalogue }
  port1.close()
  return message.message
}

t.test('what was packed comes out the same at another thread', async t => {
  const before = parts(100)
  const { parts: after, documents, version } = unpackCatalogue(sent(packCatalogue(before, DEPS)))
  t.strictSame(after.models, before.models)
  t.strictSame(after.wildcards, before.wildcards)
  t.strictSame([...after.aliases], [...before.aliases])
  t.equal(after.defaultModel, 'acme/m-0')
  t.equal(after.models[3]?.endpoints[0]?.provider, after.providers.get('acme'))
  const own = createListing(catalogOf(before))
  const packed = createListing(catalogOf(after), { documents, version })
  const query = () => new URLSearchParams('limit=7&offset=20')
  t.same(packed.models(query()), own.models(query()))
  t.same(
    JSON.parse(String(packed.models(new URLSearchParams()).json)),
    JSON.parse(String(own.models(new URLSearchParams()).json)),
  )
  t.same(JSON.parse(String(packed.models(new URLSearchParams('q=nothing')).json)), {
    data: [],
    total_count: 0,
    links: { next: null },
  })
})

t.test('equal parts of rows are one object', async t => {
  const [first, second] = unpackCatalogue(packCatalogue(parts(2), DEPS)).parts.models
  t.equal(first?.endpoints[0]?.pricing, second?.endpoints[0]?.pricing)
  t.equal(first?.endpoints[0]?.supportedParameters, second?.endpoints[0]?.supportedParameters)
  t.equal(first?.inputModalities, second?.inputModalities)
})

t.test('beside running requests it is unpacked in slices, and equal providers stay the same', async t => {
  const before = unpackCatalogue(packCatalogue(parts(1), DEPS))
  let pauses = 0
  const after = await unpackInSlices(packCatalogue(parts(320), DEPS), before, async () => {
    pauses++
  })
  t.equal(pauses, 10)
  t.equal(after.parts.providers.get('acme'), before.parts.providers.get('acme'))
  t.equal(after.parts.models.length, 320)
  t.equal(after.parts.models[0], before.parts.models[0], 'and so do equal models')
})

t.test('a model whose provider or row has changed is a new object', async t => {
  const before = unpackCatalogue(packCatalogue(parts(2), DEPS))
  const changed = parts(2)
  const acme = changed.providers.get('acme')
  if (acme === undefined) throw new Error('it is there')
  const rekeyed = {
    ...changed,
    providers: new Map([...changed.providers, ['acme', { ...acme, apiKey: 'new' }]]),
  }
  const pause = async () => undefined
  const withKey = await unpackInSlices(packCatalogue(rekeyed, DEPS), before, pause)
  t.equal(withKey.parts.models[0]?.endpoints[0]?.provider.apiKey, 'new')
  const [first, second] = changed.models
  const renamed = { ...changed, models: [{ ...first, name: 'Other' } as never, second as never] }
  const withName = await unpackInSlices(packCatalogue(renamed, DEPS), before, pause)
  t.equal(withName.parts.models[0]?.name, 'Other')
  t.equal(withName.parts.models[1], before.parts.models[1])
})

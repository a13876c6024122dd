/** Which keys are tried, in which order: every combination of flags and restrictions against an oracle. */
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { createCatalog } from '../../src/providers/catalog.ts'
import { NO_CREDENTIALS, WorkspaceCredentials } from '../../src/providers/credentials/catalog.ts'
import { CALLER, expected, modelRows, sharedKey, type World, worlds } from '../support/byok-worlds.ts'
import { parseResponsesRequest } from '../support/dialects.ts'
import { credentialOf } from '../support/own-keys.ts'
import { route } from '../support/ranking.ts'

const providerRow = (slug: string) => ({
  slug,
  format: 'openai-chat' as const,
  baseUrl: 'http://127.0.0.1:1',
  apiKey: sharedKey(slug),
})
const catalog = createCatalog({ providers: [providerRow('p'), providerRow('q')], models: modelRows() })

/** What the router says of a world: keys in order, or the code of its refusal. */
function routed({ credentials, request: { model, user, region, zdr } }: World): string[] | GatewayError {
  const request = parseResponsesRequest({
    model,
    input: 'hi',
    ...(user === null ? {} : { user }),
    ...(zdr ? { provider: { zdr } } : {}),
  })
  const scope = { ownKeys: new WorkspaceCredentials(credentials), keyHash: CALLER, dataRegion: region }
  try {
    const { candidates } = route(request, catalog, scope)
    return candidates.map(
      ({ endpoint, credential }) => `${endpoint.provider.slug}/${credential?.id ?? 'shared'}`,
    )
  } catch (error) {
    if (error instanceof GatewayError) return error
    throw error
  }
}

t.test('every combination of flags, restrictions and requests goes as the oracle says', async t => {
  let count = 0
  let refused = 0
  const wrong: unknown[] = []
  for (const world of worlds()) {
    count++
    const wanted = expected(world)
    const got = routed(world)
    const keys = got instanceof GatewayError ? [] : got
    if (got instanceof GatewayError) {
      refused++
      if (got.status !== 404) wrong.push({ world, got: got.message })
    }
    if (keys.join() !== wanted.join()) wrong.push({ world, wanted, keys })
  }
  t.equal(count, 3 * 5 * 3 * 3 * 3 * 4 * 3 * 2 * 24)
  t.ok(refused > count / 20 && refused < count / 2, `${refused} of ${count} are refused`)
  t.same(wrong.slice(0, 3), [], `${wrong.length} of ${count} differ`)
})

/** Three providers: q is cheaper, r has no shared key and honours no tools. */
const wider = createCatalog({
  providers: [
    providerRow('p'),
    providerRow('q'),
    { slug: 'r', format: 'openai-chat', baseUrl: 'http://127.0.0.1:1', auth: 'bearer' },
  ],
  models: [
    {
      id: 'm/one',
      endpoints: [
        { provider: 'p', pricing: { prompt: '0.000003' } },
        { provider: 'q', pricing: { prompt: '0.000001' } },
        { provider: 'r', pricing: { prompt: '0.000002' }, supportedParameters: ['temperature'] },
      ],
    },
    { id: 'm/two', endpoints: [{ provider: 'q', pricing: { prompt: '0.000002' } }] },
    { id: 'm/three', endpoints: [{ provider: 'r' }] },
  ],
})
const own = new WorkspaceCredentials([
  credentialOf('p', { id: 'p1', sortOrder: 1 }),
  credentialOf('p', { id: 'p0', sortOrder: 0 }),
  credentialOf('q', { id: 'q0' }),
  credentialOf('q', { id: 'q9', isFallback: true }),
  credentialOf('r', { id: 'r0' }),
])

type Body = Record<string, unknown>
function names(body: Body, ownKeys = own): string[] {
  const request = parseResponsesRequest({ input: 'hi', model: 'm/one', ...body })
  const { candidates } = route(request, wider, { ownKeys, keyHash: CALLER, dataRegion: null })
  return candidates.map(({ endpoint, credential }) => credential?.id ?? endpoint.provider.slug)
}

function refusal(body: Body, ownKeys: WorkspaceCredentials): GatewayError {
  try {
    names(body, ownKeys)
  } catch (error) {
    if (error instanceof GatewayError) return error
  }
  throw new Error('was not refused')
}

t.test(
  'own keys go before everything, by provider as the preferences sort and then by sort order',
  async t => {
    t.same(names({}), ['p0', 'p1', 'q0', 'r0', 'p', 'q', 'q9'])
    t.same(names({ provider: { order: ['q'] } }), ['q0', 'p0', 'p1', 'r0', 'q', 'p', 'q9'])
    t.same(names({ provider: { sort: 'price' } }), ['q0', 'r0', 'p0', 'p1', 'q', 'p', 'q9'])
    t.same(names({ provider: { only: ['p'] } }), ['p0', 'p1', 'p'])
    t.same(names({ provider: { ignore: ['p'] } }), ['q0', 'r0', 'q', 'q9'])
  },
)

t.test('models stay apart, unless one order over all is asked for', async t => {
  t.same(names({ models: ['m/two'] }), ['p0', 'p1', 'q0', 'r0', 'p', 'q', 'q9', 'q0', 'q', 'q9'])
  const global = names({ models: ['m/two'], provider: { sort: { by: 'price', partition: 'none' } } })
  t.same(global, ['q0', 'r0', 'q0', 'p0', 'p1', 'q', 'q', 'p', 'q9', 'q9'])
})

t.test('an endpoint that honours the tools is preferred to a BYOK key that does not', async t => {
  const tools = [{ type: 'function', name: 'f', parameters: { type: 'object' } }]
  t.same(names({ tools }), ['p0', 'p1', 'q0', 'p', 'q', 'q9'])
  t.same(names({ tools, provider: { only: ['r'] } }), ['r0'], 'but it is taken where there is no other')
})

t.test('a provider without a shared key is served by own keys alone', async t => {
  t.same(names({}, NO_CREDENTIALS), ['p', 'q'])
  t.same(names({ model: 'm/three' }), ['r0'])
  const none = refusal({ model: 'm/three' }, NO_CREDENTIALS)
  t.match(none, { code: 'no_endpoints', message: 'No provider key is configured for m/three' })
})

t.test('a model on own keys only has no shared endpoint at any provider', async t => {
  const only = (fields = {}) =>
    new WorkspaceCredentials([credentialOf('q', { id: 'q0', isByokOnly: true, ...fields })])
  t.same(names({}, only()), ['q0'])
  t.same(names({ model: 'm/two' }, only({ allowedModels: ['m/one'] })), ['q'])
  t.same(names({}, new WorkspaceCredentials([credentialOf('r', { id: 'r0', isRequired: true })])), [
    'r0',
    'p',
    'q',
  ])
  const other = createOnly('z')
  t.same(names({}, other), ['p', 'q'], 'a key of a provider that does not serve the model changes nothing')
})

function createOnly(provider: string): WorkspaceCredentials {
  return new WorkspaceCredentials([credentialOf(provider, { isByokOnly: true })])
}

t.test(
  'who may not use the key that is required gets no shared endpoint either, and is told why',
  async t => {
    const stranger = { allowedApiKeyHashes: ['f'.repeat(64)] }
    const required = new WorkspaceCredentials([
      credentialOf('q', { id: 'q0', isRequired: true, ...stranger }),
    ])
    t.same(names({}, required), ['p'])
    const refused = refusal({ model: 'm/two' }, required)
    t.equal(refused.status, 404)
    t.match(refused, {
      code: 'no_endpoints',
      message: 'This workspace uses only its own provider credentials for m/two',
      metadata: { availability: { code: 'no_endpoints', excluded_by: ['byok_required'] } },
    })
    const filtered = refusal({ provider: { only: ['q'] } }, required)
    t.match(filtered, { code: 'constraint_filtered' })
    t.notMatch(refused.message + filtered.message, 'fff', 'hashes of keys are nobody else’s business')
  },
)

import t from 'tap'
import { openKey, toOutgoingKey } from '../../src/credentials/outgoing-key.ts'
import { parseProviderKey } from '../../src/credentials/parse/provider-key.ts'
import { GatewayError } from '../../src/errors.ts'
import { endpointOf } from '../support/endpoint.ts'
import { credentialOf } from '../support/own-keys.ts'

const SECRET = 'c0ffee'.repeat(8)

function refused(run: () => unknown): string {
  try {
    run()
  } catch (error) {
    if (error instanceof GatewayError) return `${error.code}: ${error.message}`
    throw error
  }
  throw new Error('was not refused')
}

t.test('a plain key is sent as it is, and scrubbed', async t => {
  const key = parseProviderKey('openai', JSON.stringify({ api_key: SECRET, region: 'us' }))
  t.same(toOutgoingKey(key, endpointOf('openai-chat', { slug: 'openai' })), {
    text: SECRET,
    secrets: [SECRET],
  })
})

t.test(
  'what has to be signed or exchanged is refused before anything is sent, and says so without the key',
  async t => {
    const aws = { accessKeyId: 'AKIAABCDEFGHIJKLMNOP', secretAccessKey: SECRET, region: 'us-east-1' }
    const key = parseProviderKey('amazon-bedrock', JSON.stringify(aws))
    const message = refused(() => toOutgoingKey(key, endpointOf('openai-chat', { slug: 'amazon-bedrock' })))
    t.match(message, /^provider_unavailable: .*amazon-bedrock.*AWS access key/)
    t.notMatch(message, /c0ffee|AKIA/)
  },
)

t.test('a resource of Azure is called only where the row of the provider says so', async t => {
  const resource = (name: string, api: string) => ({
    api_key: api,
    resource_name: name,
    resource_type: 'openai',
  })
  const key = parseProviderKey(
    'azure',
    JSON.stringify([resource('Mine', SECRET), resource('other', 'another-key')]),
  )
  const at = (baseUrl: string) => {
    const endpoint = endpointOf('openai-chat', { slug: 'azure' })
    return { ...endpoint, provider: { ...endpoint.provider, baseUrl } }
  }
  t.same(toOutgoingKey(key, at('https://mine.openai.azure.com/openai/v1')), {
    text: SECRET,
    secrets: [SECRET, 'another-key'],
  })
  for (const baseUrl of ['https://mine.services.ai.azure.com/x', 'https://evil.test/mine.openai.azure.com'])
    t.match(
      refused(() => toOutgoingKey(key, at(baseUrl))),
      'has no resource for the configured base URL',
    )
})

t.test('a key that is at hand is opened without a promise, another one with', async t => {
  const endpoint = endpointOf('openai-chat')
  const key = parseProviderKey('acme', SECRET)
  const credential = credentialOf('acme')
  t.same(openKey({ open: () => key }, credential, endpoint), { text: SECRET, secrets: [SECRET] })
  const later = openKey({ open: async () => key }, credential, endpoint)
  t.ok(later instanceof Promise)
  t.same(await later, { text: SECRET, secrets: [SECRET] })
})

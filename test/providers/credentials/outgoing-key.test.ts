import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import type { AnyFormatName, Endpoint, OutgoingKey, Provider } from '../../../src/protocol/provider.ts'
import {
  type KeySchemes,
  OutgoingKeys,
  toOutgoingKey,
} from '../../../src/providers/credentials/outgoing-key.ts'
import { parseProviderKey } from '../../../src/providers/credentials/parse/provider-key.ts'
import { PROVIDERS } from '../../../src/providers/table.ts'
import { endpointOf } from '../../support/endpoint.ts'
import { credentialOf, serviceAccount } from '../../support/own-keys.ts'

const SECRET = 'c0ffee'.repeat(8)
const AWS = { accessKeyId: 'AKIAABCDEFGHIJKLMNOP', secretAccessKey: SECRET }
const ACCOUNT = serviceAccount()

/** Says what it was asked for. */
const SCHEMES: KeySchemes = {
  signer:
    ({ accessKeyId }, { region, service }) =>
    async () => ({ signed: `${accessKeyId} ${region} ${service}` }),
  token: ({ clientEmail }, { tokenUrl }) => `token of ${clientEmail} from ${tokenUrl}`,
}

function at(slug: string, more: Partial<Provider> = {}, format?: AnyFormatName): Endpoint {
  const row = PROVIDERS.find(each => each.slug === slug)
  if (row === undefined) throw new Error(`no row ${slug}`)
  const named = format ?? row.format
  const endpoint = endpointOf('openai-chat')
  return { ...endpoint, modelId: 'vendor/model', format: named, provider: { ...row, ...more } }
}

function outgoing(slug: string, key: unknown, endpoint = at(slug)): OutgoingKey {
  const text = typeof key === 'string' ? key : JSON.stringify(key)
  const made = toOutgoingKey(parseProviderKey(slug, text), endpoint, SCHEMES, 'Your key')
  if (made instanceof Promise) throw new Error('was promised')
  return made
}

function refused(run: () => unknown): string {
  try {
    run()
  } catch (error) {
    if (error instanceof GatewayError) return `${error.code}: ${error.message}`
    throw error
  }
  throw new Error('was not refused')
}

t.test('a plain key is sent as it is, to the address of its data region, and scrubbed', async t => {
  t.same(outgoing('groq', SECRET), { text: SECRET, secrets: [SECRET] })
  t.same(outgoing('openai', SECRET), { text: SECRET, secrets: [SECRET] })
  const us = { api_key: SECRET, region: 'us' }
  t.same(outgoing('openai', us), { text: SECRET, secrets: [SECRET], baseUrl: 'https://us.api.openai.com/v1' })
  t.equal(outgoing('openai', { api_key: SECRET, region: 'global' }).baseUrl, undefined)
  const own = at('openai', { baseUrl: 'http://127.0.0.1:1', regionUrls: {} })
  t.equal(outgoing('openai', us, own).baseUrl, undefined, "an operator's own address is used for all")
})

t.test('keys of Bedrock go to their region: an API key to that of the row, an access key signs', async t => {
  t.same(outgoing('amazon-bedrock', SECRET), {
    text: SECRET,
    secrets: [SECRET],
    baseUrl: 'https://bedrock-runtime.us-east-1.amazonaws.com',
  })
  const key = outgoing('amazon-bedrock', { ...AWS, region: 'eu-central-1' })
  t.equal(key.text, null)
  t.same(key.secrets, [SECRET, AWS.accessKeyId])
  t.equal(key.baseUrl, 'https://bedrock-runtime.eu-central-1.amazonaws.com')
  const request = { method: 'POST', url: new URL('http://x'), headers: {}, body: '' }
  t.same(await key.sign?.(request), { signed: 'AKIAABCDEFGHIJKLMNOP eu-central-1 bedrock' })
  const messages = outgoing('amazon-bedrock/claude-on-aws', { ...AWS, region: 'us-west-2' })
  t.equal(messages.baseUrl, 'https://bedrock-runtime.us-west-2.amazonaws.com/anthropic/v1')
})

t.test(
  'a key of Claude on AWS names its workspace in a header, with an API key or an access key',
  async t => {
    const place = { region: 'us-west-2', workspace_id: 'wrkspc_1' }
    t.same(outgoing('claude-on-aws', { api_key: SECRET, ...place }), {
      text: SECRET,
      secrets: [SECRET],
      scheme: 'x-api-key',
      headers: { 'anthropic-workspace-id': 'wrkspc_1' },
      baseUrl: 'https://aws-external-anthropic.us-west-2.api.aws/v1',
    })
    const signing = outgoing('claude-on-aws', { ...AWS, ...place })
    t.same(signing.headers, { 'anthropic-workspace-id': 'wrkspc_1' })
    const request = { method: 'POST', url: new URL('http://x'), headers: {}, body: '' }
    t.match(await signing.sign?.(request), { signed: /us-west-2 aws-external-anthropic$/ })
  },
)

t.test(
  'a service account is exchanged at the address of the row, and asks the host of its location',
  async t => {
    const cases = {
      global: 'https://aiplatform.googleapis.com/v1/projects/my-project-1/locations/global/publishers/google',
      eu: 'https://aiplatform.eu.rep.googleapis.com/v1/projects/my-project-1/locations/eu/publishers/google',
      'us-central1':
        'https://us-central1-aiplatform.googleapis.com/v1/projects/my-project-1/locations/us-central1/publishers/google',
    }
    for (const [region, baseUrl] of Object.entries(cases)) {
      const key = outgoing('google-vertex', { ...ACCOUNT, region })
      t.equal(key.baseUrl, baseUrl)
      t.equal(key.text, `token of ${ACCOUNT.client_email} from https://oauth2.googleapis.com/token`)
      t.ok(key.secrets.includes(key.text ?? ''), 'the token is scrubbed too')
    }
    const old = { ...ACCOUNT, project_id: 'example.com:project-1' }
    t.match(outgoing('google-vertex', old).baseUrl, '/projects/example.com%3Aproject-1/')
    const fixed = at('google-vertex', { baseUrl: 'http://127.0.0.1:1/v1' })
    t.equal(outgoing('google-vertex', ACCOUNT, fixed).baseUrl, undefined)
  },
)

const resource = (name: string, key: string, type = 'openai') => ({
  api_key: key,
  resource_name: name,
  resource_type: type,
})
const deployment = (url: string, slug = 'vendor/model') => ({
  model_slug: slug,
  endpoint_url: url,
  api_key: 'key-of-deployment',
  model_id: 'my-deployment',
})

t.test('a resource of Azure is asked at its own host, by the path of the format', async t => {
  const foundry = [resource('Mine', SECRET, 'ai_foundry')]
  t.same(outgoing('azure', [resource('Mine', SECRET), resource('other', 'another-key')]), {
    text: SECRET,
    secrets: [SECRET, 'another-key'],
    baseUrl: 'https://mine.openai.azure.com/openai/v1',
  })
  t.equal(outgoing('azure', foundry).baseUrl, 'https://mine.services.ai.azure.com/openai/v1')
  const claude = at('azure', {}, 'anthropic-messages')
  t.equal(outgoing('azure', foundry, claude).baseUrl, 'https://mine.services.ai.azure.com/anthropic/v1')
})

t.test(
  "with an operator's own address, the resource at that host is used, or else the first one",
  async t => {
    const key = [resource('mine', SECRET), resource('other', 'another-key')]
    const mine = (baseUrl: string) => outgoing('azure', key, at('azure', { baseUrl, baseUrls: {} }))
    t.match(mine('https://other.openai.azure.com/openai/v1'), { text: 'another-key', baseUrl: undefined })
    t.match(mine('http://127.0.0.1:9/openai/v1'), { text: SECRET, baseUrl: undefined })
  },
)

t.test('a deployment of Azure wins over resources, and is asked at its address under its name', async t => {
  const chat = 'https://mine.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21'
  const bare = 'https://mine.services.ai.azure.com/models/?api-version=2024-05-01'
  const key = (url: string, slug?: string) => [resource('r', SECRET), deployment(url, slug)]
  t.match(outgoing('azure', key(chat)), {
    text: 'key-of-deployment',
    upstreamModel: 'my-deployment',
    callUrl: chat,
  })
  t.equal(
    outgoing('azure', key(bare)).callUrl,
    'https://mine.services.ai.azure.com/models/chat/completions?api-version=2024-05-01',
  )
  t.match(outgoing('azure', key(chat, 'vendor/another')), { text: SECRET, callUrl: undefined })
  const responses = at('azure', {}, 'openai-responses')
  t.match(
    refused(() => outgoing('azure', key(chat), responses)),
    'names a deployment at /chat/completions, but this model is called at /responses',
  )
  for (const host of ['evil.example.com', 'openai.azure.com.evil.com', 'a.b.openai.azure.com']) {
    const refusal = refused(() => outgoing('azure', key(`https://${host}/x`)))
    t.match(refusal, "names a deployment on a host that is not one of the provider's hosts")
    t.notMatch(refusal, host)
  }
})

t.test('a key with an account or a host fills the address, and only with hosts of the row', async t => {
  t.equal(
    outgoing('cloudflare', { api_key: SECRET, account_id: 'acc0unt' }).baseUrl,
    'https://api.cloudflare.com/client/v4/accounts/acc0unt/ai/v1',
  )
  t.match(
    refused(() => outgoing('cloudflare', SECRET)),
    'provider_unavailable: The address of Cloudflare needs an account',
  )
  const at = (host: string) => outgoing('databricks', { api_key: SECRET, host })
  t.equal(at('dbc-1.cloud.databricks.com').baseUrl, 'https://dbc-1.cloud.databricks.com/serving-endpoints')
  t.equal(at('adb-1.7.azuredatabricks.net').baseUrl, 'https://adb-1.7.azuredatabricks.net/serving-endpoints')
  t.match(
    refused(() => at('cloud.databricks.com.evil.example')),
    "is not on one of the provider's hosts",
  )
})

t.test('a key that is at hand is opened without a promise, another one with', async t => {
  const endpoint = endpointOf('openai-chat')
  const key = parseProviderKey('acme', SECRET)
  const credential = credentialOf('acme')
  const keys = (open: () => typeof key | Promise<typeof key>) => new OutgoingKeys({ open }, SCHEMES)
  t.same(keys(() => key).ownKey(credential, endpoint), { text: SECRET, secrets: [SECRET] })
  const later = keys(async () => key).ownKey(credential, endpoint)
  t.ok(later instanceof Promise)
  t.same(await later, { text: SECRET, secrets: [SECRET] })
})

t.test("the service's own key is opened only where the row cannot carry it as it is", async t => {
  const keys = new OutgoingKeys(
    {
      open() {
        throw new Error('no credential')
      },
    },
    SCHEMES,
  )
  const shared = (slug: string, apiKey: string | null, more: Partial<Provider> = {}) =>
    keys.sharedKey(at(slug, { apiKey, ...more }))
  t.equal(shared('groq', SECRET), null)
  t.equal(shared('openai', SECRET), null)
  t.equal(shared('openai', null), null)
  t.equal(shared('azure', SECRET, { baseUrl: 'https://mine.openai.azure.com/openai/v1' }), null)
  t.match(shared('openai', JSON.stringify({ api_key: SECRET, region: 'europe' })), {
    text: SECRET,
    baseUrl: 'https://eu.api.openai.com/v1',
  })
  t.match(shared('amazon-bedrock', SECRET), { baseUrl: 'https://bedrock-runtime.us-east-1.amazonaws.com' })
  t.match(shared('amazon-bedrock', JSON.stringify({ ...AWS, region: 'us-west-2' })), { text: null })
  const broken = refused(() => shared('azure', JSON.stringify([{ api_key: SECRET }])))
  t.match(
    broken,
    "provider_unavailable: The gateway's key for Azure is malformed; sluice check says how to correct it",
  )
  t.notMatch(broken, SECRET)
})

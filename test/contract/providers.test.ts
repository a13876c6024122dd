/**
 * Every provider of the table that takes stored credentials: a key of its form is stored, and the request that leaves
 * with it is seen at a real TLS socket of the provider's real name.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { decodeJwt } from 'jose'
import t, { type Test } from 'tap'
import { PROVIDER_SLUGS } from '../../src/protocol/provider-slugs.ts'
import { KNOWN_SLUGS, keyFormOf, whyNotOffered } from '../../src/providers/table.ts'
import { expectedSignature } from '../support/aws-signature.ts'
import { startGateway } from '../support/gateway.ts'
import { serviceAccount } from '../support/own-keys.ts'
import { type HostCall, startProviderHosts, TOKEN } from '../support/provider-hosts.ts'

const LINES = readFileSync(join(import.meta.dirname, '../fixtures/providers/requests.txt'), 'utf8')
  .trim()
  .split('\n')
  .map(line => {
    const [slug = '', url = '', carried = ''] = line.split(' ')
    return { slug, url, carried }
  })

const ACCESS = { accessKeyId: 'AKIAABCDEFGHIJKLMNOP', secretAccessKey: 'c0ffee'.repeat(8) }
const ACCOUNT = {
  ...serviceAccount(),
  token_uri: 'https://oauth2.googleapis.com/token',
  region: 'us-central1',
}
const plainKey = (slug: string) => `own-key-of-${slug.replace('/', '-')}-0123456789`

/** A key as a customer of the provider has it. */
function keyOf(slug: string): string {
  const api_key = plainKey(slug)
  switch (keyFormOf(slug)) {
    case 'plain':
      return api_key
    case 'regional':
      return JSON.stringify({ api_key, region: 'global' })
    case 'aws':
      return JSON.stringify({ ...ACCESS, region: slug === 'amazon-bedrock' ? 'eu-central-1' : 'us-west-2' })
    case 'claude-on-aws':
      return JSON.stringify({ ...ACCESS, region: 'us-west-2', workspace_id: 'wrkspc_1' })
    case 'azure':
      return JSON.stringify([
        { api_key, resource_name: 'mine', resource_type: 'ai_foundry' },
        {
          api_key: 'key-of-the-deployment-0123456789',
          model_slug: 'p/deployed',
          endpoint_url: DEPLOYMENT,
          model_id: 'deployment-1',
        },
      ])
    case 'vertex':
      return JSON.stringify(ACCOUNT)
    case 'account':
      return JSON.stringify({ api_key, account_id: 'acc0unt' })
    case 'host':
      return JSON.stringify({ api_key, host: 'dbc-1.cloud.databricks.com' })
  }
}

const DEPLOYMENT =
  'https://theirs.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21'

/** Models that make vectors, where the provider has any: address, and how the key goes along. */
const EMBEDDINGS: readonly (readonly [slug: string, url: string, carried: string])[] = [
  ['cohere', 'https://api.cohere.com/v2/embed', 'bearer'],
  [
    'google-ai-studio',
    'https://generativelanguage.googleapis.com/v1beta/models/v-1:batchEmbedContents',
    'x-goog-api-key',
  ],
  [
    'google-vertex',
    'https://us-central1-aiplatform.googleapis.com/v1/projects/my-project-1/locations/us-central1/publishers/google/models/v-1:predict',
    'token',
  ],
  ['mistral', 'https://api.mistral.ai/v1/embeddings', 'bearer'],
  ['openai', 'https://api.openai.com/v1/embeddings', 'bearer'],
  ['together', 'https://api.together.xyz/v1/embeddings', 'bearer'],
  ['voyageai', 'https://api.voyageai.com/v1/embeddings', 'bearer'],
]

const names = new Set([
  ...[...LINES.map(({ url }) => url), ...EMBEDDINGS.map(([, url]) => url), DEPLOYMENT].map(
    url => new URL(url).hostname,
  ),
  'oauth2.googleapis.com',
  'bedrock-runtime.us-east-1.amazonaws.com',
  'eu.api.openai.com',
  'spare.services.ai.azure.com',
])
const hosts = await startProviderHosts(t, [...names])
const modelOf = (slug: string) => `p/${slug.replace('/', '-')}`
const vectors = (slug: string) => `${modelOf(slug)}-vectors`
const gateway = await startGateway({
  providers: LINES.map(({ slug }) => ({
    slug,
    ...(slug === 'ollama' ? { baseUrl: hosts.plainUrl } : { proxy: hosts.proxy, tls: { ca: hosts.ca } }),
  })),
  models: [
    ...LINES.filter(({ slug }) => slug !== 'voyageai').map(({ slug }) => ({
      id: modelOf(slug),
      endpoints: [{ provider: slug, upstreamModel: 'm-1' }],
    })),
    ...EMBEDDINGS.map(([slug]) => ({
      id: vectors(slug),
      outputModalities: ['embeddings'],
      endpoints: [{ provider: slug, upstreamModel: 'v-1' }],
    })),
    {
      id: 'p/claude-on-vertex',
      endpoints: [
        {
          provider: 'google-vertex',
          format: 'anthropic-messages' as const,
          upstreamModel: 'claude@20250929',
        },
      ],
    },
    { id: 'p/deployed', endpoints: [{ provider: 'azure', upstreamModel: 'm-1' }] },
  ],
})
t.teardown(() => gateway.close())

async function manage(method: string, path: string, body?: unknown) {
  const reply = await fetch(`${gateway.url}${path}`, {
    method,
    headers: { authorization: `Bearer ${gateway.managementKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  return {
    status: reply.status,
    body: (await reply.json()) as {
      data: { id: string; unusable_reason: string | null }
      error: { message: string }
    },
  }
}

const ids = new Map<string, string>()

/** Asks a model, and gives what the provider was asked. */
async function asked(t: Test, path: string, body: Record<string, unknown>): Promise<HostCall | undefined> {
  hosts.calls.length = 0
  const reply = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  const text = await reply.text()
  t.equal(reply.status, 200, `${body['model']}: ${text.slice(0, 300)}`)
  t.equal(hosts.calls.length, 1)
  return hosts.calls[0]
}

/** Checks how the key went along. */
function checkKey(t: Test, slug: string, carried: string, call: HostCall | undefined): void {
  if (call === undefined) return
  const { authorization, ...headers } = call.headers
  const key = plainKey(slug)
  const [kind, service] = carried.split(':')
  switch (kind) {
    case 'bearer':
      t.equal(authorization, `Bearer ${key}`, slug)
      break
    case 'raw':
      t.equal(authorization, key, slug)
      break
    case 'token':
      t.equal(authorization, `Bearer ${TOKEN}`, slug)
      break
    case 'signed':
      t.match(
        authorization,
        new RegExp(`^AWS4-HMAC-SHA256 Credential=${ACCESS.accessKeyId}/\\d{8}/[a-z0-9-]+/${service}/`),
      )
      t.ok(authorization?.endsWith(`Signature=${expectedSignature(call, ACCESS.secretAccessKey)}`), slug)
      break
    default:
      t.equal(authorization, undefined, slug)
      t.equal(headers[carried], key, slug)
  }
}

t.test('every slug of the enumeration takes a key; the record says where no request can use it', async t => {
  const offered = LINES.map(({ slug }) => slug)
  const unusable = [...PROVIDER_SLUGS].filter(slug => !offered.includes(slug))
  t.equal(offered.length + unusable.length, 112)
  t.equal(KNOWN_SLUGS.filter(slug => PROVIDER_SLUGS.has(slug)).length, 112)
  for (const slug of unusable) {
    const { status, body } = await manage('POST', '/byok', { provider: slug, key: 'some-key-of-a-customer' })
    t.equal(status, 201, slug)
    t.match(body.data, { provider: slug, usable: false, label: '...omer' })
    t.match(body.data.unusable_reason, `is not offered: ${whyNotOffered(slug)}`)
    t.same((await manage('GET', `/byok/${body.data.id}`)).body, body)
    t.equal((await manage('DELETE', `/byok/${body.data.id}`)).status, 200)
  }
  t.equal(unusable.length, 19)
})

t.test('a key of every form is stored, and goes to the address of its provider in its way', async t => {
  for (const { slug, url, carried } of LINES) {
    const { status, body } = await manage('POST', '/byok', { provider: slug, key: keyOf(slug) })
    t.equal(status, 201, `${slug}: ${JSON.stringify(body)}`)
    ids.set(slug, body.data.id)
    // It makes vectors only.
    if (slug === 'voyageai') continue
    const call = await asked(t, '/responses', { model: modelOf(slug), input: 'Hi' })
    t.equal(call?.url, url, slug)
    checkKey(t, slug, carried, call)
    const sent = JSON.parse(call?.body ?? '{}') as Record<string, unknown>
    t.match(JSON.stringify(sent), 'Hi', slug)
    if (sent['model'] !== undefined) t.equal(sent['model'], 'm-1')
  }
})

t.test('vectors are asked for in the format of their provider', async t => {
  for (const [slug, url, carried] of EMBEDDINGS) {
    const call = await asked(t, '/embeddings', { model: vectors(slug), input: 'Hi' })
    t.equal(call?.url, url, slug)
    checkKey(t, slug, carried, call)
  }
})

t.test('a service account is exchanged once, by an assertion for the address of the row', async t => {
  t.equal(hosts.tokenCalls.length, 1)
  const [exchange] = hosts.tokenCalls
  t.equal(exchange?.url, 'https://oauth2.googleapis.com/token')
  const assertion = new URLSearchParams(exchange?.body).get('assertion') ?? ''
  t.match(decodeJwt(assertion), { iss: ACCOUNT.client_email, aud: 'https://oauth2.googleapis.com/token' })
})

t.test('Claude on Vertex is asked in the project and the location of the account', async t => {
  const call = await asked(t, '/responses', { model: 'p/claude-on-vertex', input: 'Hi' })
  t.equal(
    call?.url,
    'https://us-central1-aiplatform.googleapis.com/v1/projects/my-project-1/locations/us-central1/publishers/anthropic/models/claude@20250929:rawPredict',
  )
  checkKey(t, 'google-vertex', 'token', call)
  t.match(JSON.parse(call?.body ?? '{}'), { anthropic_version: 'vertex-2023-10-16', model: undefined })
})

t.test('a deployment of Azure is asked at its own address, with its own key', async t => {
  const call = await asked(t, '/responses', { model: 'p/deployed', input: 'Hi' })
  t.equal(call?.url, DEPLOYMENT)
  t.equal(call?.headers['api-key'], 'key-of-the-deployment-0123456789')
  t.match(JSON.parse(call?.body ?? '{}'), { model: 'deployment-1' })
})

t.test('Claude on AWS is told the workspace, also with an API key', async t => {
  const id = ids.get('claude-on-aws')
  const signed = await asked(t, '/responses', { model: 'p/claude-on-aws', input: 'Hi' })
  t.equal(signed?.headers['anthropic-workspace-id'], 'wrkspc_1')
  const key = JSON.stringify({
    api_key: 'workspace-key-0123456789',
    region: 'us-west-2',
    workspace_id: 'wrkspc_2',
  })
  t.equal((await manage('PATCH', `/byok/${id}`, { key })).status, 200)
  const call = await asked(t, '/responses', { model: 'p/claude-on-aws', input: 'Hi' })
  t.match(call?.headers, { 'x-api-key': 'workspace-key-0123456789', 'anthropic-workspace-id': 'wrkspc_2' })
  t.equal(call?.headers['authorization'], undefined)
})

t.test(
  'a stream of Converse reaches the client, with an access key and with an API key of Bedrock',
  async t => {
    const stream = async () => {
      hosts.calls.length = 0
      const reply = await gateway.respond({ model: 'p/amazon-bedrock', input: 'Hi', stream: true })
      const text = await reply.text()
      t.match(text, 'event: response.output_text.delta')
      t.match(text, /"type":"response.completed".*"text":"ok"/)
      return hosts.calls[0]
    }
    const signed = await stream()
    t.equal(signed?.url, 'https://bedrock-runtime.eu-central-1.amazonaws.com/model/m-1/converse-stream')
    checkKey(t, 'amazon-bedrock', 'signed:bedrock', signed)
    const key = plainKey('amazon-bedrock')
    t.equal((await manage('PATCH', `/byok/${ids.get('amazon-bedrock')}`, { key })).status, 200)
    const plain = await stream()
    t.equal(plain?.url, 'https://bedrock-runtime.us-east-1.amazonaws.com/model/m-1/converse-stream')
    checkKey(t, 'amazon-bedrock', 'bearer', plain)
  },
)

t.test('of several resources of an Azure key the next one is asked when one fails', async t => {
  const resource = (resource_name: string) => ({
    api_key: `key-of-${resource_name}-0123456789`,
    resource_name,
    resource_type: 'ai_foundry',
  })
  const key = JSON.stringify([resource('mine'), resource('spare')])
  t.equal((await manage('PATCH', `/byok/${ids.get('azure')}`, { key })).status, 200)
  const [mine, spare] = ['mine.services.ai.azure.com', 'spare.services.ai.azure.com'] as const
  const ask = async () => {
    hosts.calls.length = 0
    const reply = await gateway.respond({ model: 'p/azure', input: 'Hi' })
    await reply.text()
    for (const { url, headers } of hosts.calls)
      t.match(headers['api-key'], `key-of-${new URL(url).hostname.split('.')[0]}-`)
    return { status: reply.status, asked: hosts.calls.map(({ url }) => new URL(url).hostname) }
  }
  t.same(await ask(), { status: 200, asked: [mine] })
  hosts.failing.add(mine)
  t.same(await ask(), { status: 200, asked: [mine, spare] })
  t.same(await ask(), { status: 200, asked: [spare] }, 'the one that failed is avoided for a while')
  hosts.failing.add(spare)
  t.same(await ask(), { status: 429, asked: [spare, mine] }, 'each is asked once')
  hosts.failing.clear()
})

t.test("a key of OpenAI with a data region goes to that region's address", async t => {
  const key = JSON.stringify({ api_key: plainKey('openai'), region: 'europe' })
  t.equal((await manage('PATCH', `/byok/${ids.get('openai')}`, { key })).status, 200)
  t.equal(
    (await asked(t, '/responses', { model: 'p/openai', input: 'Hi' }))?.url,
    'https://eu.api.openai.com/v1/responses',
  )
})

t.test(
  'keys, tokens and signatures that a provider repeats reach neither the caller nor the log',
  async t => {
    const aws = JSON.stringify({ ...ACCESS, region: 'us-east-1' })
    await manage('PATCH', `/byok/${ids.get('amazon-bedrock')}`, { key: aws })
    hosts.isEchoing = true
    for (const slug of ['amazon-bedrock', 'google-vertex', 'azure', 'assemblyai', 'groq']) {
      hosts.calls.length = 0
      const reply = await gateway.respond({ model: modelOf(slug), input: 'Hi' })
      const told = (await reply.text()) + JSON.stringify(gateway.lines)
      t.equal(reply.status, 400, slug)
      const sent = hosts.calls[0]?.headers ?? {}
      const secrets = [
        /Signature=(\w+)/.exec(sent.authorization ?? '')?.[1],
        slug === 'google-vertex' ? TOKEN : undefined,
        ACCESS.secretAccessKey,
        ACCESS.accessKeyId,
        plainKey(slug),
      ].filter(secret => secret !== undefined)
      for (const secret of secrets) t.notOk(told.includes(secret), `${slug}: ${secret.slice(0, 12)}`)
    }
    hosts.isEchoing = false
  },
)

t.test('a key that could never be used is refused at creation, and says what it lacks', async t => {
  const cases: readonly (readonly [provider: string, key: unknown, message: RegExp])[] = [
    ['cloudflare', 'a-plain-key', /^key: must be JSON with api_key and account_id for this provider$/],
    ['databricks', 'a-plain-key', /^key: must be JSON with api_key and host for this provider$/],
    [
      'databricks',
      { api_key: 'k', host: 'evil.example.com' },
      /^key: host must be on one of these hosts: \*\.cloud\./,
    ],
    ['databricks', { api_key: 'k', host: 'x.cloud.databricks.com:444' }, /^key: host must be a host name/],
    ['claude-on-aws', 'a-plain-key', /^key: must be JSON with workspace_id, region, and api_key/],
    ['claude-on-aws', { api_key: 'k', region: 'us-west-2' }, /^key: workspace_id is required/],
    [
      'google-vertex',
      { ...ACCOUNT, token_uri: 'https://evil.example.com/token' },
      /^key: token_uri must be https:\/\/oauth2/,
    ],
    [
      'azure',
      [{ api_key: 'k', model_slug: 'p/x', endpoint_url: 'https://evil.example.com/x', model_id: 'd' }],
      /^key: endpoint_url must be on one of these hosts: \*\.openai\.azure\.com, /,
    ],
  ]
  for (const [provider, given, message] of cases) {
    const key = typeof given === 'string' ? given : JSON.stringify(given)
    const { status, body } = await manage('POST', '/byok', { provider, key })
    t.equal(status, 400, `${provider} ${key.slice(0, 40)}`)
    t.match(body.error.message, message)
    t.notMatch(body.error.message, 'evil')
  }
})

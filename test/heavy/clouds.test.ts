/**
 * The clouds' official SDKs, installed from npm in exact versions, and the gateway at the same recording server: for
 * the same question both must send the same path, query, headers and body.
 */
import { createServer, type IncomingHttpHeaders } from 'node:http'
import { join } from 'node:path'
import Anthropic from '@anthropic-ai/sdk'
import { GoogleGenAI } from '@google/genai'
import OpenAI, { AzureOpenAI } from 'openai'
import t, { type Test } from 'tap'
import { startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'
import { installedPackages } from './installed-packages.ts'

t.setTimeout(0)

const ANTHROPIC = '1.14.0'
const VERSIONS = {
  '@anthropic-ai/vertex-sdk': '1.1.3',
  '@anthropic-ai/bedrock-sdk': '1.1.3',
  '@anthropic-ai/foundry-sdk': '1.1.1',
  '@anthropic-ai/aws-sdk': '1.1.2',
  '@anthropic-ai/sdk': ANTHROPIC,
} as const
type Options = Readonly<Record<string, unknown>>
type Clouds = Readonly<Record<string, new (options: Options) => Anthropic>>
const modules = join(installedPackages(VERSIONS), 'node_modules')
async function cloud(name: keyof typeof VERSIONS, client: string, options: Options): Promise<Anthropic> {
  const found = ((await import(join(modules, name, 'index.mjs'))) as Clouds)[client]
  if (found === undefined) throw new Error(`${name} has no ${client}`)
  return new found({ maxRetries: 0, ...options })
}

interface Recorded {
  readonly method: string
  readonly path: string
  readonly query: string
  readonly headers: Readonly<Record<string, unknown>>
  readonly body: unknown
}
const recorded: Recorded[] = []

/** Headers that tell of the sender, its connection and its machine. */
const OF_SENDER =
  /^(?:user-agent|host|connection|content-length|accept|accept-.*|sec-fetch-.*|x-stainless-.*|x-goog-api-client|traceparent|x-amz-date|x-amz-content-sha256|priority)$/

function known(headers: IncomingHttpHeaders): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(headers)
      .filter(([name]) => !OF_SENDER.test(name))
      .map(([name, value]) => [name, String(value).replace(/Signature=\w+/, 'Signature=…')])
      .toSorted(([a = ''], [b = '']) => (a < b ? -1 : 1)),
  )
}

/** Refuses everything, so that nothing is asked twice. */
const server = createServer(async (request, response) => {
  let text = ''
  for await (const chunk of request.setEncoding('utf8')) text += String(chunk)
  const { pathname, search } = new URL(request.url ?? '', 'http://x')
  recorded.push({
    method: request.method ?? '',
    path: pathname,
    query: search,
    headers: known(request.headers),
    body: text === '' ? null : (JSON.parse(text) as unknown),
  })
  response.writeHead(400, { 'content-type': 'application/json' })
  response.end('{"type":"error","error":{"type":"invalid_request_error","message":"Recorded"}}')
})
const { url: base } = await listening(server, t)

async function requestOf(work: () => PromiseLike<unknown>): Promise<Recorded | undefined> {
  recorded.length = 0
  await Promise.resolve(work()).catch(() => null)
  return recorded[0]
}

/** Differences that are meant. */
interface Meant {
  /** The key is carried in a header of another name: the service takes either. */
  readonly keyHeader?: true
  /** The path of ours. */
  readonly path?: string
}

/**
 * Both without what may differ everywhere: the SDKs name the newest version of the Messages API, and the gateway the
 * one that its format implements; a text may stand for a list with one text; Google's SDK gives instructions a role.
 */
function comparable(request: Recorded | undefined, meant: Meant): unknown {
  if (request === undefined) return null
  const { 'anthropic-version': _, ...headers } = request.headers as Record<string, unknown>
  const { generateContentRequest, ...fields } = (request.body ?? {}) as Record<string, unknown>
  // The SDK counts contents; the gateway counts a whole request, with its tools.
  const { model: ___, ...counted } = (generateContentRequest ?? {}) as Record<string, unknown>
  const told = generateContentRequest === undefined ? fields : { ...fields, ...counted }
  const { anthropic_version: __, stream, ...body } = told
  // Bedrock reads the list in the body.
  if ('anthropic_beta' in body) delete headers['anthropic-beta']
  if (meant.keyHeader === true)
    for (const name of ['authorization', 'x-api-key', 'api-key'])
      if (headers[name] !== undefined) {
        headers['key'] = String(headers[name]).replace('Bearer ', '')
        delete headers[name]
      }
  const text = JSON.stringify(stream === false ? body : { ...body, stream })
    .replace(/"content":("(?:[^"\\]|\\.)*")/g, '"content":[{"type":"text","text":$1}]')
    .replace(/"systemInstruction":\{"role":"user",/, '"systemInstruction":{')
    .replace(/"systemInstruction":\{"parts":(\[[^\]]*\]),"role":"user"\}/, '"systemInstruction":{"parts":$1}')
  return {
    ...request,
    path: meant.path ?? decodeURIComponent(request.path),
    query: meant.path === undefined ? request.query : '',
    headers,
    body: JSON.parse(text) as unknown,
  }
}

/** Versions of the Messages API: its own, and those of the clouds. */
const OUR_VERSION = /^(?:2023-06-01|vertex-2023-10-16|bedrock-2023-05-31)$/
let passed = 0
let compared = 0

function compare(t: Test, ours: Recorded | undefined, theirs: Recorded | undefined, meant: Meant = {}): void {
  compared++
  t.ok(ours !== undefined && theirs !== undefined, 'both have asked')
  const { anthropic_version: inBody } = (ours?.body ?? {}) as { anthropic_version?: unknown }
  const version = inBody ?? ours?.headers['anthropic-version']
  if (version !== undefined) t.match(version, OUR_VERSION)
  t.same(comparable(ours, meant), comparable(theirs, meant))
  if (t.passing()) passed++
}

const TOKEN = 'token-0123456789'
const AWS_REGION = 'eu-west-1'
const PLACE = 'projects/tea/locations/europe-west1/publishers'
const CLAUDE = 'claude-sonnet-4-5@20250929'
const BEDROCK_CLAUDE = 'eu.anthropic.claude-sonnet-4-5-v1:0'
const bearer = { auth: 'bearer', apiKey: TOKEN }
const awsKey = JSON.stringify({ workspace_id: 'wrkspc_1', region: AWS_REGION, api_key: TOKEN })
/** Model, provider row, and the name of the model there. */
const ROWS: readonly (readonly [model: string, row: Options & { slug: string }, upstreamModel: string])[] = [
  [
    'cloud/vertex',
    {
      slug: 'google-vertex',
      format: 'anthropic-messages',
      baseUrl: `${base}/v1/${PLACE}/anthropic`,
      ...bearer,
      quirks: ['counts-contents', 'raw-predict'],
    },
    CLAUDE,
  ],
  [
    'cloud/gemini-vertex',
    {
      slug: 'gemini-of-the-test',
      format: 'google-gemini',
      baseUrl: `${base}/v1/${PLACE}/google`,
      ...bearer,
      quirks: ['counts-contents'],
    },
    'gemini-3-pro',
  ],
  ['cloud/gemini', { slug: 'google-ai-studio', baseUrl: `${base}/v1beta`, apiKey: TOKEN }, 'gemini-3-pro'],
  ['cloud/bedrock', { slug: 'amazon-bedrock', baseUrl: base, apiKey: TOKEN }, BEDROCK_CLAUDE],
  [
    'cloud/bedrock-messages',
    { slug: 'amazon-bedrock/claude-on-aws', baseUrl: `${base}/anthropic/v1`, apiKey: TOKEN },
    'anthropic.claude-sonnet-4-5',
  ],
  ['cloud/aws', { slug: 'claude-on-aws', baseUrl: `${base}/v1`, apiKey: awsKey }, 'claude-sonnet-4-5'],
  [
    'cloud/foundry',
    { slug: 'azure', format: 'anthropic-messages', baseUrl: `${base}/anthropic/v1`, apiKey: TOKEN },
    'claude-sonnet-4-5',
  ],
  [
    'cloud/azure',
    {
      slug: 'azure-of-the-test',
      format: 'openai-chat',
      baseUrl: `${base}/openai/v1`,
      auth: 'api-key',
      apiKey: TOKEN,
    },
    'gpt-5',
  ],
]
const gateway = await startGateway({
  providers: ROWS.map(([, row]) => row),
  models: ROWS.map(([id, { slug: provider }, upstreamModel]) => ({
    id,
    endpoints: [{ provider, upstreamModel }],
  })),
} as object)
t.teardown(() => gateway.close())
const address = `http://127.0.0.1:${gateway.port}`
const ours = new Anthropic({ baseURL: address, apiKey: gateway.apiKey, maxRetries: 0 })

const authClient = {
  projectId: 'tea',
  getRequestHeaders: async () => new Headers({ authorization: `Bearer ${TOKEN}` }),
}

const BASH = { type: 'bash_20250124' as const, name: 'bash' as const }
const ASK = { max_tokens: 2000, messages: [{ role: 'user' as const, content: 'Tea?' }], tools: [BASH] }
const questions: readonly (readonly [string, Options])[] = [
  ['a plain question', { ...ASK, system: 'Be brief', temperature: 0.5, stop_sequences: ['.'] }],
  ['a stream', { ...ASK, stream: true }],
  ['a beta', { ...ASK, betas: ['context-1m-2025-08-07'] }],
  [
    'two betas, streamed',
    {
      ...ASK,
      stream: true,
      betas: ['context-1m-2025-08-07', 'context-management-2025-06-27'],
      context_management: { edits: [{ type: 'clear_tool_uses_20250919' }] },
    },
  ],
  ['thinking', { ...ASK, thinking: { type: 'enabled', budget_tokens: 1024 } }],
]
const counted = { messages: ASK.messages, system: 'Be brief' }

const clouds: readonly (readonly [string, string, string, Anthropic, boolean])[] = [
  [
    'Vertex',
    'cloud/vertex',
    CLAUDE,
    await cloud('@anthropic-ai/vertex-sdk', 'AnthropicVertex', {
      region: 'europe-west1',
      projectId: 'tea',
      baseURL: `${base}/v1`,
      authClient,
    }),
    true,
  ],
  [
    'Bedrock',
    'cloud/bedrock',
    BEDROCK_CLAUDE,
    await cloud('@anthropic-ai/bedrock-sdk', 'AnthropicBedrock', {
      awsRegion: AWS_REGION,
      baseURL: base,
      apiKey: TOKEN,
    }),
    false,
  ],
  [
    'Bedrock Mantle',
    'cloud/bedrock-messages',
    'anthropic.claude-sonnet-4-5',
    await cloud('@anthropic-ai/bedrock-sdk', 'AnthropicBedrockMantle', {
      awsRegion: AWS_REGION,
      baseURL: `${base}/anthropic`,
      apiKey: TOKEN,
    }),
    true,
  ],
  [
    'AWS',
    'cloud/aws',
    'claude-sonnet-4-5',
    await cloud('@anthropic-ai/aws-sdk', 'AnthropicAws', {
      awsRegion: AWS_REGION,
      workspaceId: 'wrkspc_1',
      baseURL: base,
      apiKey: TOKEN,
    }),
    true,
  ],
  [
    'Foundry',
    'cloud/foundry',
    'claude-sonnet-4-5',
    await cloud('@anthropic-ai/foundry-sdk', 'AnthropicFoundry', {
      baseURL: `${base}/anthropic`,
      apiKey: TOKEN,
    }),
    true,
  ],
]
for (const [name, model, upstream, client, counts] of clouds) {
  const meant: Meant = ['AWS', 'Foundry'].includes(name) ? { keyHeader: true } : {}
  for (const [what, question] of questions) {
    t.test(`Claude at ${name}: ${what}`, async t => {
      const theirs = await requestOf(() =>
        client.beta.messages.create({ ...question, model: upstream } as never),
      )
      const mine = await requestOf(() => ours.beta.messages.create({ ...question, model } as never))
      compare(t, mine, theirs, meant)
    })
  }
  if (counts)
    t.test(`Claude at ${name}: tokens`, async t => {
      const theirs = await requestOf(() => client.messages.countTokens({ ...counted, model: upstream }))
      const mine = await requestOf(() => ours.messages.countTokens({ ...counted, model }))
      compare(t, mine, theirs, meant)
    })
}

const googleAuthOptions = { authClient }
const theirVertex = new GoogleGenAI({
  vertexai: true,
  project: 'tea',
  location: 'europe-west1',
  googleAuthOptions,
  httpOptions: { baseUrl: base, apiVersion: 'v1' },
} as never)
const theirGemini = new GoogleGenAI({
  apiKey: TOKEN,
  httpOptions: { baseUrl: base, apiVersion: 'v1beta' },
})
const ourGoogle = new GoogleGenAI({ apiKey: gateway.apiKey, httpOptions: { baseUrl: address } })
const contents = [{ role: 'user', parts: [{ text: 'Tea?' }] }]
const config = {
  systemInstruction: 'Be brief',
  temperature: 0.5,
  maxOutputTokens: 100,
  stopSequences: ['.'],
  tools: [
    {
      functionDeclarations: [
        { name: 'brew', description: 'Brews', parametersJsonSchema: { type: 'object', properties: {} } },
      ],
    },
  ],
}
for (const [name, model, client] of [
  ['Vertex', 'cloud/gemini-vertex', theirVertex],
  ['AI Studio', 'cloud/gemini', theirGemini],
] as const) {
  const both = (ask: (client: GoogleGenAI, model: string) => PromiseLike<unknown>) => async (t: Test) => {
    const theirs = await requestOf(() => ask(client, 'gemini-3-pro'))
    const mine = await requestOf(() => ask(ourGoogle, model))
    compare(t, mine, theirs)
  }
  t.test(
    `Gemini at ${name}: a plain question`,
    both((one, model) => one.models.generateContent({ model, contents, config })),
  )
  t.test(
    `Gemini at ${name}: a stream`,
    both((one, model) => one.models.generateContentStream({ model, contents, config })),
  )
  t.test(
    `Gemini at ${name}: tokens`,
    both((one, model) => one.models.countTokens({ model, contents })),
  )
}

const azure = new AzureOpenAI({
  apiVersion: 'preview',
  baseURL: `${base}/openai/v1`,
  apiKey: TOKEN,
  maxRetries: 0,
})
const ourOpenAi = new OpenAI({ baseURL: gateway.url, apiKey: gateway.apiKey, maxRetries: 0 })
for (const stream of [false, true]) {
  t.test(`GPT at Azure: ${stream ? 'a stream' : 'a plain question'}`, async t => {
    const question = {
      messages: ASK.messages,
      temperature: 0.5,
      max_completion_tokens: 100,
      stream,
      ...(stream ? { stream_options: { include_usage: true } } : {}),
    }
    const theirs = await requestOf(() =>
      azure.chat.completions.create({ ...question, model: 'gpt-5' } as never),
    )
    const mine = await requestOf(() =>
      ourOpenAi.chat.completions.create({ ...question, model: 'cloud/azure' } as never),
    )
    // Deployments have a path in the older API; the newer one has the model in the body alone.
    compare(t, mine, theirs, { path: '/openai/v1/chat/completions' })
  })
}

t.test('all of them', async t => t.comment(`RESULT ${passed}/${compared}`))

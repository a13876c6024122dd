/** A gateway process that traces everything, and functions that send one request of each kind to it. */
import { randomBytes } from 'node:crypto'
import { request as httpRequest } from 'node:http'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from '../../support/gateway-process.ts'
import { caller } from '../../support/management.ts'
import { startMcpServer } from '../../support/mcp-server.ts'
import { openSocket } from '../../support/response-socket-client.ts'
import { serve } from '../../support/world.ts'
import { CANARY, TracedProvider } from './provider.ts'

/** What became of one request, and where its trace has to be. */
export interface Sent {
  readonly kind: string
  /** The request's own: the value of `X-Request-Id`, or its generation id where it has none. */
  readonly id: string
  /** The place in a trace that it named by the rules; null: none. */
  readonly caller: { readonly traceId: string; readonly spanId: string } | null
  /** A trace id that it named against the rules. */
  readonly refused: string | null
  readonly status: number
  /** Header `Traceresponse`; null: it has not come. */
  readonly told: string | null
}

/** How a request names its trace. */
interface Naming {
  readonly headers: readonly (readonly [string, string])[]
  readonly caller: Sent['caller']
  readonly refused: string | null
}

const hex = (bytes: number): string => randomBytes(bytes).toString('hex')

/** Ways to name a trace by the rules of W3C, and against them; one after the other. */
const NAMINGS: readonly (() => Naming)[] = [
  () => ({ headers: [], caller: null, refused: null }),
  () => valid((trace, span) => `00-${trace}-${span}-01`),
  () => valid((trace, span) => `00-${trace}-${span}-00`),
  () => valid((trace, span) => `00-${trace}-${span}-ff`, 'vendor=t61rcWkgMzE,other@system=1'),
  () => valid((trace, span) => `cc-${trace}-${span}-01-of-the-future`),
  () => valid((trace, span) => ` \t00-${trace}-${span}-01 `),
  () => malformed((trace, span) => [`00-${trace.toUpperCase()}-${span}-01`]),
  () => malformed((trace, span) => [`ff-${trace}-${span}-01`]),
  () => malformed((trace, span) => [`00-${trace}-${span}-01-more`]),
  () => malformed((trace, span) => [`00-${trace}-${span}`]),
  () => malformed(trace => [`00-${trace}-${'0'.repeat(16)}-01`]),
  () => malformed((_, span) => [`00-${'0'.repeat(32)}-${span}-01`]),
  () => malformed((trace, span) => [`00-${trace}-${span}-01`, `00-${trace}-${span}-01`]),
  () => malformed((trace, span) => [`00-${trace}g-${span}-01`]),
]

const namingOf = (at: number): Naming => (NAMINGS[at % NAMINGS.length] as () => Naming)()

function valid(write: (traceId: string, spanId: string) => string, state?: string): Naming {
  // A letter, so that upper case would be another text.
  const [traceId, spanId] = [`a${hex(16).slice(1)}`, hex(8)]
  const headers: [string, string][] = [['traceparent', write(traceId, spanId)]]
  if (state !== undefined) headers.push(['tracestate', state])
  return { headers, caller: { traceId, spanId }, refused: null }
}

function malformed(write: (traceId: string, spanId: string) => readonly string[]): Naming {
  const [traceId, spanId] = [`a${hex(16).slice(1)}`, hex(8)]
  const headers = write(traceId, spanId).map(value => ['traceparent', value] as [string, string])
  return { headers: [...headers, ['tracestate', 'vendor=1']], caller: null, refused: traceId }
}

interface Asking {
  readonly path?: string
  readonly key?: string
  readonly raw?: string
  /** The client hangs up once so many bytes of the answer have come; 0: once it has asked. */
  readonly leavesAt?: number
  /** The client hangs up once the provider of its trace leaves a request without an answer. */
  readonly leavesMute?: TracedProvider
}

/** Odd to the last unit: parts of it have to be rounded. */
const PRICES = { prompt: '0.000000313331', completion: '0.000000717773' }
const SHARED_KEY = `sk-${CANARY}-shared-${hex(12)}`
const OWN_KEY = `sk-${CANARY}-own-${hex(12)}`

export interface TracedWorld {
  readonly gateway: GatewayProcess
  readonly provider: TracedProvider
  readonly storageUrl: string
  /** Keys that no span may have. */
  readonly keys: readonly string[]
  /** By kind of request. The number chooses how it names its trace. */
  readonly kinds: Readonly<Record<string, (at: number) => Promise<readonly Sent[]>>>
}

export async function startTracedWorld(
  t: Test,
  tracing: Readonly<Record<string, unknown>>,
  environment: Readonly<Record<string, string>> = {},
): Promise<TracedWorld> {
  const provider = new TracedProvider()
  const baseUrl = await provider.listen()
  const mcp = await startMcpServer({
    tools: [{ name: 'add', run: () => ({ content: [{ type: 'text', text: `${CANARY}-result` }] }) }],
  })
  const engine = await serve(t, (_, response) => {
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify({ results: [{ url: 'https://example.com/', text: `${CANARY}-page` }] }))
  })
  t.teardown(() => Promise.all([provider.close(), mcp.close()]))
  const managementKey = `sk-gw-mgmt-${hex(32)}`
  const gateway = await startGatewayProcess(t, settingsOf(baseUrl, engine.url, tracing), {
    GATEWAY_MANAGEMENT_KEY: managementKey,
    ...environment,
  })
  const keys = await keysOf(gateway, managementKey)
  return {
    gateway,
    provider,
    storageUrl: `sqlite:${join(dirname(gateway.configFile), 'data/gateway.db')}`,
    keys: [gateway.apiKey, managementKey, SHARED_KEY, OWN_KEY, ...Object.values(keys)],
    kinds: kindsOf(gateway, keys, mcp.url, provider),
  }
}

function settingsOf(baseUrl: string, engineUrl: string, tracing: object): Readonly<Record<string, unknown>> {
  const endpoint = (slug: string, upstreamModel: string) => ({
    supportedParameters: ['tools', 'temperature'],
    provider: slug,
    upstreamModel,
    pricing: PRICES,
  })
  const model = (name: string, ...upstream: string[]) => ({
    id: `m/${name}`,
    name,
    contextLength: 100_000,
    maxOutputTokens: 500,
    endpoints: upstream.map((each, at) => endpoint(at === 0 ? 'one' : 'two', each)),
  })
  const shared = (slug: string, more: object = {}) => ({
    slug,
    name: slug,
    format: 'openai-chat',
    baseUrl,
    apiKey: SHARED_KEY,
    ...more,
  })
  return {
    tracing: { share: 1, ...tracing },
    limits: NO_SHEDDING,
    routing: { loadBalancing: false, breakerFailures: null, hedgeAfterMs: 300 },
    quotas: { tokensPerMinute: 1_000_000 },
    byok: { feePercent: 5 },
    batches: { priceFactor: '0.333' },
    tools: {
      mcp: { allowPrivate: true },
      webSearch: { engines: [{ name: 'own', kind: 'exa', baseUrl: engineUrl, apiKey: `${CANARY}-engine` }] },
    },
    providers: [shared('one'), shared('two', { propagateTrace: true }), { slug: 'groq', baseUrl }],
    models: [
      ...['ok', 'json', 'call', 'email', 'held', 'cut'].map(name => model(name, `${name}-one`)),
      model('failover', 'fail-one', 'ok-two'),
      model('limited', 'busy-one', 'ok-two'),
      model('busy', 'busy-one'),
      { ...model('large', 'ok-one'), contextLength: 4_000_000, maxOutputTokens: 2_000_000 },
      model('broken', 'fail-one', 'fail-two'),
      model('hedged', 'mute-one', 'ok-two'),
      model('mute', 'mute-one'),
      { ...model('vectors', 'vectors-one'), outputModalities: ['embeddings'] },
      { id: 'm/own', endpoints: [{ provider: 'groq', upstreamModel: 'ok-own', pricing: PRICES }] },
    ],
  }
}

type Keys = Readonly<Record<'blocked' | 'redacted' | 'replies' | 'poor' | 'disabled' | 'other', string>>

async function keysOf({ url }: GatewayProcess, managementKey: string): Promise<Keys> {
  const manage = caller(`${url}/v1`, managementKey)
  const done = async (method: string, path: string, body: object) => {
    const answer = await manage(method, path, body)
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`)
    return answer
  }
  const key = async (fields: object = {}) => {
    const { document, data } = await done('POST', '/keys', { name: `${CANARY}`.slice(0, 3), ...fields })
    return { key: String(document['key']), hash: String(data['hash']) }
  }
  const guarded = async (fields: object) => {
    const made = await key()
    const { data } = await done('POST', '/guardrails', { name: 'guard', ...fields })
    const path = `/guardrails/${String(data['id'])}/assignments/keys`
    await done('POST', path, { key_hashes: [made.hash] })
    return made.key
  }
  const emails = (action: string) => ({ content_filter_builtins: [{ slug: 'email', action }] })
  await done('POST', '/byok', { provider: 'groq', key: OWN_KEY })
  return {
    blocked: await guarded(emails('block')),
    redacted: await guarded(emails('redact')),
    replies: await guarded({ output: emails('block') }),
    poor: (await key({ limit: 0.000001 })).key,
    other: (await key()).key,
    disabled: `sk-gw-v1-${hex(32)}`,
  }
}

function kindsOf(
  gateway: GatewayProcess,
  keys: Keys,
  mcpUrl: string,
  provider: TracedProvider,
): TracedWorld['kinds'] {
  let number = 0
  const ask = (kind: string, at: number, body: object, how: Asking = {}) =>
    send(gateway, kind, `mixed-${number++}`, namingOf(at), body, how).then(sent => [sent])
  const input = `${CANARY}-prompt`
  const messages = [{ role: 'user', content: input }]
  const responses = (model: string, more: object = {}) => ({
    model: `m/${model}`,
    input,
    user: `${CANARY}-user`,
    ...more,
  })
  const chat = (more: object = {}) => ({
    model: 'm/ok',
    messages,
    metadata: { [`${CANARY}_name`]: CANARY },
    ...more,
  })
  const CHAT = { path: '/v1/chat/completions' }
  const MESSAGES = { path: '/v1/messages' }
  const gemini = (verb: string) => ({ path: `/v1beta/models/m/ok:${verb}` })
  const contents = { contents: [{ role: 'user', parts: [{ text: input }] }] }
  const tool = (type: string, parameters?: object) => ({
    tools: [{ type: `gateway:${type}`, ...(parameters === undefined ? {} : { parameters }) }],
  })
  const email = { input: `${CANARY}.prompt@example.com` }
  const panel = {
    analysis_models: ['m/ok', 'm/broken', 'm/email'],
    model: 'm/json',
    max_completion_tokens: 400,
  }
  const simple: Readonly<Record<string, (at: number) => Promise<readonly Sent[]>>> = {
    responses: at => ask('responses', at, responses('ok')),
    'responses, streamed': at => ask('responses, streamed', at, responses('ok', { stream: true })),
    chat: at => ask('chat', at, chat(), CHAT),
    'chat, streamed': at => ask('chat, streamed', at, chat({ stream: true }), CHAT),
    messages: at => ask('messages', at, { model: 'm/ok', messages, max_tokens: 9 }, MESSAGES),
    'messages, streamed': at =>
      ask('messages, streamed', at, { model: 'm/ok', messages, max_tokens: 9, stream: true }, MESSAGES),
    gemini: at => ask('gemini', at, contents, gemini('generateContent')),
    'gemini, streamed': at => ask('gemini, streamed', at, contents, gemini('streamGenerateContent')),
    embeddings: at => ask('embeddings', at, { model: 'm/vectors', input }, { path: '/v1/embeddings' }),
    'count tokens': at =>
      ask('count tokens', at, { model: 'm/ok', messages }, { path: '/v1/messages/count_tokens' }),
    failover: at => ask('failover', at, responses('failover')),
    'failover, streamed': at => ask('failover, streamed', at, responses('failover', { stream: true })),
    'after a limit': at => ask('after a limit', at, responses('limited')),
    'fallback model': at => ask('fallback model', at, responses('broken', { models: ['m/broken', 'm/ok'] })),
    'all fail': at => ask('all fail', at, responses('broken')),
    'provider limits': at => ask('provider limits', at, responses('busy')),
    hedged: at => ask('hedged', at, responses('hedged', { stream: true })),
    'cut off': at => ask('cut off', at, responses('cut', { stream: true })),
    'own key': at => ask('own key', at, responses('own')),
    datetime: at => ask('datetime', at, responses('call', tool('datetime'))),
    advisor: at => ask('advisor', at, responses('call', tool('advisor', { model: 'm/failover' }))),
    'subagent, streamed': at =>
      ask(
        'subagent, streamed',
        at,
        responses('call', { stream: true, ...tool('subagent', { model: 'm/ok' }) }),
      ),
    'web search': at => ask('web search', at, responses('call', tool('web_search'))),
    fusion: at => ask('fusion', at, responses('call', tool('fusion', panel))),
    mcp: at =>
      ask(
        'mcp',
        at,
        responses('call', {
          tools: [
            {
              type: 'mcp',
              server_label: 'sums',
              server_url: mcpUrl,
              authorization: `${CANARY}-token`,
              require_approval: 'never',
            },
          ],
        }),
      ),
    blocked: at => ask('blocked', at, responses('ok', email), { key: keys.blocked }),
    redacted: at => ask('redacted', at, responses('ok', email), { key: keys.redacted }),
    'reply blocked': at =>
      ask('reply blocked', at, responses('email', { stream: true }), { key: keys.replies }),
    'refused: 400': at => ask('refused: 400', at, responses('ok', { temperature: CANARY })),
    'refused: metadata': at =>
      ask('refused: metadata', at, responses('ok', { metadata: { [`${CANARY}_name`]: { a: 1 } } })),
    'refused: nested name': at =>
      ask(
        'refused: nested name',
        at,
        {},
        {
          raw: JSON.stringify(responses('ok', { metadata: {} })).replace(
            '{}',
            `{"${CANARY}_name":{"__proto__":1}}`,
          ),
        },
      ),
    'refused: no JSON': at => ask('refused: no JSON', at, {}, { raw: `{"${CANARY}` }),
    'refused: 401': at => ask('refused: 401', at, responses('ok'), { key: keys.disabled }),
    'refused: 402': at =>
      ask('refused: 402', at, responses('ok', { max_output_tokens: 1_000 }), { key: keys.poor }),
    'refused: model': at => ask('refused: model', at, responses(`${CANARY}-model`)),
    'refused: 404': at => ask('refused: 404', at, responses('ok'), { path: `/v1/${CANARY}` }),
    'refused: 405': at => ask('refused: 405', at, responses('ok'), { path: '/v1/models' }),
    'refused: 429': at =>
      ask('refused: 429', at, responses('large', { max_output_tokens: 1_500_000 }), { key: keys.other }),
    'left in the middle': at =>
      ask('left in the middle', at, responses('held', { stream: true }), { leavesAt: 200 }),
    'left before the answer': at => ask('left before the answer', at, responses('mute'), { leavesAt: 0 }),
    'left, with a tool': at =>
      ask(
        'left, with a tool',
        at,
        responses('call', { stream: true, ...tool('advisor', { model: 'm/mute' }) }),
        { leavesMute: provider },
      ),
  }
  return {
    ...simple,
    socket: at => overSocket(gateway, at, input),
    batch: at => inBatch(gateway, at, input),
  }
}

/** Sends one request with the headers exactly as they are. Never rejects. */
function send(
  { port, apiKey }: GatewayProcess,
  kind: string,
  id: string,
  { headers, caller, refused }: Naming,
  body: object,
  { path = '/v1/responses', key = apiKey, raw = JSON.stringify(body), leavesAt, leavesMute }: Asking,
): Promise<Sent> {
  return new Promise(resolve => {
    const sent = (status: number, told: unknown): void =>
      resolve({ kind, id, caller, refused, status, told: typeof told === 'string' ? told : null })
    const request = httpRequest({
      host: '127.0.0.1',
      port,
      path,
      method: 'POST',
      agent: false,
      headers: [
        ...[
          ['host', `127.0.0.1:${port}`],
          ['authorization', `Bearer ${key}`],
          ['x-request-id', id],
        ],
        ...[
          ['content-type', 'application/json'],
          ['content-length', String(Buffer.byteLength(raw))],
        ],
        ...[
          ['baggage', `${CANARY}=1`],
          ['user-agent', `Agent/1 ${CANARY}`],
        ],
        ...headers,
      ].flat() as never,
    })
    request.on('response', response => {
      const told = response.headers['traceresponse']
      if (leavesMute !== undefined) void leavesMute.muted(String(told)).then(() => request.destroy())
      let bytes = 0
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length
        if (leavesAt !== undefined && bytes >= leavesAt) request.destroy()
      })
      response.on('close', () => sent(response.statusCode ?? 0, told))
    })
    request.on('error', () => sent(0, null))
    request.end(raw, () => {
      if (leavesAt === 0) setImmediate(() => request.destroy())
    })
  })
}

/** Two messages of one connection, of which the second is refused. */
async function overSocket(
  { url, apiKey }: GatewayProcess,
  at: number,
  input: string,
): Promise<readonly Sent[]> {
  const { headers, caller, refused } = namingOf(at)
  // The client joins equal headers by itself.
  const socket = await openSocket(`${url}/v1`, apiKey, Object.fromEntries(headers))
  try {
    const [first] = await socket.ask({ model: 'm/ok', input })
    const { id } = (first?.['response'] ?? {}) as { id?: string }
    await socket.ask({ model: `m/${CANARY}`, input })
    return [{ kind: 'socket', id: String(id), caller, refused, status: 200, told: null }]
  } finally {
    socket.close()
  }
}

/** Three lines, each of which the first provider fails. */
async function inBatch({ url, apiKey }: GatewayProcess, at: number, input: string): Promise<readonly Sent[]> {
  const api = caller(`${url}/v1`, apiKey)
  const { document, status, text } = await api('POST', '/batches', {
    endpoint: '/v1/chat/completions',
    requests: [1, 2, 3].map(line => ({
      custom_id: `${CANARY}-${at}-${line}`,
      body: { model: 'm/failover', messages: [{ role: 'user', content: input }] },
    })),
  })
  if (status !== 202) throw new Error(`POST /batches: ${status} ${text}`)
  for (;;) {
    const { document: batch } = await api('GET', `/batches/${String(document['id'])}`)
    const results = batch['results'] as readonly { response: { request_id: string } | null }[] | null
    if (results === null) {
      await new Promise(resolve => setTimeout(resolve, 200))
      continue
    }
    return results.flatMap(({ response }) =>
      response === null
        ? []
        : [{ kind: 'batch', id: response.request_id, caller: null, refused: null, status: 200, told: null }],
    )
  }
}

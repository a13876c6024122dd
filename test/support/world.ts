/**
 * Worlds: a gateway with the providers that the test plays, its database, and clients. `startWorld` makes any of them;
 * the others are worlds that several tests share.
 */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { RequestListener, ServerResponse } from 'node:http'
import { connect } from 'node:net'
import type { Test } from 'tap'
import { simModel } from '../../src/apps/simulator/rows.ts'
import { systemClock } from '../../src/base/clock.ts'
import { hashKey, keyRecord } from '../../src/callers/api-key.ts'
import type { SearchEngineRow } from '../../src/features/tools/settings.ts'
import type { Config } from '../../src/process/config/settings.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { GuardrailRecord } from '../../src/protocol/management/guardrails.ts'
import type { KeyKind, KeyRecord } from '../../src/protocol/management/keys.ts'
import type { WorkspaceRecord } from '../../src/protocol/management/management.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { openStore } from '../../src/storage/open.ts'
import { DEFAULT_ORGANIZATION_ID } from '../../src/storage/store.ts'
import type { UsageRecord } from '../../src/storage/usage.ts'
import { grammarViolations } from './event-grammar.ts'
import {
  finalOf,
  parseEventStream,
  startGateway,
  type TestGateway,
  type TestGatewayOptions,
} from './gateway.ts'
import { giveGuardrail } from './guardrail.ts'
import { type Answered, caller } from './management.ts'
import { until } from './patience.ts'
import {
  FORMATS,
  Parrot,
  Provider,
  parrotRows,
  ScriptedProvider,
  type ScriptedReply,
  startReplayProvider,
  startToldProvider,
} from './provider.ts'
import { TestClock } from './test-clock.ts'

type Teardown = Pick<Test, 'teardown'>
export type Fields = Readonly<Record<string, unknown>>

export interface WorldOptions extends TestGatewayOptions {
  /** Models `acme/<name>` of the scripted provider, with the names by which it is asked, one for each endpoint. */
  readonly scripted?: Readonly<Record<string, readonly string[]>>
  /** Whether there is a parrot with its models; whether there are replayed ones. */
  readonly parrot?: boolean
  readonly replay?: boolean
}

const PRICING = { prompt: '0.000001', completion: '0.00001' }

function scriptedRows(
  baseUrl: string,
  models: Readonly<Record<string, readonly string[]>>,
): Pick<Config, 'providers' | 'models'> {
  return {
    providers: [{ slug: 'acme', name: 'Acme', format: 'openai-chat', baseUrl, apiKey: 'x' }],
    models: Object.entries(models).map(([name, upstream]) => ({
      id: `acme/${name}`,
      name: `${name.slice(0, 1).toUpperCase()}${name.slice(1)}`,
      endpoints: upstream.map(upstreamModel => ({
        provider: 'acme',
        upstreamModel,
        pricing: PRICING,
        zdr: true,
      })),
    })),
  }
}

export async function startWorld({ scripted, parrot: speaks, replay: plays, ...options }: WorldOptions = {}) {
  const provider = new ScriptedProvider()
  const parrot = new Parrot()
  const replay = await startReplayProvider()
  const urls = { provider: await provider.listen(), parrot: await parrot.listen() }
  const rows = [
    scripted === undefined ? null : scriptedRows(urls.provider, scripted),
    plays ? replay.rows : null,
    speaks ? parrotRows(urls.parrot) : null,
    { providers: options.providers ?? [], models: options.models ?? [] },
  ].filter(one => one !== null)
  const gateway = await startGateway({
    ...options,
    providers: rows.flatMap(one => one.providers),
    models: rows.flatMap(one => one.models),
  })
  const store = await openStore(gateway.storageUrl)
  const clock = options.clock ?? systemClock
  return {
    gateway,
    store,
    provider,
    parrot,
    replay,
    /** A key that is put into the store directly. */
    async addKey(kind: KeyKind, fields: Partial<KeyRecord> = {}) {
      const prefix = kind === 'inference' ? 'sk-gw-v1-' : 'sk-gw-mgmt-'
      const key = prefix + randomBytes(32).toString('hex')
      const record = { ...keyRecord(key, kind, { name: 'added', clock }), ...fields }
      await store.keys.add(record)
      return { key, record }
    },
    /** Usage records so far. */
    async records(): Promise<readonly UsageRecord[]> {
      await gateway.shipper.ship()
      return await store.ledger.latest({ organizationId: DEFAULT_ORGANIZATION_ID }, 100)
    },
    async close(): Promise<void> {
      await store.close()
      await gateway.close()
      await Promise.all([provider.close(), parrot.close(), replay.close()])
    },
  }
}

async function startWorldOf(t: Teardown, options: WorldOptions) {
  const world = await startWorld(options)
  t.teardown(() => world.close())
  return world
}

/** A parrot and recorded replies, in every format. */
export function startDialectGateway(t: Teardown) {
  return startWorldOf(t, { parrot: true, replay: true })
}

// A scripted model and a scripted evaluator

export const TIMEOUT_MS = 5_000
export const MODEL = 'acme/model'
/** The same model with a second endpoint behind the first. */
export const BACKED = 'acme/backed'

export function startAligned(options: TestGatewayOptions = {}) {
  return startWorld({
    alignment: { evaluator: { model: 'acme/judge' }, hipaaWorkspaces: [], timeoutMs: TIMEOUT_MS },
    scripted: { model: ['model'], backed: ['model', 'backup'], judge: ['judge'] },
    ...options,
  })
}

// A parrot behind a key that has the guardrail of the test

export interface Reply {
  readonly status: number
  readonly retryAfter: string | null
  /** Empty for whole answers. */
  readonly events: readonly StreamEvent[]
  /** The answer, or the response of the terminal event, or the envelope. */
  readonly document: Record<string, unknown>
  readonly text: string
}

export async function startGuarded(t: Teardown, options: TestGatewayOptions = {}) {
  const { gateway, parrot, store } = await startWorldOf(t, { ...options, parrot: true })
  return {
    gateway,
    parrot,
    /** The key has this guardrail alone from here on. */
    async guard(rules: Partial<GuardrailRecord>): Promise<GuardrailRecord> {
      const record = await giveGuardrail(store, hashKey(gateway.apiKey), rules)
      gateway.serving.invalidate({ kind: 'guardrails', organizationId: record.organizationId })
      return record
    },
    async ask(body: Record<string, unknown>): Promise<Reply> {
      const { status, headers, ...answer } = await read(
        gateway.respond(body, { headers: { 'x-gateway-metadata': 'enabled' } }),
      )
      return { status, retryAfter: headers.get('retry-after'), ...answer }
    },
  }
}

async function read(asked: Promise<Response>) {
  const { status, headers, ...reply } = await asked.then(async answer => ({
    status: answer.status,
    headers: answer.headers,
    text: await answer.text(),
  }))
  const { text } = reply
  if (!(headers.get('content-type') ?? '').startsWith('text/event-stream')) {
    return { status, headers, events: [], document: JSON.parse(text) as Record<string, unknown>, text }
  }
  const events = parseEventStream(text)
  const last = events.at(-1) as unknown as { response?: Record<string, unknown> }
  return { status, headers, events, document: last.response ?? {}, text }
}

/** Everything the reply says, by kind: of a whole answer, or of the terminal event. */
export function saidIn(document: Record<string, unknown>): string {
  const output = (document['output'] ?? []) as readonly {
    content?: readonly { text?: string; refusal?: string }[]
    arguments?: string
    summary?: readonly { text?: string }[]
  }[]
  return output
    .map(item =>
      [
        ...(item.summary ?? []).map(part => part.text ?? ''),
        ...(item.content ?? []).map(part => part.text ?? part.refusal ?? ''),
        item.arguments ?? '',
      ].join(''),
    )
    .join('\n')
}

/** The text of all text deltas, as a client that reads along sees it. */
export function deltasIn(events: readonly StreamEvent[]): string {
  return events.map(event => (event.type === 'response.output_text.delta' ? event.delta : '')).join('')
}

/** The stages of the pipeline, wherever the reply has them. */
export function stagesIn(document: Record<string, unknown>): readonly Record<string, unknown>[] {
  const metadata = document['gateway_metadata'] as
    | { pipeline?: readonly Record<string, unknown>[] }
    | undefined
  return metadata?.pipeline ?? []
}

// Management, on a stopped clock

export const OTHER_ORGANIZATION = 'org_other'
export const FOREIGN_WORKSPACE: WorkspaceRecord = {
  id: '11111111-1111-4111-8111-111111111111',
  organizationId: OTHER_ORGANIZATION,
  name: 'Foreign',
  slug: 'foreign',
  description: null,
  disabledTools: null,
  rateLimit: null,
  loops: null,
  cache: null,
  createdAt: '2026-01-01T00:00:00.000Z',
  updatedAt: '2026-01-01T00:00:00.000Z',
}
/** A Thursday: the week began on Monday the 13th. */
export const NOON = Date.UTC(2026, 6, 16, 12)

export async function startManagedGateway(t: Teardown, options: Omit<TestGatewayOptions, 'clock'> = {}) {
  const clock = new TestClock(NOON)
  const { gateway, store, addKey } = await startWorldOf(t, { ...options, clock })
  const answers: string[] = []
  return {
    gateway,
    clock,
    store,
    addKey,
    /** Texts of all answers so far. */
    answers,
    /** With the management key unless another one is given. */
    async call(method: string, path: string, body?: unknown, key = gateway.managementKey): Promise<Answered> {
      const answer = await caller(gateway.url, key)(method, path, body)
      answers.push(answer.text)
      return answer
    },
  }
}

// Tools that call scripted models: an outer model, a panel, an analyst

export const OUTER = 'acme/outer'
const NAMES = ['outer', 'a', 'b', 'c', 'analyst', 'judge'] as const
type Replies = Readonly<Record<string, readonly ScriptedReply[]>>

export async function startModelTools(t: Teardown, options: TestGatewayOptions = {}) {
  const { gateway, provider, records } = await startWorldOf(t, {
    ...options,
    fusion: { panel: ['acme/a', 'acme/b'], ...options.fusion },
    scripted: Object.fromEntries(NAMES.map(name => [name, [name]])),
  })
  /** POST of a request whose models say these things. */
  const ask = async (
    replies: Replies,
    fields: Fields,
    { key, signal, path = '/responses' }: { key?: string; signal?: AbortSignal; path?: string } = {},
  ): Promise<Response> => {
    for (const name of NAMES) provider.script(name, replies[name] ?? [])
    return await fetch(`${gateway.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key ?? gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: OUTER, ...(path === '/responses' ? { input: 'Why?' } : {}), ...fields }),
      ...(signal === undefined ? {} : { signal }),
    })
  }
  const good = async (replies: Replies, fields: Fields): Promise<string> => {
    const reply = await ask(replies, fields)
    const text = await reply.text()
    if (reply.status !== 200) throw new Error(`${reply.status} ${text}`)
    return text
  }
  return {
    gateway,
    provider,
    ask,
    records,
    /** A key with a limit in USD. */
    async newKey(limit: number | null): Promise<string> {
      const call = caller(gateway.url, gateway.managementKey)
      return String((await call('POST', '/keys', { name: 'limited', limit })).document['key'])
    },
    /** The same, as a whole response. */
    whole: async (replies: Replies, fields: Fields) =>
      JSON.parse(await good(replies, fields)) as ResponseResource,
    /** The same, as events. */
    events: async (replies: Replies, fields: Fields): Promise<readonly StreamEvent[]> =>
      parseEventStream(await good(replies, { ...fields, stream: true })),
    /** USD that GET /key tells. */
    async spent(key = gateway.apiKey): Promise<number> {
      await gateway.shipper.ship()
      const told = await caller(gateway.url, key)('GET', '/key')
      return (told.document['data'] as { usage: number }).usage
    },
  }
}

export type ModelTools = Awaited<ReturnType<typeof startModelTools>>

/** A call of a tool, as the outer model makes it. */
export const calling = (name: string, args: object = {}): ScriptedReply => ({
  calls: [{ name, arguments: JSON.stringify(args) }],
})
export const saying = (text: string): ScriptedReply => ({ text })

/** The first item of a tool. */
export function itemOf(response: ResponseResource, name: string): Fields {
  const found = response.output.find(({ type }) => type.endsWith(`:${name}`))
  if (found === undefined) throw new Error(`no item of ${name}`)
  return found as unknown as Fields
}

/** Messages of the last request to a model. */
export function messagesTo(
  provider: ScriptedProvider,
  model: string,
): readonly { readonly role: string; readonly content: unknown }[] {
  const asked = provider.asked.findLast(each => each.model === model)
  return (asked?.body['messages'] ?? []) as { role: string; content: unknown }[]
}

/** The result of the last tool call that a model was told. */
export function toldTo(provider: ScriptedProvider, model: string): Fields {
  const last = messagesTo(provider, model).findLast(({ role }) => role === 'tool')
  return JSON.parse(String(last?.content ?? 'null')) as Fields
}

// Tools that work on files

interface ToolAnswer {
  readonly response: ResponseResource
  /** What the model got for each call, in order. */
  readonly results: readonly string[]
  readonly events: readonly StreamEvent[]
}

/** POST /files. */
export async function uploadTo(
  { url, apiKey: ownKey }: TestGateway,
  name: string,
  bytes: string | Uint8Array,
  purpose = 'user_data',
  apiKey = ownKey,
) {
  const form = new FormData()
  form.append('purpose', purpose)
  form.append('file', new Blob([typeof bytes === 'string' ? bytes : Buffer.from(bytes)]), name)
  const headers = { authorization: `Bearer ${apiKey}` }
  const reply = await fetch(`${url}/files`, { method: 'POST', headers, body: form })
  return { status: reply.status, document: (await reply.json()) as Record<string, unknown> }
}

export async function startFileTools(t: Test, options: TestGatewayOptions = {}) {
  const { gateway, provider, addKey, close } = await startAligned(options)
  t.teardown(close)
  return {
    gateway,
    provider,
    /** Has the model call the function once with each of the arguments, one turn after the other. */
    async play(
      tool: Fields,
      name: string,
      given: readonly Fields[],
      { apiKey = gateway.apiKey, ...fields }: Fields & { readonly apiKey?: string } = {},
    ): Promise<ToolAnswer> {
      provider.asked.length = 0
      provider.script('model', [...given.map(args => calling(name, args)), { text: 'Done.' }])
      const body = { model: MODEL, input: 'Work.', tools: [tool], ...fields }
      const reply = await read(gateway.respond(body, { headers: { authorization: `Bearer ${apiKey}` } }))
      if (reply.status !== 200) throw new Error(reply.text)
      const faults = reply.events.length === 0 ? [] : grammarViolations(reply.events)
      if (faults.length > 0) throw new Error(faults.join('\n'))
      const response = reply.events.length > 0 ? finalOf(reply.events) : reply.document
      const messages = (provider.asked.at(-1)?.body['messages'] ?? []) as readonly Fields[]
      const results = messages.filter(({ role }) => role === 'tool').map(({ content }) => String(content))
      return { response: response as unknown as ResponseResource, results, events: reply.events }
    },
    keyIn: async (workspaceId: string) => (await addKey('inference', { workspaceId })).key,
    /** Tries again if the text could not be read, because a busy machine may not start the worker in time. */
    async upload(name: string, bytes: string | Uint8Array, apiKey = gateway.apiKey, purpose?: string) {
      for (let triesLeft = 3; ; triesLeft--) {
        const { id, status } = (await uploadTo(gateway, name, bytes, purpose, apiKey)).document
        if (status !== 'error' || triesLeft === 0) return String(id)
        const headers = { authorization: `Bearer ${apiKey}` }
        await fetch(`${gateway.url}/files/${id}`, { method: 'DELETE', headers })
      }
    },
    async content(id: string): Promise<string> {
      const headers = { authorization: `Bearer ${gateway.apiKey}` }
      return await (await fetch(`${gateway.url}/files/${id}/content`, { headers })).text()
    },
  }
}

export function resultsOf(results: readonly string[]): readonly Record<string, never>[] {
  return results.map(text => JSON.parse(text) as Record<string, never>)
}

// Web tools: a search engine and a server of pages

export const ENGINE_KEY = 'engine-key-of-the-operator'

interface Found {
  readonly url: string
  readonly title?: string
  readonly text?: string
}

/** Listens on loopback until the test ends; counts who comes. */
export async function serve(t: Test, listener: RequestListener, host?: string) {
  const seen: { path: string; headers: NodeJS.Dict<string | string[]>; body: string }[] = []
  const server = new Provider(({ path, headers, text }) => {
    seen.push({ path, headers, body: text })
    return response => listener(response.req, response)
  })
  const url = await server.listen(t, host)
  return { port: Number(new URL(url).port), url, seen }
}

/** A whole reply of a provider of the Responses API: a text, and items before it. */
export function responsesReply(text: string, before: readonly object[] = []) {
  const content = [{ type: 'output_text', text, annotations: [] }]
  const message = { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content }
  return {
    id: 'resp_1',
    object: 'response',
    created_at: 1,
    status: 'completed',
    model: 'm',
    output: [...before, message],
    usage: { input_tokens: 5, output_tokens: 2, total_tokens: 7 },
  }
}

/** An engine that speaks as Exa does, and says what `results` has. */
export async function startEngine(t: Test, answer?: (response: ServerResponse) => void) {
  const world = { results: [] as Found[] }
  const { url, seen } = await serve(t, (_, response) => {
    if (answer !== undefined) return answer(response)
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify({ results: world.results }))
  })
  const row: SearchEngineRow = { name: 'own', kind: 'exa', baseUrl: url, apiKey: ENGINE_KEY }
  return Object.assign(world, { row, seen })
}

export interface WebWorldOptions extends TestGatewayOptions {
  readonly engines?: readonly SearchEngineRow[]
  readonly engineTimeoutMs?: number
  readonly allowPrivate?: boolean
}

export async function startWebWorld(
  t: Test,
  { engines = [], engineTimeoutMs = 10_000, allowPrivate = false, ...options }: WebWorldOptions = {},
) {
  const world = await startAligned({
    ...options,
    tools: {
      webSearch: { engines, default: null, timeoutMs: engineTimeoutMs },
      webFetch: { allowHttp: false, allowPrivate, maxBytes: 1_000_000, timeoutMs: 10_000 },
    },
  })
  t.teardown(world.close)
  return world
}

// Official clients: simulated models of every format, and a parrot

/** Of the simulated models, by the format in which they are asked: that of Responses has no prefix. */
export const PREFIXES = ['', 'chat-', 'messages-', 'gemini-'] as const
/** Never over while a test looks. */
export const ENDLESS = 'write-100000-20'
/** Of an answer. */
export const ID = /^gen-\d+-\w{20}$/
/** A picture with one dot. */
export const DOT =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
export const CITY = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
} as const

export function startSdkWorld(t: Teardown) {
  const names = [ENDLESS, ...[413, 429, 500, 503].map(status => `fail-status-${status}`)]
  const models = FORMATS.flatMap(format => names.map(name => simModel(name, format)))
  return startWorldOf(t, { parrot: true, models })
}

/** What a call throws. */
export const thrownBy = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => null,
    (thrown: unknown) => thrown,
  )

// Callers who leave while a provider is at work

export const turn = () => new Promise(resolve => setImmediate(resolve))

/** A provider that the test plays, a gateway whose clock the test moves, and callers who may leave. */
export async function startLeaving(t: Test, onAbort: 'finish' | 'cancel' | 'drain' | null, row: object = {}) {
  const provider = await startToldProvider(t)
  const clock = new TestClock()
  const pricing = { prompt: '0.000001', completion: '0.000014' }
  const accounting = onAbort === null ? {} : { accounting: { onAbort } }
  const { gateway } = await startWorldOf(t, {
    clock,
    timeouts: { upstreamHeadersMs: 3_600_000, upstreamIdleMs: 3_600_000, requestMs: 3_600_000 },
    providers: [{ slug: 'told', format: 'openai-chat', baseUrl: provider.baseUrl, ...accounting }],
    models: [
      { id: 'told/model', maxOutputTokens: 20_000, endpoints: [{ provider: 'told', pricing, ...row }] },
    ],
  })
  const { server, metrics } = gateway.serving
  const recorded = async () => {
    const { values } = await metrics.usageRecords.get()
    return values.reduce((sum, { value }) => sum + value, 0)
  }
  return {
    gateway,
    clock,
    provider,
    server,
    /** A request on a socket of its own, of which one waits for `seen` in the answer. */
    async ask(more: object, seen: string, path = '/v1/responses', key = gateway.apiKey) {
      const before = server.openConnections
      const socket = connect(gateway.port, '127.0.0.1')
      await once(socket, 'connect')
      const usual = path === '/v1/responses' ? { model: 'told/model', input: 'Hi', stream: true } : {}
      const text = JSON.stringify({ ...usual, ...more })
      socket.write(
        `POST ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${key}\r\n` +
          `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
      )
      let received = ''
      const reading = (async () => {
        if (seen === '') return
        for await (const chunk of socket.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
          received += chunk.toString('latin1')
          if (received.includes(seen)) return
        }
      })()
      return {
        seen: reading,
        /** Resolves when the gateway knows. */
        async leave() {
          socket.destroy()
          await until('the end of the connection', () => server.openConnections <= before)
        },
      }
    },
    recorded,
    /** The output tokens of all requests. */
    async outputTokens() {
      const { values } = await metrics.tokens.get()
      return values.reduce((sum, { labels, value }) => (labels.direction === 'output' ? sum + value : sum), 0)
    },
    /** The record of the only request, once it is there. */
    async record(key = gateway.apiKey) {
      await until('the usage record', async () => (await recorded()) > 0)
      await gateway.shipper.ship()
      const activity = gateway.lines.findLast(line => line['outcome'] !== undefined)
      const headers = { authorization: `Bearer ${key}` }
      const reply = await fetch(`${gateway.url}/generation?id=${String(activity?.['id'])}`, { headers })
      return ((await reply.json()) as { data: Record<string, unknown> }).data
    },
  }
}

/**
 * Every method of the official clients that asks something of a server: those that the gateway serves are answered,
 * and all others are refused in words that say so. Methods of a new version of a client are found here.
 */
import Anthropic, { toFile as toAnthropicFile } from '@anthropic-ai/sdk'
import { type ApiError, GoogleGenAI } from '@google/genai'
import OpenAI, { toFile } from 'openai'
import t, { type Test } from 'tap'
import { endBatch } from '../support/batch-calls.ts'
import { startGateway } from '../support/gateway.ts'

const gateway = await startGateway()
t.teardown(() => gateway.close())

interface Heard {
  readonly address: string
  readonly status: number
  readonly text: string
}
/** All answers of the method that is being called. */
const heard: Heard[] = []
async function hearing(input: string | URL | Request, init?: RequestInit): Promise<Response> {
  const reply = await fetch(input, init)
  const address = `${init?.method ?? 'GET'} ${new URL(String(input)).pathname}`
  heard.push({ address, status: reply.status, text: await reply.clone().text() })
  return reply
}

const openai = new OpenAI({
  baseURL: gateway.url,
  apiKey: gateway.apiKey,
  adminAPIKey: gateway.apiKey,
  maxRetries: 0,
  fetch: hearing,
})
const anthropic = new Anthropic({
  baseURL: `http://127.0.0.1:${gateway.port}`,
  apiKey: gateway.apiKey,
  maxRetries: 0,
  fetch: hearing,
})
// The library prints notices on what its getters leave out and on methods that may change.
t.capture(console, 'warn', () => undefined)
const google = new GoogleGenAI({
  apiKey: gateway.apiKey,
  httpOptions: { baseUrl: `http://127.0.0.1:${gateway.port}` },
})

const MODEL = 'sim/echo'
const messages = [{ role: 'user' as const, content: 'Hello' }]
const asked = { model: MODEL, messages }
const told = { ...asked, max_tokens: 100 }

async function aFile(): Promise<string> {
  const file = await toFile(Buffer.from('Tea'), 'notes.txt')
  return (await openai.files.create({ file, purpose: 'user_data' })).id
}

async function aBatch(): Promise<string> {
  const line = { custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body: asked }
  const file = await toFile(Buffer.from(JSON.stringify(line)), 'lines.jsonl')
  const { id } = await openai.files.create({ file, purpose: 'batch' })
  const made = { input_file_id: id, endpoint: '/v1/chat/completions', completion_window: '24h' } as const
  return (await openai.batches.create(made)).id
}

async function aMessageBatch(isEnded = false): Promise<string> {
  const requests = [{ custom_id: 'a', params: told }]
  const { id } = await anthropic.messages.batches.create({ requests })
  if (isEnded) await endBatch(gateway.storageUrl, id)
  return id
}

/** The id of a stream that can be read again. */
async function aStream(client: 'responses' | 'chat'): Promise<string> {
  const headers = { 'x-gateway-resumable': 'true' }
  const asking =
    client === 'chat'
      ? openai.chat.completions.create({ ...asked, stream: true }, { headers })
      : openai.responses.create({ model: MODEL, input: 'Hello', stream: true }, { headers })
  const { response, data } = await asking.withResponse()
  for await (const _ of data as AsyncIterable<unknown>);
  return response.headers.get('x-generation-id') ?? ''
}

type Calls = Readonly<Record<string, () => PromiseLike<unknown>>>

const responding = { model: MODEL, input: 'Hello' }
const OPENAI: Calls = {
  'chat.completions.create': () => openai.chat.completions.create(asked),
  'files.create': aFile,
  'files.retrieve': async () => openai.files.retrieve(await aFile()),
  'files.list': () => openai.files.list(),
  'files.delete': async () => openai.files.delete(await aFile()),
  'files.content': async () => openai.files.content(await aFile()),
  'models.retrieve': () => openai.models.retrieve(MODEL),
  'models.list': () => openai.models.list(),
  'batches.create': aBatch,
  'batches.retrieve': async () => openai.batches.retrieve(await aBatch()),
  'batches.list': () => openai.batches.list(),
  'batches.cancel': async () => openai.batches.cancel(await aBatch()),
  'responses.create': () => openai.responses.create(responding),
  'responses.retrieve': async () =>
    openai.responses.retrieve(await aStream('responses'), { stream: true, starting_after: 1 }),
  'responses.compact': () => openai.responses.compact({ model: MODEL, input: messages }),
  'responses.inputTokens.count': () => openai.responses.inputTokens.count(responding),
  'beta.responses.create': () => openai.beta.responses.create(responding),
  'beta.responses.retrieve': async () =>
    openai.beta.responses.retrieve(await aStream('responses'), { stream: true }),
  'beta.responses.compact': () => openai.beta.responses.compact({ model: MODEL, input: messages }),
  'beta.responses.inputTokens.count': () => openai.beta.responses.inputTokens.count(responding),
}
const ANTHROPIC: Calls = Object.fromEntries(
  [anthropic, anthropic.beta as unknown as Anthropic].flatMap(({ messages: asking, models, files }, at) => {
    const named = (name: string): string => (at === 0 ? name : `beta.${name}`)
    return Object.entries({
      'messages.create': () => asking.create(told),
      'messages.countTokens': () => asking.countTokens(asked),
      'messages.batches.create': aMessageBatch,
      'messages.batches.retrieve': async () => asking.batches.retrieve(await aMessageBatch()),
      'messages.batches.list': () => asking.batches.list(),
      'messages.batches.delete': async () => asking.batches.delete(await aMessageBatch(true)),
      'messages.batches.cancel': async () => asking.batches.cancel(await aMessageBatch()),
      'messages.batches.results': async () => asking.batches.results(await aMessageBatch(true)),
      'models.retrieve': () => models.retrieve(MODEL),
      'models.list': () => models.list(),
      'files.list': () => files.list(),
      'files.delete': async () => files.delete(await aFile()),
      'files.download': async () => files.download(await aFile()),
      'files.retrieveMetadata': async () => files.retrieveMetadata(await aFile()),
      'files.upload': async () =>
        files.upload({ file: await toAnthropicFile(Buffer.from('Tea'), 'tea.txt') }),
    }).map(([name, call]) => [named(name), call] as const)
  }),
)

type Method = (this: unknown, ...args: unknown[]) => PromiseLike<unknown>
interface Found {
  readonly name: string
  readonly owner: object
  readonly method: Method
}

/** Methods that send a request themselves; the others call these. */
const SENDS = /\bthis\._client\s*\.(?:get|post|put|patch|delete|getAPIList|request)\b/

function* methodsOf(owner: object, client: object, path: string): Generator<Found> {
  for (const name of Object.getOwnPropertyNames(Object.getPrototypeOf(owner))) {
    const method: unknown = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(owner), name)?.value
    if (path === '' || name === 'constructor' || typeof method !== 'function') continue
    if (SENDS.test(String(method))) yield { name: `${path}.${name}`, owner, method: method as Method }
  }
  for (const [name, value] of Object.entries(owner)) {
    if (typeof value !== 'object' || value === null || (value as { _client?: unknown })._client !== client)
      continue
    yield* methodsOf(value, client, path === '' ? name : `${path}.${name}`)
  }
}

/** Arguments of the right kind, whatever the method needs: it is not served. */
function argumentsOf(method: Method): readonly unknown[] {
  const source = String(method)
  const names = source.slice(source.indexOf('(') + 1, source.indexOf(')')).split(',')
  const fields = Object.fromEntries(
    [...source.matchAll(/\b\w+_(?:id|name|checkpoint)\b/g)].map(([name]) => [name, 'x_1']),
  )
  return names
    .map(name => name.split('=')[0]?.trim() ?? '')
    .filter(name => name !== 'options' && name !== '')
    .map(name => (/^(?:body|params|query|\{.*)$/.test(name) ? { ...fields } : 'x_1'))
}

async function called(work: () => PromiseLike<unknown>): Promise<unknown> {
  heard.length = 0
  try {
    await work()
    return null
  } catch (error) {
    return error
  }
}

interface GoogleMethod {
  readonly call: () => PromiseLike<unknown>
  readonly isServed?: boolean
}
const contents = 'Hello'
const file = new Blob(['Tea'])
const GOOGLE: Readonly<Record<string, GoogleMethod>> = {
  'models.generateContent': {
    call: () => google.models.generateContent({ model: MODEL, contents }),
    isServed: true,
  },
  'models.generateContentStream': {
    call: () => google.models.generateContentStream({ model: MODEL, contents }),
    isServed: true,
  },
  'models.countTokens': { call: () => google.models.countTokens({ model: MODEL, contents }), isServed: true },
  'models.embedContent': {
    call: () => google.models.embedContent({ model: 'sim/embed', contents }),
    isServed: true,
  },
  'models.get': { call: () => google.models.get({ model: MODEL }), isServed: true },
  'models.list': { call: () => google.models.list(), isServed: true },
  'chats.create': {
    call: () => google.chats.create({ model: MODEL }).sendMessage({ message: contents }),
    isServed: true,
  },
  'models.update': { call: () => google.models.update({ model: MODEL, config: { displayName: 'x' } }) },
  'models.delete': { call: () => google.models.delete({ model: MODEL }) },
  'batches.create': { call: () => google.batches.create({ model: MODEL, src: [{ contents }] }) },
  'batches.createEmbeddings': {
    call: () => google.batches.createEmbeddings({ model: MODEL, src: { inlinedRequests: { contents } } }),
  },
  'batches.get': { call: () => google.batches.get({ name: 'batches/x1' }) },
  'batches.list': { call: () => google.batches.list() },
  'batches.cancel': { call: () => google.batches.cancel({ name: 'batches/x1' }) },
  'batches.delete': { call: () => google.batches.delete({ name: 'batches/x1' }) },
  'caches.create': { call: () => google.caches.create({ model: MODEL, config: { contents } }) },
  'caches.get': { call: () => google.caches.get({ name: 'cachedContents/x1' }) },
  'caches.list': { call: () => google.caches.list() },
  'caches.update': { call: () => google.caches.update({ name: 'cachedContents/x1', config: { ttl: '9s' } }) },
  'caches.delete': { call: () => google.caches.delete({ name: 'cachedContents/x1' }) },
  'files.upload': { call: () => google.files.upload({ file, config: { mimeType: 'text/plain' } }) },
  'files.get': { call: () => google.files.get({ name: 'files/x1' }) },
  'files.list': { call: () => google.files.list() },
  'files.delete': { call: () => google.files.delete({ name: 'files/x1' }) },
  'operations.get': { call: () => google.operations.get({ operation: { name: 'operations/x1' } as never }) },
  'authTokens.create': { call: () => google.authTokens.create({ config: {} }) },
  'tunings.get': { call: () => google.tunings.get({ name: 'tunedModels/x1' }) },
  'tunings.cancel': { call: () => google.tunings.cancel({ name: 'tunedModels/x1' }) },
  'fileSearchStores.create': { call: () => google.fileSearchStores.create({}) },
  'fileSearchStores.get': { call: () => google.fileSearchStores.get({ name: 'fileSearchStores/x1' }) },
  'fileSearchStores.list': { call: () => google.fileSearchStores.list() },
  'fileSearchStores.delete': { call: () => google.fileSearchStores.delete({ name: 'fileSearchStores/x1' }) },
}

/** The refusal says what is not there, or what is. */
function checkRefusal(t: Test, status: number | undefined, text: string): void {
  t.match(String(status), /^(?:400|404|405)$/, text)
  t.match(
    text,
    /is not offered by this gateway|accepts|are not stored|not found|\/v1beta has only|must not have a body|paths begin/,
    'in words',
  )
}

for (const [title, client, calls] of [
  ['openai', openai, OPENAI],
  ['@anthropic-ai/sdk', anthropic, ANTHROPIC],
] as const) {
  const methods = [...methodsOf(client, client, '')]
  t.test(`${title}: ${Object.keys(calls).length} of ${methods.length} methods are served`, async t => {
    t.ok(methods.length > 300, 'its methods are found')
    const names = new Set(methods.map(({ name }) => name))
    for (const [name, call] of Object.entries(calls)) {
      t.ok(names.has(name), `${name} is a method`)
      t.equal(await called(call), null, name)
      t.match(heard.at(-1)?.status, /^20[02]$/, name)
    }
  })

  t.test(`${title}: all other methods are refused in words`, async t => {
    for (const { name, owner, method } of methods) {
      if (name in calls) continue
      await called(() => method.apply(owner, [...argumentsOf(method)]))
      t.test(name, async t =>
        checkRefusal(t, heard.at(-1)?.status, heard.at(-1)?.text ?? 'nothing was asked'),
      )
    }
  })
}

t.test('@google/genai: what is served is answered, and the rest is refused in words', async t => {
  for (const [name, { call, isServed = false }] of Object.entries(GOOGLE)) {
    const error = await called(call)
    if (isServed) t.equal(error, null, name)
    else t.test(name, async t => checkRefusal(t, (error as ApiError | null)?.status, String(error)))
  }
})

/**
 * Every operation of the OpenAPI document over real HTTP: its answers, streams and errors have the documented status,
 * media type and form, and no field that the document does not name.
 */
import t from 'tap'
import { NO_SHADOWS } from '../../src/protocol/rollout.ts'
import { openStore } from '../../src/storage/open.ts'
import { endBatch } from '../support/batch-calls.ts'
import {
  type ApiDocument,
  type ApiMedia,
  answerOf,
  checksOf,
  operationsIn,
  type PlacedOperation,
} from '../support/openapi.ts'
import { startManagedGateway } from '../support/world.ts'

const { gateway, clock } = await startManagedGateway(t, {
  capture: { enabled: true },
  // Nobody listens there.
  providers: [{ slug: 'mistral', baseUrl: 'http://127.0.0.1:1/v1' }],
  models: ['acme/old', 'acme/new'].map(id => ({
    id,
    endpoints: [{ provider: 'sim', upstreamModel: 'echo' }],
  })),
  routes: [{ name: 'prod/chat', targets: [{ model: 'acme/old' }] }],
  rollouts: [{ route: 'prod/chat', candidate: 'acme/new', steps: [1, 50, 100], holdMinutes: 60 }],
})
const { apiKey, managementKey, storageUrl } = gateway
const base = gateway.url

const reply = await fetch(`${base}/openapi.json`)
const etag = reply.headers.get('etag') ?? ''
const document = (await reply.json()) as ApiDocument
const operations = new Map(operationsIn(document).map(each => [each.operation.operationId, each]))
const called = new Set<string>()
const checks = checksOf(document, true)

interface Ask {
  readonly params?: Readonly<Record<string, string>>
  readonly query?: Readonly<Record<string, string>>
  readonly headers?: Readonly<Record<string, string>>
  /** A form, or what is sent as JSON. */
  readonly body?: unknown
  /** Null: none. Default: a key of the kind that the operation asks for. */
  readonly key?: string | null
  /** Default 200. */
  readonly status?: number
}

function keyFor({ operation }: PlacedOperation): string | null {
  const schemes = operation.security.flatMap(each => Object.keys(each))
  if (schemes.length === 0) return null
  return schemes.includes('apiKey') ? apiKey : managementKey
}

function placed(id: string): PlacedOperation {
  const found = operations.get(id)
  if (found === undefined) throw new Error(`${id} is not in the document`)
  return found
}

/** Asks an operation, and holds its answer against the document. Returns the answer's document. */
async function ask(id: string, terms: Ask = {}): Promise<Record<string, unknown>> {
  const place = placed(id)
  const { method, path, operation } = place
  const { params = {}, query = {}, headers = {}, body, key = keyFor(place), status = 200 } = terms
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(params[name] ?? 'unknown'),
  )
  const { servers } = operation as { servers?: readonly { url: string }[] }
  const from = servers === undefined ? base : base.replace(/\/v1$/, servers[0]?.url ?? '')
  const search = new URLSearchParams(query).toString()
  const label = `${id} ${status}`
  for (const name of [...Object.keys(query), ...Object.keys(headers)]) {
    const isKnown = operation.parameters?.some(each => each.name.toLowerCase() === name.toLowerCase())
    t.ok(isKnown, `${label}: ${name} is documented`)
  }
  const answer = await fetch(`${from}${filled}${search === '' ? '' : `?${search}`}`, {
    method,
    headers: {
      ...(key === null ? {} : { authorization: `Bearer ${key}` }),
      ...(body === undefined || body instanceof FormData ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: body instanceof FormData ? body : JSON.stringify(body) }),
  })
  const text = await answer.text()
  t.equal(answer.status, status, `${label} ${answer.status === status ? '' : text}`)
  if (status < 300 && body !== undefined) {
    const [media = '', sent] =
      body instanceof FormData
        ? ['multipart/form-data', Object.fromEntries([...body].map(([name, part]) => [name, String(part)]))]
        : ['application/json', body]
    fits(operation.requestBody?.content[media as string], sent, `${label} body`)
  }
  if (status < 400) called.add(id)
  const documented = answerOf(document, operation, status)
  t.ok(documented, `${label} is documented`)
  for (const name of Object.keys(documented?.headers ?? {})) {
    if (name !== 'Retry-After') t.ok(answer.headers.get(name), `${label} has ${name}`)
  }
  const media = answer.headers.get('content-type')?.split(';')[0]
  if (documented?.content === undefined) {
    t.equal(text, '', `${label} has no body`)
    return {}
  }
  const content = documented.content[media ?? '']
  t.ok(content, `${label}: ${media} is documented`)
  if (media === 'application/octet-stream' || media === 'application/x-jsonl') return { text }
  if (media === 'text/event-stream') {
    const events = [...text.matchAll(/^data: (\{.*)$/gm)].map(([, data = '']) => JSON.parse(data) as unknown)
    const check = checks(content?.schema['contentSchema'] as Record<string, unknown>)
    t.ok(events.length > 1, `${label}: events`)
    for (const event of events) t.same(check(event), [], `${label}: ${JSON.stringify(event).slice(0, 200)}`)
    return { id: answer.headers.get('x-generation-id') }
  }
  const value = JSON.parse(text) as Record<string, unknown>
  fits(content, value, label)
  return value
}

function fits(content: ApiMedia | undefined, value: unknown, label: string): void {
  const faults = content === undefined ? ['no schema'] : checks(content.schema)(value)
  t.same(faults, [], label)
}

function idIn(answer: Record<string, unknown>, field = 'id'): string {
  const data = (answer['data'] ?? answer) as Record<string, unknown>
  return String(data[field])
}

t.test('the document is sent without a key, under both base paths, and once', async t => {
  t.equal(reply.status, 200)
  t.equal(reply.headers.get('content-type'), 'application/json')
  t.match(etag, /^"[0-9a-f]{16}"$/)
  await ask('getInterface')
  const again = await fetch(`${base}/openapi.json`, { headers: { 'if-none-match': etag } })
  t.equal(again.status, 304)
  t.equal(await again.text(), '')
  const other = await fetch(`${base.replace('/v1', '/api/v1')}/openapi.json`)
  t.equal(other.headers.get('etag'), etag)
  t.same(await other.json(), document)
})

const METADATA = { 'X-Gateway-Metadata': 'enabled' }
const HELLO = [{ role: 'user', content: 'Hello' }]
const SCHEMA = { type: 'object', properties: { city: { type: 'string' } } }

t.test('responses', async () => {
  const tools = [
    { type: 'gateway:datetime', parameters: { timezone: 'Europe/Berlin' } },
    { type: 'function', name: 'weather', parameters: SCHEMA, strict: null },
  ]
  const bodies: readonly object[] = [
    { model: 'sim/echo', input: 'Hello', metadata: { a: 'b' }, temperature: 1, max_output_tokens: 100 },
    { model: 'sim/reason', input: [{ role: 'user', content: [{ type: 'input_text', text: 'Hi' }] }] },
    { model: 'sim/reason-summary', input: 'Hello', reasoning: { effort: 'low', summary: 'auto' } },
    { model: 'sim/refuse', input: 'Hello' },
    { model: 'sim/call', input: 'What time is it?', tools },
    { model: 'sim/call-2', input: 'Call', tools: tools.slice(1), tool_choice: 'auto' },
    {
      model: 'sim/json',
      input: 'Hello',
      text: { format: { type: 'json_schema', name: 'answer', schema: SCHEMA } },
    },
    { model: 'sim/messages-echo', input: 'Hello', debug: { echo_upstream_body: true } },
    { model: 'sim/gemini-reason', input: 'Hello' },
  ]
  for (const body of bodies) {
    await ask('createResponse', { body, headers: METADATA })
    await ask('createResponse', { body: { ...body, stream: true }, headers: METADATA })
  }
})

t.test('a stream that is read again', async () => {
  const body = { model: 'sim/echo', input: 'Hello', stream: true }
  const id = idIn(await ask('createResponse', { body, headers: { 'X-Gateway-Resumable': 'true' } }))
  await ask('resumeResponse', { params: { id }, query: { stream: 'true', starting_after: '1' } })
  await ask('resumeResponse', { params: { id }, query: { stream: 'false' }, status: 400 })
  await ask('resumeResponse', { query: { stream: 'true' }, status: 404 })
  const asked = { model: 'sim/echo', messages: HELLO, stream: true }
  const headers = { 'X-Gateway-Resumable': 'true' }
  const query = { stream: 'true', starting_after: '1' }
  const chat = idIn(await ask('createChatCompletion', { body: asked, headers }))
  await ask('resumeChatCompletion', { params: { id: chat }, query: { ...query, starting_after: '0' } })
  await ask('resumeChatCompletion', { query, status: 404 })
  const message = idIn(await ask('createMessage', { body: { ...asked, max_tokens: 100 }, headers }))
  await ask('resumeMessage', { params: { id: message }, query })
  await ask('resumeMessage', { params: { id: message }, query: { stream: 'false' }, status: 400 })
})

t.test('chat completions', async () => {
  const tools = [{ type: 'function', function: { name: 'weather', parameters: SCHEMA } }]
  const bodies: readonly object[] = [
    { model: 'sim/echo', messages: HELLO },
    { model: 'sim/chat-reason', messages: HELLO, user: 'customer', stop: ['x'] },
    { model: 'sim/messages-reason', messages: HELLO },
    { model: 'sim/refuse', messages: HELLO },
    { model: 'sim/call', messages: HELLO, tools },
    { model: 'sim/call', messages: HELLO, tools: [{ type: 'gateway:datetime' }] },
    { model: 'sim/chat-echo', messages: HELLO, debug: { echo_upstream_body: true } },
  ]
  for (const body of bodies) {
    await ask('createChatCompletion', { body, headers: METADATA })
    await ask('createChatCompletion', { body: { ...body, stream: true }, headers: METADATA })
  }
})

t.test('messages', async () => {
  const tools = [{ name: 'weather', input_schema: SCHEMA }]
  const bodies: readonly object[] = [
    { model: 'sim/echo', messages: HELLO },
    { model: 'sim/messages-reason', messages: HELLO, system: 'Be short' },
    { model: 'sim/refuse', messages: HELLO },
    { model: 'sim/messages-call', messages: HELLO, tools },
    { model: 'sim/call', messages: HELLO, tools: [{ type: 'gateway:datetime' }] },
    { model: 'sim/echo', messages: HELLO, debug: { echo_upstream_body: true } },
  ]
  for (const body of bodies) {
    const whole = { max_tokens: 1000, ...body }
    await ask('createMessage', { body: whole, headers: METADATA })
    await ask('createMessage', { body: { ...whole, stream: true }, headers: METADATA })
  }
  const talk = { model: 'sim/echo', input: 'Hello' }
  await ask('compactConversation', { body: talk, headers: METADATA })
  await ask('countInputTokens', { body: talk })
  await ask('countMessageTokens', { body: { model: 'sim/echo', messages: HELLO } })
})

t.test('the door of Google', async () => {
  const contents = [{ role: 'user', parts: [{ text: 'Hello' }] }]
  const thinkingConfig = { includeThoughts: true, thinkingBudget: 1024 }
  const tools = [{ functionDeclarations: [{ name: 'get', parameters: { type: 'OBJECT' } }] }]
  for (const [model, more] of [
    ['sim/echo', { generationConfig: { responseLogprobs: true, logprobs: 2 } }],
    ['sim/reason', { generationConfig: { thinkingConfig } }],
    ['sim/call', { tools }],
    ['sim/search', { tools: [{ googleSearch: {} }] }],
  ] as const) {
    const asked = { params: { model }, body: { contents, ...more }, headers: METADATA }
    await ask('generateContent', asked)
    await ask('streamGenerateContent', { ...asked, query: { alt: 'sse' } })
    await ask('streamGenerateContent', asked)
  }
  await ask('countTokens', { params: { model: 'sim/echo' }, body: { contents } })
  const content = { parts: [{ text: 'Hello' }] }
  const params = { model: 'sim/embed' }
  await ask('embedContent', { params, body: { content }, headers: METADATA })
  await ask('batchEmbedContents', { params, body: { requests: [{ content }, { content }] } })
  await ask('listGoogleModels', { query: { pageSize: '2' } })
  await ask('getGoogleModel', { params: { model: 'sim/echo' } })
  await ask('sayHello')
  await ask('findRoot')
})

t.test('embeddings', async () => {
  for (const input of ['Hello', ['Hello', 'Bye'], [1, 2, 3], [[1, 2], [3]]]) {
    await ask('createEmbeddings', { body: { model: 'sim/embed', input }, headers: METADATA })
  }
  await ask('createEmbeddings', {
    body: { model: 'sim/embed', input: ['Hello'], encoding_format: 'base64', dimensions: 8 },
  })
})

t.test('batches', async () => {
  const body = {
    endpoint: '/v1/responses',
    model: 'sim/echo',
    completion_window: '24h',
    requests: [
      { custom_id: 'a', body: { input: 'Hello' } },
      { custom_id: 'b', body: { input: 'Bye' } },
    ],
  }
  const id = idIn(await ask('createBatch', { body, headers: { 'Idempotency-Key': 'once' }, status: 202 }))
  await ask('getBatch', { params: { id } })
  await ask('deleteBatch', { params: { id }, status: 409 })
  await endBatch(storageUrl, id, {
    failEvery: 2,
    resultOf: number => ({
      id: `batch_req_${number}`,
      response: number === 0 ? { status_code: 200, request_id: 'gen-1', body: { id: 'gen-1' } } : null,
      error: number === 0 ? null : { message: 'no', type: 'api_error', param: null, error_type: 'server' },
    }),
  })
  await ask('getBatch', { params: { id } })
  await ask('cancelBatch', { params: { id }, status: 409 })
  const other = idIn(await ask('createBatch', { body, status: 202 }))
  await ask('cancelBatch', { params: { id: other } })
  await ask('cancelBatchOfWorkspace', { params: { ref: 'default', id: other } })
  await ask('cancelBatchOfWorkspace', { params: { ref: 'default', id }, status: 409 })
  await ask('listBatches', { query: { limit: '10', created_after: '1000000000' } })
  await ask('deleteBatch', { params: { id } })
})

t.test('batches of messages', async () => {
  const params = { model: 'sim/echo', max_tokens: 100, messages: HELLO }
  const body = { requests: [{ custom_id: 'a', params }] }
  const id = idIn(await ask('createMessageBatch', { body }))
  await ask('getMessageBatch', { params: { id } })
  await ask('getMessageBatchResults', { params: { id }, status: 409 })
  await ask('deleteMessageBatch', { params: { id }, status: 409 })
  await endBatch(storageUrl, id, {
    resultOf: number => ({
      id: `batch_req_${number}`,
      response: { status_code: 200, request_id: 'gen-1', body: { id: 'gen-1' } },
      error: null,
    }),
  })
  await ask('getMessageBatchResults', { params: { id } })
  await ask('listMessageBatches', { query: { limit: '10' } })
  await ask('deleteMessageBatch', { params: { id } })
  const other = idIn(await ask('createMessageBatch', { body }))
  await ask('cancelMessageBatch', { params: { id: other } })
})

t.test('files', async t => {
  const form = new FormData()
  form.append('purpose', 'user_data')
  form.append('file', new Blob(['The shed is ochre.']), 'notes.txt')
  const id = idIn(await ask('createFile', { body: form }))
  await ask('getFile', { params: { id } })
  t.equal((await ask('getFileContent', { params: { id } }))['text'], 'The shed is ochre.')
  await ask('listFiles', { query: { limit: '10', order: 'asc', purpose: 'user_data' } })
  await ask('deleteFile', { params: { id } })
  await ask('getFile', { params: { id }, status: 404 })
})

t.test('models', async () => {
  const terms = { author: 'sim', slug: 'echo', model: 'sim/echo' }
  await ask('listModels', {
    query: { q: 'echo', sort: 'pricing-low-to-high', limit: '5', offset: '0', zdr: 'true' },
  })
  await ask('listModels', { query: { output_modalities: 'all', min_price: '0', context: '10' } })
  await ask('countModels', { query: { input_modalities: 'text' } })
  await ask('listUserModels')
  await ask('listEmbeddingModels')
  await ask('getModelById', { params: terms })
  await ask('getModel', { params: terms })
  await ask('getModelByAlias', { params: terms })
  await ask('listEndpoints', { params: terms })
  await ask('listZeroRetentionEndpoints')
  await ask('listProviders')
  for (const id of ['getModel', 'listEndpoints', 'getModelById', 'getModelByAlias'])
    await ask(id, { status: 404 })
  const models = await fetch(`${base}/models`, { headers: { authorization: `Bearer ${apiKey}` } })
  const known = { 'If-None-Match': models.headers.get('etag') ?? '' }
  await ask('listModels', { headers: known, status: 304 })
})

t.test('generations, activity and credits', async () => {
  await gateway.shipper.ship()
  const list = await ask('listGenerations', { query: { limit: '100' } })
  const [latest] = list['data'] as { id: string }[]
  t.ok(latest, 'requests were recorded')
  await ask('getGeneration', { query: { id: latest?.id ?? '' } })
  await ask('getGeneration', { query: { id: 'gen-unknown' }, status: 404 })
  for (const group_by of ['workspace', 'session', 'agent']) await ask('getActivity', { query: { group_by } })
  await ask('getActivity', { query: { date: new Date(clock.nowMs()).toISOString().slice(0, 10) } })
  for (const dimensions of ['day', 'day,model,provider,workspace,key', 'session,agent'])
    await ask('getActivity', { query: { dimensions, start_date: '2020-01-01' } })
  const body = { amount: 5.5, id: 'first', note: 'Thanks' }
  await ask('addCredits', { body, status: 201 })
  await ask('addCredits', { body })
  await ask('addCredits', { body: { ...body, amount: 7 }, status: 409 })
  await ask('getCredits')
  await ask('listProofKeys')
})

let keyHash = ''

t.test('keys', async () => {
  const body = { name: 'CI', limit: 5, limit_reset: 'monthly', creator_user_id: 'ada' }
  const hash = idIn(await ask('createKey', { body, status: 201 }), 'hash')
  keyHash = hash
  await ask('getKey', { params: { hash } })
  await ask('updateKey', { params: { hash }, body: { name: 'CD', expires_at: '2030-01-01T00:00:00Z' } })
  await ask('rotateKey', { params: { hash }, body: { overlap_seconds: 3600 } })
  await ask('rotateKey', { params: { hash }, body: { overlap_seconds: -1 }, status: 400 })
  await ask('getKey', { params: { hash } })
  await ask('createKey', { body: { name: 'Reader', role: 'viewer' }, status: 201 })
  await ask('listKeys', { query: { limit: '10', offset: '0', include_disabled: 'true' } })
  await ask('getCurrentKey')
  await ask('getCurrentKey', { key: managementKey })
  await ask('getCurrentKeyByOldPath')
  const gone = idIn(await ask('createKey', { body: { name: 'Gone' }, status: 201 }), 'hash')
  await ask('deleteKey', { params: { hash: gone } })
  await ask('getKey', { params: { hash: gone }, status: 404 })
})

t.test('workspaces', async () => {
  const body = { name: 'Research', slug: 'research', disabled_server_tools: ['gateway:web_search'] }
  const ref = idIn(await ask('createWorkspace', { body, status: 201 }))
  await ask('createWorkspace', { body, status: 409 })
  await ask('getWorkspace', { params: { ref: 'research' } })
  await ask('updateWorkspace', { params: { ref }, body: { description: 'Ours' } })
  await ask('listWorkspaces', { query: { limit: '10' } })
  await ask('deleteWorkspace', { params: { ref } })
})

t.test('end users', async () => {
  const user = 'customer/42'
  await ask('createEndUser', { body: { user }, status: 201 })
  await ask('createEndUser', { body: { user }, status: 409 })
  await ask('getEndUser', { params: { user } })
  await ask('updateEndUser', { params: { user }, body: { is_active: false } })
  await ask('updateEndUserByQuery', { query: { user }, body: { is_active: true } })
  await ask('updateEndUserByQuery', { query: { user: 'nobody' }, body: { is_active: true }, status: 404 })
  await ask('listEndUsers', { query: { user, include_inactive: 'true' } })
  await ask('deleteEndUser', { params: { user } })
  await ask('deleteEndUserByQuery', { query: { user } })
})

t.test('rollouts', async t => {
  const store = await openStore(storageUrl)
  t.teardown(() => store.close())
  const [route, candidate] = ['prod/chat', 'acme/new']
  await ask('getRollout', { params: { route }, status: 404 })
  const place = { route, candidate, state: 'running', step: 0, share: 1 } as const
  const begun = { ...place, reason: 'has begun', ...NO_SHADOWS }
  t.ok(await store.rollouts.begin({ ...begun, revision: 1, sinceMs: clock.nowMs() }, null))
  await ask('listRollouts')
  await ask('getRollout', { params: { route } })
  await ask('holdRollout', { params: { route } })
  t.match(await ask('advanceRollout', { params: { route } }), { data: { state: 'running', share: 50 } })
  await ask('advanceRollout', { params: { route } })
  t.match(await ask('getRollout', { params: { route } }), { data: { state: 'promoted', share: 100 } })
  await ask('holdRollout', { params: { route }, status: 409 })
  await ask('rollbackRollout', { params: { route } })
  await ask('rollbackRollout', { params: { route }, status: 409 })
})

t.test('pauses', async t => {
  const params = { provider: 'mistral' }
  await ask('pauseProvider', { params, body: { minutes: 0 }, status: 400 })
  await ask('pauseProvider', { params: { provider: 'none' }, body: { minutes: 1 }, status: 404 })
  await ask('pauseProvider', { params, body: { minutes: 30, reason: 'incident 4711' } })
  t.match(await ask('listPauses'), { data: [{ provider: 'mistral' }] })
  await ask('resumeProvider', { params })
  await ask('resumeProvider', { params, status: 404 })
})

t.test('captures', async () => {
  const body = { key_hash: keyHash, minutes: 1, max_bytes: 65_536 }
  const id = idIn(await ask('createCapture', { body, status: 201 }))
  for (let n = 0; n < 2; n++) await ask('createCapture', { body, status: 201 })
  await ask('createCapture', { body, status: 409 })
  await ask('listCaptures', { query: { limit: '10' } })
  await ask('getCapture', { params: { id } })
  await ask('deleteCapture', { params: { id } })
  await ask('getCapture', { params: { id }, status: 404 })
})

t.test('provider credentials', async () => {
  const body = {
    provider: 'mistral',
    key: 'abcdefghijklmnopqrstuvwxyz012345',
    name: 'Production',
    allowed_models: ['mistralai/mistral-small'],
    allowed_api_key_hashes: [keyHash],
  }
  const id = idIn(await ask('createCredential', { body, status: 201 }))
  await ask('getCredential', { params: { id } })
  await ask('updateCredential', { params: { id }, body: { name: null, declared_zdr: true } })
  await ask('listCredentials', { query: { provider: 'mistral' } })
  await ask('checkCredential', { params: { id }, body: {} })
  await ask('checkCredential', { params: { id }, body: { model: 'sim/echo' }, status: 400 })
  await ask('checkProviderKey', { body: { provider: 'sim' } })
  await ask('checkProviderKey', { body: { provider: 'nobody' }, status: 404 })
  await ask('deleteCredential', { params: { id } })
})

t.test('guardrails', async () => {
  const body = {
    name: 'No customer data',
    limit_usd: 5,
    reset_interval: 'daily',
    allowed_data_regions: ['global'],
    content_filter_builtins: [
      { slug: 'email', action: 'redact' },
      { slug: 'regex-prompt-injection', action: 'flag', scan_scope: 'user_only' },
    ],
    content_filters: [{ pattern: 'project [a-z]+', action: 'block', label: 'projects' }],
    output: { content_filter_builtins: [{ slug: 'secrets', action: 'redact' }] },
  }
  const id = idIn(await ask('createGuardrail', { body, status: 201 }))
  const params = { id }
  await ask('getGuardrail', { params })
  await ask('checkGuardrail', {
    params,
    body: { text: 'Mail to ada@example.com about project x', side: 'input' },
  })
  await ask('updateGuardrail', { params, body: { output: null, enforce_zdr: true } })
  await ask('listGuardrails', { query: { limit: '10' } })
  await ask('assignKeys', { params, body: { key_hashes: [keyHash] } })
  await ask('listGuardrailBudgets', { params })
  await ask('listKeyAssignments')
  await ask('listGuardrailKeyAssignments', { params })
  await ask('unassignKeys', { params, body: { key_hashes: [keyHash] } })
  await ask('assignMembers', { params, body: { member_user_ids: ['ada'] } })
  await ask('listMemberAssignments')
  await ask('listGuardrailMemberAssignments', { params })
  await ask('unassignMembers', { params, body: { member_user_ids: ['ada'] } })
  await ask('deleteGuardrail', { params })
})

t.test('the audit log has what was changed', async t => {
  const { total_count: total } = await ask('listAudit', { query: { limit: '100' } })
  t.ok(Number(total) > 20)
})

t.test('errors of every operation have the documented form', async () => {
  const HASH = '0'.repeat(64)
  for (const place of operations.values()) {
    const { operation } = place
    const id = operation.operationId
    const params = { hash: HASH }
    const isForm = operation.requestBody?.content['multipart/form-data'] !== undefined
    const body = operation.requestBody === undefined ? undefined : isForm ? new FormData() : []
    if (keyFor(place) !== null) await ask(id, { params, key: null, status: 401, ...(body && { body }) })
    if (body !== undefined) await ask(id, { params, body, status: 400 })
    const isForOneKind = operation.security.length === 2
    const other = keyFor(place) === apiKey ? managementKey : apiKey
    if (isForOneKind) await ask(id, { params, key: other, status: 403, ...(body && { body }) })
  }
})

t.test('failures of models have the documented form', async () => {
  for (const [id, rest, unknown] of [
    ['createResponse', { input: 'Hello' }, 400],
    ['createChatCompletion', { messages: HELLO }, 400],
    ['createMessage', { messages: HELLO, max_tokens: 10 }, 404],
  ] as const) {
    await ask(id, { body: { model: 'sim/none', ...rest }, status: unknown, headers: METADATA })
    await ask(id, { body: { model: 'sim/fail-reset', ...rest }, status: 502, headers: METADATA })
    await ask(id, { body: { model: 'sim/fail-cut-close', ...rest, stream: true }, headers: METADATA })
  }
})

t.test('every operation of the document was asked', async t => {
  for (const { method, path, operation } of operations.values()) {
    const { operationId } = operation
    t.ok(called.has(operationId), `${method} ${path}: ask ${operationId} in this file, with an answer of 2xx`)
  }
})

/** Everything a caller can do wrong at an operation, with a secret in every place that takes text. Data. */
import { type TSchema, Type } from '@sinclair/typebox'
import type { Operation } from '../../src/api/operation.ts'
import { ChatBody } from '../../src/dialects/chat-completions/body-schema.ts'
import { EmbeddingsBody } from '../../src/dialects/embeddings/body-schema.ts'
import { GeminiBody, GeminiContent } from '../../src/dialects/gemini/body-schema.ts'
import { MessagesBody } from '../../src/dialects/messages/body-schema.ts'
import { BatchCreation } from '../../src/protocol/management/batch-creation.ts'
import {
  CredentialCheck,
  CredentialCreation,
  CredentialUpdate,
  ProviderCheck,
} from '../../src/protocol/management/byok.ts'
import { CAPTURE } from '../../src/protocol/management/captures.ts'
import {
  GuardrailCheck,
  GuardrailCreation,
  GuardrailUpdate,
  KeyAssignees,
  MemberAssignees,
} from '../../src/protocol/management/guardrails.ts'
import { KeyCreation, KeyRotation, KeyUpdate } from '../../src/protocol/management/keys.ts'
import { CreditCreation, END_USER, WORKSPACE } from '../../src/protocol/management/management.ts'
import { ResponsesRequest } from '../../src/protocol/request.ts'
import type { Ask } from './canary-client.ts'
import type { Secrets } from './canary-secrets.ts'

const MESSAGE = {
  model: 'shared/anthropic-messages',
  max_tokens: 99,
  messages: [{ role: 'user', content: 'hi' }],
}

const CONTENTS = { contents: [{ role: 'user', parts: [{ text: 'hi' }] }] }
const CONTENT = { content: { parts: [{ text: 'hi' }] } }

/** Bodies by operation: the schema whose fields are spoilt one by one, and a body that is good but for them. */
const BODIES: Readonly<Record<string, readonly [TSchema, Readonly<Record<string, unknown>>]>> = {
  'POST /responses': [ResponsesRequest, { model: 'shared/openai-chat', input: 'hi' }],
  'POST /responses/compact': [ResponsesRequest, { model: 'shared/openai-chat', input: 'hi' }],
  'POST /responses/input_tokens': [ResponsesRequest, { model: 'shared/openai-chat', input: 'hi' }],
  'POST /v1beta/models/{model}:generateContent': [GeminiBody, CONTENTS],
  'POST /v1beta/models/{model}:streamGenerateContent': [GeminiBody, CONTENTS],
  'POST /v1beta/models/{model}:countTokens': [GeminiBody, CONTENTS],
  'POST /v1beta/models/{model}:embedContent': [Type.Object({ content: GeminiContent }), CONTENT],
  'POST /v1beta/models/{model}:batchEmbedContents': [
    Type.Object({ requests: Type.Array(Type.Object({ content: GeminiContent })) }),
    { requests: [CONTENT] },
  ],
  'POST /chat/completions': [
    ChatBody,
    { model: 'shared/openai-chat', messages: [{ role: 'user', content: 'hi' }] },
  ],
  'POST /embeddings': [EmbeddingsBody, { model: 'shared/vectors', input: 'hi' }],
  'POST /messages': [MessagesBody, MESSAGE],
  'POST /messages/count_tokens': [MessagesBody, MESSAGE],
  'POST /messages/batches': [
    Type.Object({ requests: Type.Array(Type.Object({ custom_id: Type.String(), params: MessagesBody })) }),
    { requests: [{ custom_id: 'one', params: { ...MESSAGE, model: 'sim/write-20-1' } }] },
  ],
  'POST /messages/batches/{id}/cancel': [Type.Object({}), {}],
  'POST /batches': [
    BatchCreation,
    {
      endpoint: '/v1/responses',
      model: 'sim/write-20-1',
      requests: [{ custom_id: 'one', body: { model: 'sim/write-20-1', input: 'hi' } }],
    },
  ],
  'POST /batches/{id}/cancel': [Type.Object({}), {}],
  'POST /keys': [KeyCreation, { name: 'made' }],
  'PATCH /keys/{hash}': [KeyUpdate, {}],
  'POST /keys/{hash}/rotate': [KeyRotation, { overlap_seconds: 60 }],
  'POST /workspaces': [WORKSPACE.creation, { name: 'made', slug: 'made' }],
  'PATCH /workspaces/{ref}': [WORKSPACE.update, {}],
  'POST /credits': [CreditCreation, { amount: 1 }],
  'POST /end-users': [END_USER.creation, { user: 'somebody' }],
  'PATCH /end-users': [END_USER.update, { is_active: true }],
  'PATCH /end-users/{user}': [END_USER.update, { is_active: true }],
  'POST /captures': [CAPTURE.creation, { workspace_id: 'ws_nothing', minutes: 1 }],
  'POST /byok': [CredentialCreation, { provider: 'groq', key: 'a-good-key-of-somebody' }],
  'PATCH /byok/{id}': [CredentialUpdate, {}],
  'POST /byok/{id}/check': [CredentialCheck, {}],
  'POST /providers/check': [ProviderCheck, { provider: 'openai' }],
  'POST /workspaces/{ref}/batches/{id}/cancel': [Type.Object({}), {}],
  'POST /guardrails': [GuardrailCreation, { name: 'made' }],
  'PATCH /guardrails/{id}': [GuardrailUpdate, {}],
  'POST /guardrails/{id}/check': [GuardrailCheck, { text: 'x' }],
  'POST /guardrails/{id}/assignments/keys': [KeyAssignees, { key_hashes: [] }],
  'POST /guardrails/{id}/assignments/keys/remove': [KeyAssignees, { key_hashes: [] }],
  'POST /guardrails/{id}/assignments/members': [MemberAssignees, { member_user_ids: [] }],
  'POST /guardrails/{id}/assignments/members/remove': [MemberAssignees, { member_user_ids: [] }],
}

/** Parameters of the query that some operation reads. */
const PARAMETERS = [
  ...['offset', 'limit', 'workspace_id', 'include_disabled', 'include_inactive', 'provider', 'user', 'id'],
  ...['date', 'api_key_hash', 'group_by', 'user_id'],
]

const STRANGE_ID = '12345678-1234-1234-1234-123456789abc'

/** @throws Error for an operation with a body that is not in the table: it would be left out unseen. */
export function* refusals(routes: readonly Operation[], secrets: Secrets): Generator<Ask> {
  for (const route of routes) {
    const operation = `${route.method} ${route.path}`
    const key = route.key === 'management' ? secrets.managementKey : secrets.apiKey
    const other = route.key === 'management' ? secrets.apiKey : secrets.managementKey
    const path =
      `${route.bases?.[0] ?? '/v1'}${route.path.replace('{id}', STRANGE_ID).replace('{hash}', 'f'.repeat(64))}`
        .replace('{ref}', 'nothing')
        .replace('{user}', encodeURIComponent(secrets.endUser))
        .replace('{author}/{slug}', 'no/model')
        .replace('{model}', 'no/model')
    const bodied = BODIES[operation]
    const isForm = route.accept === 'raw' && route.media === 'any'
    if (bodied === undefined && !isForm && route.bodyLimitBytes > 0)
      throw new Error(`no bodies for ${operation}`)
    const body = bodied?.[1]
    const ask = (name: string, fields: Partial<Ask>): Ask => ({
      name: `${operation}: ${name}`,
      method: route.method,
      path,
      key,
      ...(body === undefined ? {} : { body }),
      ...fields,
    })
    yield ask('without a key', { key: null })
    yield ask('with an unknown key', { key: secrets.strangeKey })
    yield ask('with a provider key', { key: secrets.sharedKey })
    yield ask('with a vault key', { key: secrets.vaultKey.toString('base64') })
    yield ask('with everything as key', { key: secrets.all })
    yield ask('with a key of another scheme', {
      key: null,
      headers: { authorization: `Basic ${secrets.apiKey}` },
    })
    yield ask('with the other kind of key', { key: other })
    yield ask('with secrets in other headers', {
      key: null,
      headers: {
        'x-api-key': secrets.apiKey,
        cookie: secrets.all,
        referer: secrets.prompt,
        'user-agent': secrets.all,
      },
    })
    yield ask('with the wrong method', { method: 'PUT' })
    const secret = encodeURIComponent(secrets.sharedKey)
    for (const parameter of PARAMETERS) {
      if (bodied !== undefined && parameter !== 'user') continue
      yield ask(`with a strange ${parameter}`, { path: `${path}?${parameter}=${secret}` })
      yield ask(`with ${parameter} twice`, { path: `${path}?${parameter}=${secret}&${parameter}=${secret}` })
    }
    yield ask('with a key in the query', { path: `${path}?api_key=${secrets.apiKey}&key=${secret}` })
    if (route.path.includes('{')) {
      for (const [name, text] of [
        ['a provider key', secret],
        ['an API key', secrets.apiKey],
        ['everything', encodeURIComponent(secrets.all)],
      ] as const) {
        yield ask(`of ${name}`, { path: `/v1${route.path.replace(/\{[^}]+\}/g, text)}` })
      }
    }
    if (bodied !== undefined) yield* spoiltBodies(ask, bodied[0], bodied[1], secrets)
    if (isForm) yield* spoiltForms(ask, secrets)
  }
}

function* spoiltForms(
  ask: (name: string, fields: Partial<Ask>) => Ask,
  { all, sharedKey }: Secrets,
): Generator<Ask> {
  const part = (head: string, content = all): string => `--XX\r\n${head}\r\n\r\n${content}\r\n`
  const disposition = 'Content-Disposition: form-data'
  const file = part(`${disposition}; name="file"; filename="a"`)
  const bodies: Readonly<Record<string, string>> = {
    'is no form': all,
    'is cut': file,
    'has another purpose': `${file}${part(`${disposition}; name="purpose"`, sharedKey)}--XX--`,
    'has a long purpose': `${file}${part(`${disposition}; name="purpose"`)}--XX--`,
    'has a strange field': `${part(`${disposition}; name="${sharedKey}"`)}--XX--`,
    'has a strange head': `${part(sharedKey)}--XX--`,
    'has a strange disposition': `${part(`Content-Disposition: ${sharedKey}`)}--XX--`,
    // The file itself is stored as it came.
    'goes on': `${part(`${disposition}; name="file"; filename="a"`, 'a text')}--XX--\r\n${sharedKey}`,
  }
  for (const [name, body] of Object.entries(bodies))
    yield ask(`whose form ${name}`, { headers: { 'content-type': 'multipart/form-data; boundary=XX' }, body })
  for (const type of [
    `multipart/form-data; boundary=${sharedKey} `,
    `multipart/form-data; ${sharedKey}`,
    sharedKey,
  ])
    yield ask('whose type is strange', { headers: { 'content-type': type }, body: file })
}

function* spoiltBodies(
  ask: (name: string, fields: Partial<Ask>) => Ask,
  schema: TSchema,
  good: Readonly<Record<string, unknown>>,
  { all, ownKey, wordKey, sharedKey, ownKeys }: Secrets,
): Generator<Ask> {
  const text = JSON.stringify({ ...good, note: all })
  yield ask('whose body is no JSON', { body: `${all} {` })
  yield ask('whose body is cut', { body: text.slice(0, -2) })
  yield ask('whose body is empty', { body: '' })
  yield ask('whose body is a text', { body: JSON.stringify(all) })
  yield ask('whose body is a list', { body: [all, good] })
  yield ask('whose body is deep', { body: `${'['.repeat(100)}${JSON.stringify(all)}${']'.repeat(100)}` })
  yield ask('of another type', { headers: { 'content-type': `text/plain; ${sharedKey}` }, body: text })
  yield ask('of another coding', { headers: { 'content-encoding': sharedKey }, body: text })
  yield ask('with an expectation', { headers: { expect: sharedKey }, body: text })
  yield ask('with an unknown field', { body: { ...good, [all]: all } })
  yield ask('with a key for a field', { body: { ...good, [ownKey]: ownKey } })
  yield ask('with a plain key for a field', { body: { ...good, [wordKey]: 1 } })
  yield ask('with __proto__', { body: `{"__proto__":${JSON.stringify({ [all]: all })},${text.slice(1)}` })
  const fields = Object.keys(schema['properties'] as Readonly<Record<string, unknown>>)
  for (const field of fields) {
    const values = {
      text: all,
      object: { [all]: all },
      list: [all, { type: all }],
      'object of a kind': { type: all },
    }
    for (const [kind, value] of Object.entries(values)) {
      yield ask(`whose ${field} is ${kind}`, { body: { ...good, [field]: value } })
    }
  }
  if (!fields.includes('key')) return
  for (const { provider, key } of ownKeys) {
    const wrong = {
      'cut in half': key.slice(0, key.length >> 1),
      'with one field more': spoilt(key),
      'in a list': `[${key}]`,
    }
    for (const [name, value] of Object.entries(wrong)) {
      yield ask(`whose ${provider} key is ${name}`, { body: { ...good, provider, key: value } })
    }
    yield ask(`whose ${provider} key is for another`, { body: { ...good, provider: 'groq', key } })
    yield ask(`whose ${provider} key is of another region`, {
      body: { ...good, provider, key, declared_region: 'us', is_fallback: true, is_required: true },
    })
  }
  yield ask('whose key has a line break', { body: { ...good, key: `${ownKey}\n${ownKey}` } })
  yield ask('whose provider is a key', { body: { ...good, provider: ownKey, key: ownKey } })
}

/** The same JSON with its texts as names too. */
function spoilt(json: string): string {
  const value = JSON.parse(json) as Record<string, unknown> | Record<string, unknown>[]
  const more = (fields: Record<string, unknown>) => ({
    ...fields,
    ...Object.fromEntries(Object.values(fields).map(field => [String(field), field])),
  })
  return JSON.stringify(Array.isArray(value) ? value.map(more) : more(value))
}

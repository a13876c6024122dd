/**
 * Two organizations, each with a record of every kind, and every operation that takes an id: to the one, what
 * belongs to the other is as unknown as what never was. The table of operations is read from the code, so that none
 * can be forgotten.
 */
import { randomBytes, randomUUID } from 'node:crypto'
import t from 'tap'
import type { Operation } from '../../src/api/operation.ts'
import { hashKey } from '../../src/callers/api-key.ts'
import { defaultGuardrailId } from '../../src/storage/guardrails.ts'
import { DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID } from '../../src/storage/store.ts'
import { batchBody, batchCaller, endBatch } from '../support/batch-calls.ts'
import { startGateway } from '../support/gateway.ts'
import { type Answered, addOrganization, caller, type Organization } from '../support/management.ts'
import { allOperations } from '../support/operations.ts'
import { TestClock } from '../support/test-clock.ts'

/** Everything by which a record of an organization can be named. */
interface Ids {
  readonly workspaceId: string
  readonly workspaceSlug: string
  readonly keyHash: string
  readonly credentialId: string
  readonly captureId: string
  readonly endUser: string
  readonly generationId: string
  readonly creditId: string
  readonly guardrailId: string
  /** Guardrail of the workspace's own. */
  readonly defaultGuardrailId: string
  readonly member: string
  /** That has ended. */
  readonly batchId: string
  readonly fileId: string
  /** Generation that can be read again. */
  readonly streamId: string
}

interface Asking {
  readonly path: string
  readonly body?: unknown
}

/** A request that names records: of the other organization, or of nobody. */
type Naming = (ids: Ids) => Asking

/** Says that an operation takes nothing that names a record of an organization. */
const TAKES_NO_IDS: readonly Naming[] = []

const KEY = 'canary-provider-key-0001'
const byId = (prefix: string, id: (ids: Ids) => string, body?: object): readonly Naming[] => [
  ids => ({ path: `${prefix}/${encodeURIComponent(id(ids))}`, ...(body === undefined ? {} : { body }) }),
]
const workspace = (body?: object): readonly Naming[] => [
  ...byId('/workspaces', ids => ids.workspaceId, body),
  ...byId('/workspaces', ids => ids.workspaceSlug, body),
]
const guardrail = (suffix: string, body?: (ids: Ids) => object): readonly Naming[] =>
  [(ids: Ids) => ids.guardrailId, (ids: Ids) => ids.defaultGuardrailId].map(id => ids => ({
    path: `/guardrails/${id(ids)}${suffix}`,
    ...(body === undefined ? {} : { body: body(ids) }),
  }))
const keyHashes = (ids: Ids) => ({ key_hashes: [ids.keyHash] })
const members = (ids: Ids) => ({ member_user_ids: [ids.member] })
const endUserQuery = (body?: object): readonly Naming[] => [
  ids => ({ path: `/end-users?user=${ids.endUser}`, ...(body === undefined ? {} : { body }) }),
]

/** Every operation, with all the ways in which it may be told an id. One that is missing here fails the test. */
const OPERATIONS: Readonly<Record<string, readonly Naming[]>> = {
  'POST /responses': TAKES_NO_IDS,
  'POST /responses/compact': TAKES_NO_IDS,
  'POST /responses/input_tokens': TAKES_NO_IDS,
  'GET /responses/{id}': [ids => ({ path: `/responses/${ids.streamId}?stream=true` })],
  'POST /chat/completions': TAKES_NO_IDS,
  'POST /embeddings': TAKES_NO_IDS,
  'GET /chat/completions/{id}': [ids => ({ path: `/chat/completions/${ids.streamId}?stream=true` })],
  'GET /messages/{id}': [ids => ({ path: `/messages/${ids.streamId}?stream=true` })],
  'POST /messages/batches': TAKES_NO_IDS,
  'GET /messages/batches': [
    ids => ({ path: `/messages/batches?after_id=${ids.batchId}` }),
    ids => ({ path: `/messages/batches?before_id=${ids.batchId}` }),
  ],
  'GET /messages/batches/{id}': byId('/messages/batches', ids => ids.batchId),
  'DELETE /messages/batches/{id}': byId('/messages/batches', ids => ids.batchId),
  'GET /messages/batches/{id}/results': [ids => ({ path: `/messages/batches/${ids.batchId}/results` })],
  'POST /messages/batches/{id}/cancel': [
    ids => ({ path: `/messages/batches/${ids.batchId}/cancel`, body: {} }),
  ],
  'POST /messages': TAKES_NO_IDS,
  'POST /messages/count_tokens': TAKES_NO_IDS,
  'POST /v1beta/models/{model}:generateContent': TAKES_NO_IDS,
  'POST /v1beta/models/{model}:streamGenerateContent': TAKES_NO_IDS,
  'POST /v1beta/models/{model}:countTokens': TAKES_NO_IDS,
  'POST /v1beta/models/{model}:embedContent': TAKES_NO_IDS,
  'POST /v1beta/models/{model}:batchEmbedContents': TAKES_NO_IDS,
  'GET /v1beta/models': TAKES_NO_IDS,
  'GET /v1beta/models/{model}': TAKES_NO_IDS,
  'GET /api/hello': TAKES_NO_IDS,
  'HEAD /': TAKES_NO_IDS,
  'POST /batches': TAKES_NO_IDS,
  'GET /batches': [ids => ({ path: `/batches?after=${ids.batchId}` })],
  'GET /batches/{id}': byId('/batches', ids => ids.batchId),
  'DELETE /batches/{id}': byId('/batches', ids => ids.batchId),
  'POST /workspaces/{ref}/batches/{id}/cancel': [
    ids => ({ path: `/workspaces/${ids.workspaceId}/batches/${ids.batchId}/cancel`, body: {} }),
    ids => ({ path: `/workspaces/${ids.workspaceSlug}/batches/${ids.batchId}/cancel`, body: {} }),
    ids => ({ path: `/workspaces/ws_default/batches/${ids.batchId}/cancel`, body: {} }),
  ],
  'POST /batches/{id}/cancel': [ids => ({ path: `/batches/${ids.batchId}/cancel`, body: {} })],
  'POST /files': TAKES_NO_IDS,
  'GET /files': [ids => ({ path: `/files?after=${ids.fileId}` })],
  'GET /files/{id}': byId('/files', ids => ids.fileId),
  'GET /files/{id}/content': [ids => ({ path: `/files/${ids.fileId}/content` })],
  'DELETE /files/{id}': byId('/files', ids => ids.fileId),
  'GET /models': TAKES_NO_IDS,
  'GET /models/count': TAKES_NO_IDS,
  'GET /models/user': TAKES_NO_IDS,
  'GET /models/{model}': TAKES_NO_IDS,
  'GET /models/{author}/{slug}': TAKES_NO_IDS,
  'GET /model/{author}/{slug}': TAKES_NO_IDS,
  'GET /embeddings/models': TAKES_NO_IDS,
  'GET /endpoints/zdr': TAKES_NO_IDS,
  'GET /auth/key': TAKES_NO_IDS,
  'GET /models/{author}/{slug}/endpoints': TAKES_NO_IDS,
  'GET /providers': TAKES_NO_IDS,
  'GET /proof-keys': TAKES_NO_IDS,
  // Routes have names in the configuration, which is one for all.
  'GET /rollouts': TAKES_NO_IDS,
  'GET /rollouts/{route}': TAKES_NO_IDS,
  'POST /rollouts/{route}/advance': TAKES_NO_IDS,
  'POST /rollouts/{route}/hold': TAKES_NO_IDS,
  'POST /rollouts/{route}/rollback': TAKES_NO_IDS,
  // So do providers.
  'GET /pauses': TAKES_NO_IDS,
  'POST /providers/{provider}/pause': TAKES_NO_IDS,
  'POST /providers/{provider}/resume': TAKES_NO_IDS,
  'GET /openapi.json': TAKES_NO_IDS,
  'GET /generation': [ids => ({ path: `/generation?id=${ids.generationId}` })],
  'GET /key': TAKES_NO_IDS,
  'GET /keys': [ids => ({ path: `/keys?workspace_id=${ids.workspaceId}` })],
  'POST /keys': [
    ids => ({ path: '/keys', body: { name: 'x', workspace_id: ids.workspaceId } }),
    ids => ({ path: '/keys', body: { name: 'x', workspace_id: ids.workspaceSlug } }),
  ],
  'GET /keys/{hash}': byId('/keys', ids => ids.keyHash),
  'PATCH /keys/{hash}': byId('/keys', ids => ids.keyHash, { disabled: true }),
  'DELETE /keys/{hash}': byId('/keys', ids => ids.keyHash),
  'POST /keys/{hash}/rotate': [
    ids => ({ path: `/keys/${ids.keyHash}/rotate`, body: { overlap_seconds: 0 } }),
  ],
  'GET /workspaces': TAKES_NO_IDS,
  // A name that the other one has is free here.
  'POST /workspaces': [ids => ({ path: '/workspaces', body: { name: 'x', slug: ids.workspaceSlug } })],
  'GET /workspaces/{ref}': workspace(),
  'PATCH /workspaces/{ref}': workspace({ name: 'taken over' }),
  'DELETE /workspaces/{ref}': workspace(),
  'GET /credits': TAKES_NO_IDS,
  'POST /credits': [ids => ({ path: '/credits', body: { amount: 1, id: ids.creditId } })],
  'GET /audit': TAKES_NO_IDS,
  'GET /generations': [
    ids => ({ path: `/generations?after=${ids.generationId}` }),
    ids => ({ path: `/generations?api_key_hash=${ids.keyHash}` }),
    ids => ({ path: `/generations?workspace_id=${ids.workspaceId}` }),
    ids => ({ path: `/generations?user_id=${ids.endUser}` }),
  ],
  'GET /activity': [
    ids => ({ path: `/activity?workspace_id=${ids.workspaceId}` }),
    ids => ({ path: `/activity?api_key_hash=${ids.keyHash}` }),
    ids => ({ path: `/activity?user_id=${ids.endUser}` }),
    ids => ({ path: `/activity?dimensions=day,key&api_key_hash=${ids.keyHash}` }),
    ids => ({ path: `/activity?dimensions=key,workspace&workspace_id=${ids.workspaceId}` }),
    ids => ({ path: `/activity?dimensions=session,agent&user_id=${ids.endUser}` }),
  ],
  'GET /captures': TAKES_NO_IDS,
  'POST /captures': [
    ids => ({ path: '/captures', body: { key_hash: ids.keyHash, minutes: 1 } }),
    ids => ({ path: '/captures', body: { workspace_id: ids.workspaceId, minutes: 1 } }),
    ids => ({ path: '/captures', body: { workspace_id: ids.workspaceSlug, minutes: 1 } }),
  ],
  'GET /captures/{id}': byId('/captures', ids => ids.captureId),
  'DELETE /captures/{id}': byId('/captures', ids => ids.captureId),
  'POST /end-users': [ids => ({ path: '/end-users', body: { user: ids.endUser } })],
  'GET /end-users': endUserQuery(),
  'PATCH /end-users': endUserQuery({ is_active: false }),
  'DELETE /end-users': endUserQuery(),
  'GET /end-users/{user}': byId('/end-users', ids => ids.endUser),
  'PATCH /end-users/{user}': byId('/end-users', ids => ids.endUser, { is_active: false }),
  'DELETE /end-users/{user}': byId('/end-users', ids => ids.endUser),
  'GET /byok': [ids => ({ path: `/byok?workspace_id=${ids.workspaceId}` })],
  'POST /byok': [
    ids => ({ path: '/byok', body: { provider: 'groq', key: KEY, workspace_id: ids.workspaceId } }),
    ids => ({ path: '/byok', body: { provider: 'groq', key: KEY, allowed_api_key_hashes: [ids.keyHash] } }),
  ],
  'GET /byok/{id}': byId('/byok', ids => ids.credentialId),
  'PATCH /byok/{id}': byId('/byok', ids => ids.credentialId, { disabled: true }),
  'POST /byok/{id}/check': [ids => ({ path: `/byok/${ids.credentialId}/check`, body: {} })],
  'POST /providers/check': TAKES_NO_IDS,
  'DELETE /byok/{id}': byId('/byok', ids => ids.credentialId),
  'GET /guardrails': [ids => ({ path: `/guardrails?workspace_id=${ids.workspaceId}` })],
  'POST /guardrails': [
    ids => ({ path: '/guardrails', body: { name: 'x', workspace_id: ids.workspaceId } }),
    ids => ({ path: '/guardrails', body: { name: 'x', workspace_id: ids.workspaceSlug } }),
  ],
  'GET /guardrails/{id}': guardrail(''),
  'PATCH /guardrails/{id}': guardrail('', () => ({ name: 'taken over' })),
  'DELETE /guardrails/{id}': guardrail(''),
  'POST /guardrails/{id}/check': guardrail('/check', () => ({ text: 'someone@example.com' })),
  'GET /guardrails/{id}/budgets': guardrail('/budgets'),
  'GET /guardrails/assignments/keys': TAKES_NO_IDS,
  'GET /guardrails/{id}/assignments/keys': guardrail('/assignments/keys'),
  'POST /guardrails/{id}/assignments/keys': guardrail('/assignments/keys', keyHashes),
  'POST /guardrails/{id}/assignments/keys/remove': guardrail('/assignments/keys/remove', keyHashes),
  'GET /guardrails/assignments/members': TAKES_NO_IDS,
  'GET /guardrails/{id}/assignments/members': guardrail('/assignments/members'),
  'POST /guardrails/{id}/assignments/members': guardrail('/assignments/members', members),
  'POST /guardrails/{id}/assignments/members/remove': guardrail('/assignments/members/remove', members),
}

/** What creates a record does so under an id that another one happens to have; its own names differ then. */
const CREATES = new Set(['POST /workspaces', 'POST /end-users', 'POST /credits'])

const clock = new TestClock()
const gateway = await startGateway({ clock, capture: { enabled: true } })
t.teardown(() => gateway.close())
const first: Organization = {
  id: DEFAULT_ORGANIZATION_ID,
  managementKey: gateway.managementKey,
  apiKey: gateway.apiKey,
  apiKeyHash: hashKey(gateway.apiKey),
  workspaceId: DEFAULT_WORKSPACE_ID,
}
const second = await addOrganization(gateway.storageUrl, 'org_second')

async function furnish({
  managementKey,
  apiKey,
  apiKeyHash,
  id,
}: Organization): Promise<Omit<Ids, 'streamId' | 'captureId'>> {
  const manage = async (path: string, body: object, status = 201): Promise<Answered> => {
    const answer = await caller(gateway.url, managementKey)('POST', path, body)
    if (answer.status !== status) throw new Error(`${path}: ${answer.text}`)
    return answer
  }
  const endUser = `canary-user-of-${id}`
  const workspaceSlug = `canary-${id.replaceAll('_', '-')}`
  const creditId = randomUUID()
  const { data } = await manage('/workspaces', { name: `canary-workspace-of-${id}`, slug: workspaceSlug })
  const workspaceId = String(data['id'])
  await manage('/end-users', { user: endUser })
  await manage('/credits', { amount: 100, id: creditId })
  const credential = await manage('/byok', {
    provider: 'mistral',
    key: KEY,
    name: `canary-credential-of-${id}`,
    workspace_id: workspaceId,
  })
  const member = `canary-member-of-${id}`
  const made = await manage('/guardrails', { name: `canary-guardrail-of-${id}` })
  const guardrailId = String(made.data['id'])
  await manage(`/guardrails/${guardrailId}/assignments/keys`, { key_hashes: [apiKeyHash] }, 200)
  await manage(`/guardrails/${guardrailId}/assignments/members`, { member_user_ids: [member] }, 200)
  const reply = await fetch(`${gateway.url}/responses`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'sim/echo', input: 'Hello', user: endUser }),
  })
  if (reply.status !== 200) throw new Error(await reply.text())
  await reply.text()
  const batch = await batchCaller(gateway.url, apiKey)('POST', '/batches', batchBody())
  const batchId = String(batch.document['id'])
  await endBatch(gateway.storageUrl, batchId)
  const form = new FormData()
  form.append('purpose', 'user_data')
  form.append('file', new Blob([`canary-content-of-${id}`]), `canary-file-of-${id}`)
  const uploaded = await fetch(`${gateway.url}/files`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}` },
    body: form,
  })
  const fileId = ((await uploaded.json()) as { id: string }).id
  return {
    batchId,
    fileId,
    workspaceId,
    workspaceSlug,
    keyHash: apiKeyHash,
    credentialId: String(credential.data['id']),
    endUser,
    generationId: reply.headers.get('x-generation-id') ?? '',
    creditId,
    guardrailId,
    defaultGuardrailId: defaultGuardrailId(id, workspaceId),
    member,
  }
}

/** What ends within a day: a stream that can be read again, and a capture. */
async function furnishNow({
  apiKey,
  apiKeyHash,
  managementKey,
}: Organization): Promise<Pick<Ids, 'streamId' | 'captureId'>> {
  const reply = await fetch(`${gateway.url}/responses`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${apiKey}`,
      'content-type': 'application/json',
      'x-gateway-resumable': 'true',
    },
    body: JSON.stringify({ model: 'sim/echo', input: 'Hello', stream: true }),
  })
  await reply.text()
  const streamId = reply.headers.get('x-generation-id') ?? ''
  const again = await caller(gateway.url, apiKey)('HEAD', `/responses/${streamId}?stream=true`)
  if (again.status !== 200) throw new Error(`HEAD of a stream: ${again.status}`)
  const asked = { key_hash: apiKeyHash, minutes: 1 }
  const capture = await caller(gateway.url, managementKey)('POST', '/captures', asked)
  if (capture.status !== 201) throw new Error(capture.text)
  return { streamId, captureId: String(capture.data['id']) }
}

/** Ids in the form of real ones that nobody has. */
function nobody(): Ids {
  return {
    batchId: `batch_${randomBytes(12).toString('hex')}`,
    fileId: `gw_file_${randomBytes(12).toString('hex')}`,
    workspaceId: randomUUID(),
    workspaceSlug: `w-${randomBytes(6).toString('hex')}`,
    keyHash: randomBytes(32).toString('hex'),
    credentialId: randomUUID(),
    captureId: `cap_${randomBytes(12).toString('hex')}`,
    endUser: `nobody-${randomBytes(6).toString('hex')}`,
    generationId: `gen-1-${randomBytes(10).toString('hex')}`,
    streamId: `gen-1-${randomBytes(10).toString('hex')}`,
    creditId: randomUUID(),
    guardrailId: randomUUID(),
    defaultGuardrailId: defaultGuardrailId(randomUUID(), randomUUID()),
    member: `nobody-${randomBytes(6).toString('hex')}`,
  }
}

/** All that an organization can see of itself. */
async function inventory({ managementKey, apiKey }: Organization, ids: Ids): Promise<string> {
  const manage = caller(gateway.url, managementKey)
  const own = batchCaller(gateway.url, apiKey)
  const seen: string[] = [
    (await own('GET', '/batches')).text,
    (await own('GET', `/batches/${ids.batchId}`)).text,
    (await own('GET', '/files')).text,
    (await own('GET', `/files/${ids.fileId}`)).text,
  ]
  for (const path of [
    '/keys?include_disabled=true',
    '/workspaces',
    `/workspaces/${ids.workspaceId}`,
    '/end-users?include_inactive=true',
    `/byok?workspace_id=${ids.workspaceId}`,
    '/captures',
    `/captures/${ids.captureId}`,
    '/credits',
    '/activity',
    '/audit',
    '/generations',
    `/generation?id=${ids.generationId}`,
    '/guardrails',
    `/guardrails/${ids.guardrailId}`,
    `/guardrails/${ids.defaultGuardrailId}`,
    '/guardrails/assignments/keys',
    '/guardrails/assignments/members',
  ]) {
    const answer = await manage('GET', path)
    if (answer.status !== 200) throw new Error(`${path}: ${answer.text}`)
    seen.push(answer.text)
  }
  return seen.join('\n')
}

const recordsOfFirst = await furnish(first)
const recordsOfSecond = await furnish(second)
await gateway.shipper.ship()
clock.advance(86_400_000)
// Streams do not stay that long.
const idsOfFirst: Ids = { ...recordsOfFirst, ...(await furnishNow(first)) }
const idsOfSecond: Ids = { ...recordsOfSecond, ...(await furnishNow(second)) }
await gateway.shipper.ship()

t.test('every operation says here what ids it takes', async t => {
  const operations = (await allOperations(t)).map(({ method, path }) => `${method} ${path}`)
  t.same(operations.toSorted(), Object.keys(OPERATIONS).toSorted())
  for (const operation of operations) {
    if (/\{(?!author|slug|model|route|provider)/.test(operation))
      t.not(OPERATIONS[operation], TAKES_NO_IDS, operation)
  }
})

/** Errors of the Messages API have the id of their own request. */
const withoutRequestId = (text: string) => text.replace(/"request_id":"gen-[^"]*"/, '')

for (const [direction, asker, own, foreign, owner] of [
  ['the first about the second', first, idsOfFirst, idsOfSecond, second],
  ['the second about the first', second, idsOfSecond, idsOfFirst, first],
] as const) {
  t.test(direction, async t => {
    const before = await inventory(owner, foreign)
    let asked = 0
    // Last, because afterwards the asker has records of these names itself.
    const creating = ({ method, path }: Operation) => Number(CREATES.has(`${method} ${path}`))
    for (const route of (await allOperations(t)).toSorted((a, b) => creating(a) - creating(b))) {
      const operation = `${route.method} ${route.path}`
      const keys = {
        none: [],
        management: [asker.managementKey],
        inference: [asker.apiKey],
        any: [asker.managementKey, asker.apiKey],
      }[route.key]
      for (const naming of OPERATIONS[operation] ?? []) {
        for (const key of keys) {
          asked++
          const ask = caller(gateway.url, key)
          const unknownIds = nobody()
          const foreignAsking = naming(foreign)
          const unknownAsking = naming(unknownIds)
          const answer = await ask(route.method, foreignAsking.path, foreignAsking.body)
          const reference = await ask(route.method, unknownAsking.path, unknownAsking.body)
          t.equal(answer.status, reference.status, `${operation}: ${answer.text}`)
          if (CREATES.has(operation)) t.equal(answer.status, 201, operation)
          else t.equal(withoutRequestId(answer.text), withoutRequestId(reference.text), operation)
          t.not(answer.status, 500, operation)
          if (/\{/.test(operation)) t.equal(answer.status, 404, operation)
          const sent = JSON.stringify([foreignAsking.path, foreignAsking.body])
          for (const id of Object.values(foreign)) {
            if (!sent.includes(id)) t.notOk(answer.text.includes(id), `${operation} told ${id}`)
          }
        }
      }
    }
    t.ok(asked >= 30, `${asked} requests`)
    t.equal(await inventory(owner, foreign), before, 'nothing of the owner was touched')
    const visible = await inventory(asker, own)
    for (const id of [
      foreign.batchId,
      foreign.keyHash,
      foreign.credentialId,
      foreign.generationId,
      foreign.workspaceId,
      foreign.guardrailId,
      foreign.defaultGuardrailId,
      foreign.member,
    ])
      t.notOk(visible.includes(id), 'nothing of the owner is listed')
  })
}

/** Signed proofs of placement, over HTTP in every dialect, checked with a JOSE library and with `sluice verify`. */
import { createHash } from 'node:crypto'
import { chmodSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { compactVerify, createLocalJWKSet, type JSONWebKeySet } from 'jose'
import t, { type Test } from 'tap'
import { checkProof, ProofFault, publicKeysOf } from '../../src/apps/commands/verify/check-proof.ts'
import { readSavedReply } from '../../src/apps/commands/verify/saved-reply.ts'
import { SIM_SLUG, simModel } from '../../src/apps/simulator/rows.ts'
import type { ProofStatement } from '../../src/protocol/management/proof.ts'
import { startGateway, type TestGateway } from '../support/gateway.ts'
import { startKeyedProvider } from '../support/provider.ts'
import { openSocket } from '../support/response-socket-client.ts'

const ASKING = { 'x-gateway-metadata': 'enabled', 'x-gateway-proof': 'true' }
const FAILING = simModel('fail-status-503', 'openai-chat')
const SECOND_IS_BETTER = {
  ...simModel('echo', 'openai-chat'),
  id: `${SIM_SLUG}/second-is-better`,
  endpoints: [
    ...FAILING.endpoints.map(row => ({ ...row, region: 'us' as const, zdr: false, trains: true })),
    ...simModel('echo', 'openai-chat').endpoints.map(row => ({
      ...row,
      region: 'europe' as const,
      zdr: true,
    })),
  ],
}
const provider = await startKeyedProvider()

const messages = [{ role: 'user', content: 'Hello' }]
const BODIES = {
  responses: { model: 'sim/echo', input: 'Hello' },
  'chat/completions': { model: 'sim/chat-echo', messages },
  messages: { model: 'sim/messages-echo', max_tokens: 100, messages },
} as const

const gateway = await startGateway({
  providers: [{ slug: 'groq', baseUrl: `${provider.url}/groq`, format: 'openai-chat' }],
  models: [
    FAILING,
    SECOND_IS_BETTER,
    { id: 'm/own', endpoints: [{ provider: 'groq', zdr: false, trains: true }] },
  ],
})
t.teardown(async () => {
  await gateway.close()
  provider.close()
})

function ask(path: string, body: string, headers: Record<string, string> = ASKING, at = gateway) {
  return fetch(`${at.url}/${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${at.apiKey}`, 'content-type': 'application/json', ...headers },
    body,
  })
}

async function keysOf(at: TestGateway): Promise<JSONWebKeySet> {
  const reply = await fetch(`${at.url}/proof-keys`, { headers: { authorization: `Bearer ${at.apiKey}` } })
  return (await reply.json()) as JSONWebKeySet
}

/** Members in order of their names, by another way than the product's. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, each: unknown) =>
    typeof each === 'object' && each !== null && !Array.isArray(each)
      ? Object.fromEntries(Object.entries(each).sort(([a], [b]) => (a < b ? -1 : 1)))
      : each,
  )
}

const digest = (text: string) => createHash('sha256').update(text).digest('hex')

interface WithMetadata {
  gateway_metadata?: { proof?: string }
  response?: WithMetadata
}

function eventsOf(text: string): WithMetadata[] {
  return text
    .split('\n')
    .filter(line => line.startsWith('data: {'))
    .map(line => JSON.parse(line.slice(6)) as WithMetadata)
}

/** Takes the proof out of a reply or event. */
function takeProof(value: WithMetadata): string | undefined {
  const metadata = (value.response?.gateway_metadata === undefined ? value : value.response).gateway_metadata
  const proof = metadata?.proof
  delete metadata?.proof
  return proof
}

async function statementOf(proof: string | undefined, at = gateway): Promise<ProofStatement> {
  const { payload, protectedHeader } = await compactVerify(proof ?? '', createLocalJWKSet(await keysOf(at)))
  if (protectedHeader.alg !== 'EdDSA') throw new Error(`signed by ${protectedHeader.alg}`)
  return JSON.parse(new TextDecoder().decode(payload)) as ProofStatement
}

for (const [path, body] of Object.entries(BODIES)) {
  t.test(`${path}: a whole reply has a proof that any library verifies`, async t => {
    const sent = JSON.stringify(body, null, 2)
    const reply = await ask(path, sent)
    t.equal(reply.status, 200)
    const document = (await reply.json()) as WithMetadata & { id: string }
    const statement = await statementOf(takeProof(document))
    t.match(statement, {
      iss: 'sluice',
      jti: document.id,
      model: body.model,
      provider: 'Simulated',
      gateway_region: 'local',
      asked: { data_region: null, zdr: false, data_collection: 'allow' },
      calls: [
        { id: document.id, model: body.model, provider: 'Simulated', credential: 'shared', status: 200 },
      ],
      request: { sha256: digest(sent) },
      answer: { of: 'reply', sha256: digest(canonical(document)) },
    })
    t.equal(statement.calls.length, 1)
  })

  t.test(`${path}: a stream has a proof that any library verifies`, async t => {
    const sent = JSON.stringify({ ...body, stream: true })
    const text = await (await ask(path, sent)).text()
    const events = eventsOf(text)
    const proofs = events.map(takeProof)
    const at = proofs.findIndex(proof => proof !== undefined)
    t.equal(at, events.length - 1, 'the last event has it')
    const statement = await statementOf(proofs[at])
    const covered =
      path === 'responses'
        ? canonical(events[at]?.response)
        : events.map(event => `${canonical(event)}\n`).join('')
    t.match(statement, {
      request: { sha256: digest(sent) },
      answer: { of: path === 'responses' ? 'reply' : 'events', sha256: digest(covered) },
      calls: [{ model: body.model, status: 200 }],
    })
  })

  t.test(`${path}: sluice verify finds a change of any field`, async t => {
    const keys = publicKeysOf(await keysOf(gateway)) ?? []
    for (const stream of [false, true]) {
      const text = await (await ask(path, JSON.stringify({ ...body, stream }))).text()
      await checked(text, keys)
      const values = stream ? eventsOf(text) : [JSON.parse(text) as WithMetadata]
      const from = path === 'responses' ? values.length - 1 : 0
      let changes = 0
      for (const [index, value] of values.entries()) {
        if (index < from) continue
        for (const changed of changesOf(path === 'responses' && stream ? value.response : value)) {
          changes++
          const others = values.with(index, changed as WithMetadata)
          const saved = stream
            ? others.map(event => JSON.stringify(event)).join('\n')
            : JSON.stringify(changed)
          await t.rejects(checked(saved, keys), ProofFault, JSON.stringify(changed).slice(0, 200))
        }
      }
      t.ok(changes > 20, `${changes} changes`)
    }
  })
}

async function checked(text: string, keys: Parameters<typeof checkProof>[1], body: Uint8Array | null = null) {
  const reply = readSavedReply(text)
  if (typeof reply === 'string') throw new ProofFault(reply)
  return await checkProof(reply, keys, body)
}

/** Copies of a document, each with one value changed, removed or added. */
function* changesOf(document: unknown): Generator<unknown> {
  for (const path of pathsOf(document)) {
    const name = path.at(-1) ?? ''
    for (const change of ['other', 'gone']) {
      const copy = structuredClone(document)
      let holder = copy as Record<string, unknown>
      for (const step of path.slice(0, -1)) holder = holder[step] as Record<string, unknown>
      if (change === 'gone' && !Array.isArray(holder)) delete holder[name]
      else holder[name] = typeof holder[name] === 'string' ? `${holder[name]}x` : 'other'
      yield copy
    }
  }
  yield { ...(document as object), added: 1 }
}

function* pathsOf(value: unknown, path: readonly string[] = []): Generator<readonly string[]> {
  if (path.length > 0) yield path
  if (typeof value !== 'object' || value === null) return
  for (const [name, each] of Object.entries(value)) yield* pathsOf(each, [...path, name])
}

t.test('a proof names every place that got the data, also one that failed, with its policy', async t => {
  const body = { model: SECOND_IS_BETTER.id, input: 'Hello', provider: { data_collection: 'allow' } }
  const reply = (await (await ask('responses', JSON.stringify(body))).json()) as WithMetadata
  const { calls } = await statementOf(takeProof(reply))
  t.match(calls, [
    { region: 'us', zdr: false, trains: true, status: 503 },
    { region: 'europe', zdr: true, trains: false, status: 200 },
  ])
})

t.test('a proof names calls that the gateway made for the answer', async t => {
  const body = {
    model: 'sim/call',
    input: 'Ask',
    tools: [{ type: 'gateway:advisor', parameters: { model: 'sim/chat-echo' } }],
  }
  const reply = (await (await ask('responses', JSON.stringify(body))).json()) as WithMetadata & { id: string }
  const { calls, jti } = await statementOf(takeProof(reply))
  t.equal(jti, reply.id)
  const advisor = calls.filter(({ model }) => model === 'sim/chat-echo')
  t.equal(advisor.length, 1)
  t.not(advisor[0]?.id, jti, 'it has a generation of its own')
  t.ok(calls.some(({ id, model }) => id === jti && model === 'sim/call'))
})

const OWN_KEY = 'sk-secret-secret-secret-secret-AbCd'

t.test('a BYOK credential is named by its masked label', async t => {
  const created = await fetch(`${gateway.url}/byok`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.managementKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ provider: 'groq', key: OWN_KEY, declared_zdr: true }),
  })
  t.equal(created.status, 201)
  const reply = (await (
    await ask('responses', JSON.stringify({ model: 'm/own', input: 'x' }))
  ).json()) as WithMetadata
  const proof = takeProof(reply) ?? ''
  const { calls } = await statementOf(proof)
  t.match(calls, [{ credential: 'sk-...AbCd', region: null, zdr: true, trains: false, status: 200 }])
  t.notMatch(Buffer.from(proof.split('.')[1] ?? '', 'base64url').toString(), /secret/)
})

t.test('over WebSocket the last message has the proof of its request', async t => {
  const socket = await openSocket(gateway.url, gateway.apiKey, ASKING)
  t.teardown(() => socket.close())
  const fields = { model: 'sim/echo', input: 'Hello' }
  const events = await socket.ask(fields)
  const last = events.at(-1) as unknown as WithMetadata
  const text = JSON.stringify(last)
  const statement = await statementOf(takeProof(last))
  t.equal(statement.answer.sha256, digest(canonical(last.response)))
  t.equal(statement.request.sha256, digest(JSON.stringify({ type: 'response.create', ...fields })))
  await checked(text, publicKeysOf(await keysOf(gateway)) ?? [])
})

t.test('without the header nothing is signed, and a wrong one is refused with what to do', async t => {
  const body = JSON.stringify(BODIES.responses)
  for (const value of ['false', '']) {
    const reply = await ask('responses', body, { ...ASKING, 'x-gateway-proof': value })
    t.notMatch(await reply.text(), /"proof"/)
  }
  const refused = async (path: string, headers: Record<string, string>, sent = body) => {
    const reply = await ask(path, sent, headers)
    return [reply.status, ((await reply.json()) as { error: { message: string } }).error.message]
  }
  t.same(await refused('responses', { 'x-gateway-proof': 'true' }), [
    400,
    'X-Gateway-Proof: needs X-Gateway-Metadata: enabled',
  ])
  t.same(await refused('responses', { ...ASKING, 'x-gateway-proof': '1' }), [
    400,
    'X-Gateway-Proof: must be true or false',
  ])
  t.same(await refused('embeddings', ASKING, JSON.stringify({ model: 'sim/embed', input: 'Hello' })), [
    400,
    'X-Gateway-Proof: embeddings cannot have a proof',
  ])
  t.same(await refused('batches', ASKING, JSON.stringify({ requests: [] })), [
    400,
    'X-Gateway-Proof: batches cannot have a proof',
  ])
})

t.test('a reply that fails has no proof, and its error is as ever', async t => {
  const reply = await ask('responses', JSON.stringify({ model: 'sim/none', input: 'x' }))
  t.equal(reply.status, 400)
  const failed = await ask('responses', JSON.stringify({ model: FAILING.id, input: 'x' }))
  t.equal(failed.status, 503)
  t.notMatch(await failed.text(), /"proof"/)
})

t.test('keys of another gateway verify nothing', async t => {
  const other = await startGateway()
  t.teardown(() => other.close())
  const text = await (await ask('responses', JSON.stringify(BODIES.responses))).text()
  const keys = publicKeysOf(await keysOf(other)) ?? []
  await t.rejects(checked(text, keys), { message: /^none of the given keys signed it/ })
})

t.test('instances that make one key file at the same time sign with one key', async t => {
  const keyFile = join(t.testdir({}), 'data/proof.key')
  const instances = await Promise.all([1, 2, 3].map(() => startGateway({ proofKeyFile: keyFile })))
  t.teardown(() => Promise.all(instances.map(each => each.close())))
  const replies = await Promise.all(
    instances.flatMap(at => [1, 2].map(() => ask('responses', JSON.stringify(BODIES.responses), ASKING, at))),
  )
  const sets = await Promise.all(instances.map(keysOf))
  t.same(sets[1], sets[0])
  t.same(sets[2], sets[0])
  for (const reply of replies) await checked(await reply.text(), publicKeysOf(sets[0]) ?? [])
  t.equal(statSync(keyFile).mode & 0o777, 0o600)
  t.equal(JSON.parse(readFileSync(keyFile, 'utf8')).keys.length, 1)
})

t.test('without a place for the key a proof is refused before any model is asked', async (t: Test) => {
  const folder = join(t.testdir({ file: '' }), 'file')
  const stuck = await startGateway({ proofKeyFile: join(folder, 'proof.key') })
  t.teardown(() => stuck.close())
  const reply = await ask('responses', JSON.stringify(BODIES.responses), ASKING, stuck)
  t.equal(reply.status, 503)
  t.match(await reply.json(), { error: { message: /^Proofs cannot be signed at the moment/ } })
  t.match(
    stuck.lines.find(
      ({ msg }) => msg === 'there is no key for signing proofs; create one, or set proof.keyFile',
    ),
    { reason: /cannot be \w+ \(ENOTDIR\)/ },
  )
  const plain = await stuck.respond(BODIES.responses)
  t.equal(plain.status, 200, 'other requests do not need it')
  mkdirSync(`${folder}-2`)
  const open = await startGateway({ proofKeyFile: join(`${folder}-2`, 'proof.key') })
  t.teardown(() => open.close())
  writeFileSync(join(`${folder}-2`, 'proof.key'), '{}')
  chmodSync(join(`${folder}-2`, 'proof.key'), 0o600)
  t.equal((await ask('responses', JSON.stringify(BODIES.responses), ASKING, open)).status, 503)
})

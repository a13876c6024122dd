/** `sluice why` tells the true reason of prepared odd requests: the real gateway, the real command, one store. */
import { randomBytes } from 'node:crypto'
import t, { type Test } from 'tap'
import { addOrganization, caller } from '../support/management.ts'
import { type Asked, OK, startWhyWorld, storageOf, type Told } from '../support/why-world.ts'

const MANAGEMENT = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
const ENVIRONMENT = { GATEWAY_MANAGEMENT_KEY: MANAGEMENT }
const PROMPT = 'secret-of-the-prompt'
const PRICES = { prompt: '0.000001', completion: '0.000002' }
const EMAIL = 'jane.doe@example.com'
const FUSION = {
  type: 'gateway:fusion',
  parameters: { analysis_models: ['m/member', 'm/absent'], model: 'm/analyst' },
}

interface Case {
  readonly name: string
  readonly asked: Asked
  readonly says: readonly RegExp[]
  readonly isSilentOn?: RegExp
  readonly has?: object
}

/** Endpoints at both providers, `a` first. */
const two = (name: string, ofA: object = {}, ofB: object = {}) => ({
  id: `m/${name}`,
  endpoints: [
    { provider: 'a', upstreamModel: name, pricing: PRICES, zdr: false, ...ofA },
    { provider: 'b', upstreamModel: name, pricing: PRICES, zdr: true, ...ofB },
  ],
})
const one = (name: string, more: object = {}) => ({
  id: `m/${name}`,
  endpoints: [{ provider: 'a', upstreamModel: name, pricing: PRICES, ...more }],
})
const provider = (slug: string, baseUrl: string) => ({
  slug,
  format: 'openai-chat',
  baseUrl,
  apiKey: 'shared',
})

const cases: Case[] = []
const note = (name: string, asked: Asked, says: readonly RegExp[], more: Partial<Case> = {}): void => {
  cases.push({ name, asked, says, ...more })
}

async function check(t: Test, explained: (ids: readonly string[]) => Promise<ReadonlyMap<string, Told>>) {
  const told = await explained(cases.map(({ asked }) => asked.id))
  for (const { name, asked, says, isSilentOn, has } of cases.splice(0)) {
    const found = told.get(asked.id)
    const text = found?.reasons.join('\n') ?? ''
    for (const line of says) t.match(text, line, `${name}: ${line}`)
    if (isSilentOn !== undefined) t.notMatch(text, isSilentOn, `${name}: not ${isSilentOn}`)
    if (has !== undefined) t.match(found, has, name)
    t.notMatch(JSON.stringify(found), new RegExp(`${PROMPT}|${EMAIL}`), `${name}: nothing of its prompt`)
    for (const line of found?.lines ?? ['']) t.ok(line.length <= 80, `${name}: at most 80 columns: ${line}`)
    // biome-ignore lint/suspicious/noControlCharactersInRegex: it looks for colours
    t.notMatch(found?.lines.join(''), /\u001b/, `${name}: without colours`)
  }
}

t.test('choices, failovers, filters, guardrails and refusals', { timeout: 240_000 }, async t => {
  const world = await startWhyWorld(
    t,
    urls => ({
      routing: { loadBalancing: false, breakerFailures: 2 },
      regions: { europe: ['eu.localhost'], us: [] },
      timeouts: { upstreamHeadersMs: 1500 },
      providers: [
        provider('a', urls.a),
        provider('b', urls.b),
        provider('openai', urls.b),
        provider('gone', 'http://127.0.0.1:9'),
      ],
      models: [
        one('plain'),
        ...['after503', 'after429', 'late', 'both', 'ordered', 'only', 'ignored', 'pinned'].map(name =>
          two(name),
        ),
        two('private', { trains: true }),
        one('training', { zdr: false, trains: true }),
        two('region', {}, { region: 'europe' }),
        two('parameter', { supportedParameters: ['temperature'] }, { supportedParameters: ['seed'] }),
        two('lossy', { format: 'anthropic-messages' }),
        one('renamed'),
        two('dear', { pricing: { prompt: '0.001', completion: '0.001' } }),
        two('short', { contextLength: 64 }, { contextLength: 100_000 }),
        one('tiny', { contextLength: 64 }),
        { id: 'm/gone', endpoints: [{ provider: 'gone' }, { provider: 'b', upstreamModel: 'gone' }] },
        one('broken'),
        one('limited'),
        one('tool'),
        one('outer'),
        one('inner'),
        one('left'),
        ...['fused', 'member', 'absent', 'analyst'].map(name => one(name)),
        { id: 'm/own', endpoints: [{ provider: 'openai', upstreamModel: 'own', pricing: PRICES }] },
        {
          id: 'm/refused-own',
          endpoints: [{ provider: 'openai', upstreamModel: 'refused-own', pricing: PRICES }],
        },
        two('guarded'),
        one('spent'),
      ],
    }),
    ENVIRONMENT,
  )
  const { ask, a, b, gateway } = world
  const manage = caller(`${gateway.url}/v1`, MANAGEMENT)
  const both = (name: string, ofA: object = OK, ofB: object = OK): void => {
    a.script(name, [ofA])
    b.script(name, [ofB])
  }
  const newKey = async (fields: object = {}) => {
    const { document, data } = await manage('POST', '/keys', { name: 'k', ...fields })
    return { key: String(document['key']), hash: String(data['hash']) }
  }

  both('plain')
  note('a plain request', await ask({ model: 'm/plain', input: PROMPT }), [
    /^Answered by a with m\/plain\.$/m,
    /First choice a m\/plain: it was the only endpoint/,
  ])
  both('after503', { status: 503 })
  note('failed over after 503', await ask({ model: 'm/after503' }), [
    /First choice a m\/after503: it is the first one in the order of the catalogue/,
    /Attempt 1 at a m\/after503 failed \(503 service_unavailable\)\. Next: b m\/after503\./,
    /^Answered by b/m,
  ])
  both('after429', { status: 429 })
  note('failed over after 429', await ask({ model: 'm/after429' }), [
    /Attempt 1 at a m\/after429 failed \(429 rate_limit_exceeded\)\. Next: b/,
  ])
  both('lossy')
  const chat = { input: undefined, messages: [{ role: 'user', content: PROMPT }], seed: 7 }
  note(
    'left out because the request would have lost a field',
    await ask(
      { model: 'm/lossy', ...chat, provider: { require_parameters: true } },
      { path: '/v1/chat/completions' },
    ),
    [/^Answered by b/m, /Left out a m\/lossy: .*takes the request only with changes.*\[require_parameters\]/],
  )
  both('renamed')
  const tools = [{ type: 'function', name: 'n'.repeat(80), parameters: { type: 'object', properties: {} } }]
  note(
    'a request with a change',
    await ask({ model: 'm/renamed', input: PROMPT, tools }),
    [/The request was changed for the provider: changed tools\[0\]\.name \(/],
    { has: { changes: [{ field: 'tools[0].name', action: 'changed' }] } },
  )
  both('late', { hangs: true })
  note('failed over after silence', await ask({ model: 'm/late' }), [
    /Attempt 1 at a m\/late failed \(upstream_timeout, HEADERS_TIMEOUT\)\. Next: b/,
  ])
  both('both', { status: 500 }, { status: 500 })
  note('both endpoints failed', await ask({ model: 'm/both' }), [
    /^Failed with 50\d/m,
    /Attempt 2 at b m\/both failed .* No other endpoint was left\./,
  ])
  b.script('gone', [OK])
  note('a provider that cannot be reached', await ask({ model: 'm/gone' }), [
    /Attempt 1 at gone m\/gone failed \(provider_unavailable, (ECONNREFUSED|connect)\w*\)/,
  ])
  both('ordered')
  note('an order of the caller', await ask({ model: 'm/ordered', provider: { order: ['b'] } }), [
    /First choice b m\/ordered: the request sets the order/,
    /Not reached a m\/ordered: it came later/,
    /asked for provider: order=\["b"\]/,
  ])
  both('only')
  note('only one provider', await ask({ model: 'm/only', provider: { only: ['b'] } }), [
    /Left out a m\/only: provider\.only .*\[allowed_providers\]/,
  ])
  both('ignored')
  note('an ignored provider', await ask({ model: 'm/ignored', provider: { ignore: ['a'] } }), [
    /Left out a m\/ignored: provider\.ignore names it/,
  ])
  both('private')
  note('zero retention', await ask({ model: 'm/private', provider: { zdr: true } }), [
    /Left out a m\/private: it retains data.*\[data_policy:zdr\]/,
  ])
  note('no use of data', await ask({ model: 'm/training', provider: { data_collection: 'deny' } }), [
    /^Refused before any model was called with 404: constraint_filtered\.$/m,
    /Left out a m\/training: .*\[data_policy:training\]/,
  ])
  both('region')
  note('a region by the host', await ask({ model: 'm/region' }, { host: 'eu.localhost' }), [
    /Left out a m\/region: it does not keep data in the region/,
  ])
  both('parameter')
  note(
    'an unsupported parameter',
    await ask({ model: 'm/parameter', seed: 1, provider: { require_parameters: true } }),
    [/Left out a m\/parameter: it lacks a parameter/],
  )
  both('dear')
  note('a maximum price', await ask({ model: 'm/dear', provider: { max_price: { prompt: 10 } } }), [
    /Left out a m\/dear: it costs more than provider\.max_price/,
  ])
  both('short')
  note('one context is too short', await ask({ model: 'm/short', input: 'word '.repeat(500) }), [
    /Left out a m\/short: its context is too short \[context_length\]/,
  ])
  note('every context is too short', await ask({ model: 'm/tiny', input: 'word '.repeat(500) }), [
    /with 400: context_length_exceeded/,
    /Message: The input does not fit/,
  ])
  both('pinned', { status: 503 })
  await ask({ model: 'm/pinned', session_id: 's-1' })
  both('pinned')
  note('a pinned conversation', await ask({ model: 'm/pinned', session_id: 's-1' }), [
    /First choice b m\/pinned: the conversation stays with it/,
  ])
  a.script('broken', [{ status: 500 }, { status: 500 }])
  await ask({ model: 'm/broken' })
  await ask({ model: 'm/broken' })
  note('an open breaker', await ask({ model: 'm/broken' }), [
    /with 503: service_unavailable/,
    /Not called a m\/broken: its breaker was open/,
  ])
  a.script('limited', [{ status: 429, retryAfter: 60 }])
  await ask({ model: 'm/limited' })
  note('a provider that asks to wait', await ask({ model: 'm/limited' }), [
    /with 429: rate_limit_exceeded/,
    /Not called a m\/limited: its provider asked for a pause/,
  ])
  a.script('tool', [{ calls: [{ name: 'datetime', arguments: '{}' }] }, OK])
  note('a server tool', await ask({ model: 'm/tool', tools: [{ type: 'gateway:datetime' }] }), [
    /Tool datetime: completed after/,
    /Attempt 2 asked a m\/tool with the tool results\./,
  ])
  const task = JSON.stringify({ task_name: 'dig', task_description: PROMPT })
  a.script('outer', [{ calls: [{ name: 'subagent', arguments: task }] }, OK])
  a.script('inner', [OK])
  const outer = await ask({
    model: 'm/outer',
    tools: [{ type: 'gateway:subagent', parameters: { model: 'm/inner' } }],
  })
  note('a tool that asks a model', outer, [
    /Tool subagent: completed after/,
    /Inner call gen-\S+: m\/inner answered/,
  ])
  a.script('fused', [{ calls: [{ name: 'fusion', arguments: '{}' }] }, OK])
  a.script('member', [OK])
  a.script('absent', [{ status: 500 }])
  a.script('analyst', [{ text: '{}' }])
  note('a fusion with a member that fails', await ask({ model: 'm/fused', tools: [FUSION] }), [
    /Tool fusion: completed after/,
    /Inner call gen-\S+: m\/member answered/,
    /Inner call gen-\S+: m\/absent failed \(provider_unavailable\)/,
  ])
  a.script('left', [{ hangs: true }])
  note(
    'a client that left',
    await ask(
      { model: 'm/left', stream: true },
      {
        headers: { 'x-request-id': 'left-1' },
        leaves: a.until(({ asked }) => asked.some(({ model }) => model === 'left')),
      },
    ),
    [
      /^The caller disconnected before the end/m,
      /Attempt 1 at a m\/left ended because the caller disconnected\.$/m,
    ],
    { has: { status: 499 } },
  )
  const credential = await manage('POST', '/byok', { provider: 'openai', key: 'sk-own-0123456789abcdef' })
  b.script('own', [OK])
  note('a BYOK credential', await ask({ model: 'm/own' }), [
    /First choice openai m\/own \(own credential .*\): BYOK credentials of the workspace come first/,
    /Not reached openai m\/own \(shared key\): it came later/,
  ])
  b.script('refused-own', [{ status: 401 }, OK])
  note('a BYOK credential that its provider refuses', await ask({ model: 'm/refused-own' }), [
    /Attempt 1 at openai m\/refused-own \(own credential .*\) failed \(401 account_refused/,
    /Next: openai m\/refused-own \(shared key\)\./,
  ])
  await manage('DELETE', `/byok/${String(credential.data['id'])}`)
  const guarded = await newKey()
  const guardrail = async (fields: object, hash: string): Promise<string> => {
    const { data, text } = await manage('POST', '/guardrails', { name: 'G', ...fields })
    t.type(data['id'], 'string', text)
    const path = `/guardrails/${String(data['id'])}/assignments/keys`
    await manage('POST', path, { key_hashes: [hash] })
    return String(data['id'])
  }
  const builtin = (action: string) => ({ content_filter_builtins: [{ slug: 'email', action }] })
  const blocking = await guardrail(builtin('block'), guarded.hash)
  note(
    'a blocked request',
    await ask({ model: 'm/guarded', input: `To ${EMAIL}` }, { key: guarded.key }),
    [
      /Refused before any model was called with 403: permission_denied/,
      /Message: Request blocked by content filter/,
      new RegExp(`Guardrail ${blocking} .*: Blocked in the request`),
    ],
    { isSilentOn: /jane/ },
  )
  const redacted = await newKey()
  await guardrail(builtin('redact'), redacted.hash)
  both('guarded')
  note('a redacted request', await ask({ model: 'm/guarded', input: `To ${EMAIL}` }, { key: redacted.key }), [
    /^Answered/m,
    /Guardrail .*: Redacted in the request/,
  ])
  const replying = await newKey()
  const output = { content_filter_builtins: [{ slug: 'email', action: 'block' }] }
  await guardrail({ output }, replying.hash)
  both('guarded', { text: `Write to ${EMAIL}` })
  note('a blocked reply', await ask({ model: 'm/guarded' }, { key: replying.key }), [
    /^Failed with 403: permission_denied/m,
    /Message: Response blocked by content filter/,
    /Attempt 1 at a m\/guarded was answered; a guardrail blocked the reply\.$/m,
    /Guardrail .*: Blocked in the reply/,
  ])
  const restricted = await newKey()
  await guardrail({ allowed_providers: ['b'] }, restricted.hash)
  both('guarded')
  note('a guardrail on providers', await ask({ model: 'm/guarded' }, { key: restricted.key }), [
    /Left out a m\/guarded: a guardrail allows only other providers/,
  ])
  const budgeted = await newKey()
  await guardrail({ limit_usd: 0.000001, reset_interval: 'daily' }, budgeted.hash)
  note('a budget', await ask({ model: 'm/spent', max_output_tokens: 100 }, { key: budgeted.key }), [
    /with 403: permission_denied/,
    /Limit: a guardrail's budget/,
  ])
  const poor = await newKey({ limit: 0.000001 })
  note('the limit of a key', await ask({ model: 'm/spent', max_output_tokens: 100 }, { key: poor.key }), [
    /with 402: payment_required/,
    /Limit: the API key's spending limit/,
    /Message: The spending limit of this API key does not cover/,
    /Not reached a m\/spent: the request ended before any endpoint was called/,
  ])
  note(
    'an unknown model',
    await ask({ model: 'm/plian' }),
    [/with 400: model_not_found/, /Message: m\/plian is not a valid model ID/],
    { has: { requested_model: 'm/plian' } },
  )
  const field = await ask({ model: 'm/plain', temperature: 'warm' })
  note('a bad field', field, [/with 400: invalid_request/, /Field: temperature/, /Message: temperature: /], {
    has: { requested_model: 'm/plain', error: { field: 'temperature' } },
  })
  note('no JSON', await ask({}, { raw: '{"model": ' }), [/with 400: invalid_request/, /Message: /])
  note('an unknown key', await ask({ model: 'm/plain' }, { key: `sk-gw-v1-${'0'.repeat(64)}` }), [
    /with 401: authentication/,
  ])
  note('a path that is not there', await ask({}, { path: '/v1/responsse' }), [/with 404: not_found/])
  note('a body that is too large', await ask({}, { headers: { 'content-length': '900000000' }, raw: '' }), [
    /with 413: payload_too_large/,
  ])
  note(
    'a model of another kind',
    await ask({ model: 'm/plain' }, { path: '/v1/embeddings' }),
    [/with 400: wrong_endpoint/],
    { has: { requested_model: 'm/plain' } },
  )
  both('plain')
  note(
    'a model that is not there among others',
    await ask({ model: 'm/plain', models: ['m/none', 'm/plain'] }),
    [/Left out model m\/none, which the request also names/],
  )
  const named = await ask({ model: 'm/plian' }, { headers: { 'x-request-id': 'my-own-id' } })
  note('an id of the caller', named, [/model_not_found/], { has: { request_id: 'my-own-id' } })

  const ids = cases.map(({ asked }) => asked.id)
  await check(t, world.explained)

  await t.test('GET /generation tells the same to the organization, and to nobody else', async t => {
    const api = caller(`${gateway.url}/v1`, gateway.apiKey)
    const [plain = ''] = ids
    const { status, data } = await api('GET', `/generation?id=${plain}`)
    t.equal(status, 200)
    t.match(data, { id: plain, explanation: { id: plain, choice: 'only', reasons: [/Answered by a/] } })
    t.notOk('key_hash' in (data['explanation'] as object))
    const managed = await manage('GET', `/generation?id=${plain}`)
    t.match(managed.data, { explanation: { key_hash: /^[0-9a-f]{64}$/ } })
    const other = await addOrganization(storageOf(gateway), 'org-other')
    for (const key of [other.apiKey, other.managementKey]) {
      for (const id of [...ids, 'my-own-id']) {
        const { status, message } = await caller(`${gateway.url}/v1`, key)('GET', `/generation?id=${id}`)
        t.same([status, message], [404, 'Generation not found'], id)
      }
    }
    const named = await api('GET', '/generation?id=my-own-id')
    t.match(named.data, { error: 'model_not_found', explanation: { requested_model: 'm/plian' } })
    const refused = await api('GET', `/generation?id=${field.id}`)
    t.match(refused.data, {
      id: field.id,
      outcome: 'refused',
      error: 'invalid_request',
      total_cost: 0,
      explanation: { requested_model: 'm/plain', error: { field: 'temperature' } },
    })
  })

  await t.test('an id that nobody knows ends with 1, and a missing one with 2', async t => {
    const unknown = await world.why('gen-unknown')
    t.equal(unknown.code, 1)
    t.match(unknown.stderr, /gen-unknown: there is no request with this id/)
    t.equal((await world.why()).code, 2)
  })
})

t.test('limits of a minute, and credits', { timeout: 120_000 }, async t => {
  const world = await startWhyWorld(
    t,
    urls => ({
      credits: { enforced: true },
      quotas: { requestsPerMinute: 3 },
      providers: [provider('a', urls.a)],
      models: [one('poor')],
    }),
    ENVIRONMENT,
  )
  note('no credits', await world.ask({ model: 'm/poor', max_output_tokens: 100 }), [
    /with 402: payment_required/,
    /Limit: the organization's credits/,
  ])
  // The minute of the wall clock may change once meanwhile.
  let last = await world.ask({ model: 'm/poor' })
  for (let tries = 0; last.status !== 429 && tries < 10; tries++) last = await world.ask({ model: 'm/poor' })
  note(
    'requests per minute',
    last,
    [
      /with 429: rate_limit_exceeded/,
      /Limit: requests per minute \(.*quotas\.requestsPerMinute\)/,
      /Retry after \d+ s\./,
    ],
    { has: { requested_model: null } },
  )
  await check(t, world.explained)
})

t.test('queues, tokens, hedges, deadlines and load', { timeout: 120_000 }, async t => {
  const world = await startWhyWorld(
    t,
    urls => ({
      routing: { loadBalancing: false, hedgeAfterMs: 300 },
      quotas: { tokensPerMinute: 1_000 },
      limits: { openPerKey: 1, waitMs: 2_000, maxInFlight: 4 },
      timeouts: { requestMs: 8_000 },
      providers: [provider('a', urls.a), provider('b', urls.b)],
      models: [one('held'), two('hedged'), one('hangs'), one('tokens')],
    }),
    ENVIRONMENT,
  )
  const { ask, a, b, gateway } = world
  const manage = caller(`${gateway.url}/v1`, MANAGEMENT)
  const newKey = async () => String((await manage('POST', '/keys', { name: 'k' })).document['key'])
  const small = { max_output_tokens: 16 }
  a.script('tokens', [OK])
  note('tokens per minute', await ask({ model: 'm/tokens', max_output_tokens: 5_000 }), [
    /with 429: rate_limit_exceeded/,
    /Limit: tokens per minute/,
  ])
  a.script('hedged', [{ hangs: true }])
  b.script('hedged', [OK])
  note('a hedged request', await ask({ model: 'm/hedged', stream: true, ...small }), [
    /Hedged: a m\/hedged was silent, and the other attempt answered first/,
    /^Answered by b/m,
  ])
  a.script('hangs', [{ hangs: true }])
  const hanging = ask({ model: 'm/hangs', ...small })
  await a.until(({ asked }) => asked.some(({ model }) => model === 'hangs'))
  note('no place, and no end user', await ask({ model: 'm/held', ...small }), [
    /with 429: rate_limit_exceeded/,
    /Limit: the API key's open requests \(limits\.openPerKey\)/,
  ])
  note('waited for a place in vain', await ask({ model: 'm/held', user: 'jo', ...small }), [
    /It waited \S+ m?s in the queue, .*none of them ended in time/,
    /Limit: the API key's open requests/,
  ])
  a.script('held', [OK])
  const [deadline, waited] = [await hanging, await retried()]
  note('the deadline of the request', deadline, [
    /with 408: deadline_exceeded/,
    /The total time of a request \(timeouts\.requestMs\)/,
  ])
  note('waited for a place', waited, [
    /It waited \S+ m?s in the queue, .*then one of them ended/,
    /^Answered by a with m\/held/m,
  ])
  a.script(
    'hangs',
    Array.from({ length: 9 }, () => ({ hangs: true as const })),
  )
  const keys = [await newKey(), ...(await Promise.all(Array.from({ length: 8 }, newKey)))]
  const shed = Promise.withResolvers<Asked>()
  await Promise.all(
    keys.map(async key => {
      const asked = await ask({ model: 'm/hangs', ...small }, { key, leaves: shed.promise })
      if (asked.status === 503) shed.resolve(asked)
    }),
  )
  note('shed by load', await shed.promise, [
    /with 503: service_unavailable/,
    /Limit: the load that a thread can handle/,
  ])
  await check(t, world.explained)

  /** A request that has waited for the end of another one of its key. */
  async function retried(): Promise<Asked> {
    const key = await newKey()
    a.script('hangs', [{ hangs: true }])
    const before = a.asked.length
    const leaving = Promise.withResolvers<void>()
    const first = ask({ model: 'm/hangs', ...small }, { key, leaves: leaving.promise })
    await a.until(({ asked }) => asked.length > before)
    const second = ask({ model: 'm/held', user: 'jo', ...small }, { key })
    await world.queued(1)
    leaving.resolve()
    await first
    return await second
  }
})

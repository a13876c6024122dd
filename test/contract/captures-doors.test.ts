/** Captures of what comes by other doors: messages of WebSockets, Gemini's addresses, lines of batches. One process. */
import { randomBytes } from 'node:crypto'
import { dirname, join } from 'node:path'
import t from 'tap'
import { hashKey } from '../../src/callers/api-key.ts'
import { startLineProvider } from '../support/batch-client.ts'
import { type CapturedRecord, captured } from '../support/captured.ts'
import { startGatewayProcess } from '../support/gateway-process.ts'
import { caller } from '../support/management.ts'
import { until } from '../support/patience.ts'
import { openSocket } from '../support/response-socket-client.ts'

const MODEL = 'acme/model'
const MANAGEMENT_KEY = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
const VAULT_KEYS = `k1:${randomBytes(32).toString('base64')}`
const OTHER = `sk-gw-v1-${randomBytes(32).toString('hex')}`

const { settings } = await startLineProvider(t, text => (text.includes('refuse') ? { status: 400 } : {}))
const gateway = await startGatewayProcess(
  t,
  { ...settings, capture: { enabled: true } },
  { GATEWAY_MANAGEMENT_KEY: MANAGEMENT_KEY, GATEWAY_VAULT_KEYS: VAULT_KEYS },
)
const { apiKey, url } = gateway
const manage = caller(`${url}/v1`, MANAGEMENT_KEY)
const owned = caller(`${url}/v1`, apiKey)
const source = {
  storageUrl: `sqlite:${join(dirname(gateway.configFile), 'data/gateway.db')}`,
  vaultKeys: VAULT_KEYS,
}

/** Begins a capture of the key of the gateway, and waits until it runs. */
async function capture(): Promise<string> {
  const { status, text, data } = await manage('POST', '/captures', { key_hash: hashKey(apiKey), minutes: 5 })
  t.equal(status, 201, text)
  await until('the capture', async () => (await owned('GET', '/key')).data['capture'] !== null)
  return String(data['id'])
}

/** Its records and their text, once there are so many; then it is deleted, so that the next one is the only one. */
async function captures(id: string, count: number) {
  let read: Awaited<ReturnType<typeof captured>> | null = null
  await until(`${count} requests`, async () => {
    read = await captured(source, id).catch(() => null)
    return (read?.records.length ?? 0) >= count
  })
  t.equal((await manage('DELETE', `/captures/${id}`)).status, 200)
  return read as unknown as Awaited<ReturnType<typeof captured>>
}

const said = ({ output }: CapturedRecord): string => JSON.stringify(output)

t.test(
  'messages of a WebSocket are requests of their own, with the conversation that they continue',
  async t => {
    const id = await capture()
    const socket = await openSocket(`${url}/v1`, apiKey)
    t.teardown(() => socket.close())
    const first = await socket.ask({ model: MODEL, input: 'canary-one' })
    const { id: previous } = (first.at(-1)?.['response'] ?? {}) as { id?: string }
    await socket.ask({ model: MODEL, input: 'canary-two', previous_response_id: previous })
    await socket.ask({ model: MODEL, input: 'canary-refuse' })
    await socket.ask({ model: 'acme/none', input: 'canary-unknown' })
    const { records, text } = await captures(id, 4)
    t.equal(records.length, 4)
    const [one, two, refused, unknown] = records as [
      CapturedRecord,
      CapturedRecord,
      CapturedRecord,
      CapturedRecord,
    ]
    for (const { dialect } of records) t.equal(dialect, 'responses')
    t.equal(new Set(records.map(({ generation_id }) => generation_id)).size, 4)
    t.match(JSON.stringify(one.request), 'canary-one')
    t.match(said(one), 'canary-one')
    t.match(
      JSON.stringify(two.request),
      /canary-one.*canary-two/,
      'what the socket has kept is part of the request',
    )
    t.match(two.calls[0]?.body.text, /canary-one.*canary-two/)
    t.match(refused, { error: { type: 'invalid_request' }, calls: [{ status: 400 }], output: null })
    t.match(unknown.request, { left_out: 'no provider was called' })
    t.notOk(text.includes(apiKey), 'the key of the handshake is not in it')
  },
)

t.test('Gemini: whole answers, streams of both kinds, and failures', async t => {
  const id = await capture()
  const ask = async (verb: string, text: string, key = apiKey): Promise<number> => {
    const answer = await fetch(`${url}/v1beta/models/${MODEL}:${verb}`, {
      method: 'POST',
      headers: { 'x-goog-api-key': key, 'content-type': 'application/json' },
      body: JSON.stringify({ contents: [{ role: 'user', parts: [{ text }] }] }),
    })
    await answer.text()
    return answer.status
  }
  t.equal(await ask('generateContent', 'canary-whole'), 200)
  t.equal(await ask('streamGenerateContent', 'canary-array'), 200)
  t.equal(await ask('streamGenerateContent?alt=sse', 'canary-events'), 200)
  t.equal(await ask('generateContent', 'canary-refuse'), 400)
  t.equal(await ask('generateContent', 'canary-stranger', OTHER), 401)
  const { records, text } = await captures(id, 4)
  t.same(
    records.map(({ dialect, calls }) => [dialect, calls[0]?.status]),
    [200, 200, 200, 400].map(status => ['gemini', status]),
  )
  for (const [at, name] of ['canary-whole', 'canary-array', 'canary-events', 'canary-refuse'].entries()) {
    t.match(JSON.stringify(records[at]?.request), name)
    t.match(records[at]?.calls[0], { provider: 'acme', method: 'POST', path: /\/chat\/completions$/ })
    if (name !== 'canary-refuse') t.match(said(records[at] as CapturedRecord), name)
  }
  t.notOk(text.includes('canary-stranger'))
  t.notOk(text.includes(apiKey))
  t.same(
    records
      .flatMap(({ calls }) => calls.flatMap(({ headers }) => headers.map(([name]) => name)))
      .filter(name => /key|auth/.test(name)),
    [],
  )
})

t.test('lines of a batch that the gateway runs, those that fail too, say that they are of one', async t => {
  const id = await capture()
  const lines = ['canary-a', 'canary-refuse', 'canary-c']
  const made = await owned('POST', '/batches', {
    endpoint: '/v1/chat/completions',
    model: MODEL,
    requests: lines.map(content => ({
      custom_id: content.replace('canary', 'line'),
      body: { messages: [{ role: 'user', content }] },
    })),
  })
  t.equal(made.status, 202, made.text)
  await owned('POST', '/chat/completions', {
    model: MODEL,
    messages: [{ role: 'user', content: 'canary-live' }],
  })
  const { records } = await captures(id, 4)
  const batched = records.filter(record => Reflect.get(record, 'is_batched') === true)
  t.same(
    records.flatMap(record => (batched.includes(record) ? [] : [record.dialect])),
    ['chat-completions'],
    'the live one is none of them',
  )
  t.equal(batched.length, 3)
  for (const line of lines) {
    const record = batched.find(({ request }) => JSON.stringify(request).includes(line))
    t.ok(record, line)
    t.equal(record?.dialect, 'chat-completions')
    t.match(record?.calls, [{ status: line === 'canary-refuse' ? 400 : 200 }])
    if (line === 'canary-refuse') t.match(record?.error, { type: 'invalid_request' })
    else t.match(said(record as CapturedRecord), line)
  }
})

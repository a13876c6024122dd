/** Text that comes back: what a guardrail masks is seen by nobody but the caller, who gets it whole. */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import t from 'tap'
import { systemClock } from '../../src/base/clock.ts'
import { Tracing } from '../../src/base/telemetry/tracing.ts'
import { hashKey } from '../../src/callers/api-key.ts'
import { TranscriptStore } from '../../src/storage/transcripts/transcript-store.ts'
import { captured } from '../support/captured.ts'
import { caller } from '../support/management.ts'
import { eventsIn, logged, runMaskRounds, startMaskWorld } from '../support/mask-rounds.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { until } from '../support/patience.ts'
import { search } from '../support/property.ts'
import { Provider } from '../support/provider.ts'
import { openSocket } from '../support/response-socket-client.ts'
import { readPiece } from '../support/resumable.ts'
import { TestClock } from '../support/test-clock.ts'
import { saidIn, stagesIn } from '../support/world.ts'

const ANN = 'ann@one.example'
const BOB = 'bob@two.example'
const CHAT = 'parrot/openai-chat'

type Loose = Record<string, unknown>

t.test('through every door and format, streamed and whole, cut anywhere', async t => {
  const world = await startMaskWorld(t)
  const { numRuns, seed } = search(240)
  await runMaskRounds(world, numRuns, seed)
  t.notMatch(logged(world.gateway), /example/)
})

/** A world, and what a request of text answers and sends. */
async function asking(t: Parameters<typeof startMaskWorld>[0], ...options: unknown[]) {
  const [settings, rules] = options as [
    Parameters<typeof startMaskWorld>[1],
    Parameters<typeof startMaskWorld>[2],
  ]
  const world = await startMaskWorld(t, settings, rules)
  const { gateway, repeater } = world
  return {
    ...world,
    async ask(input: unknown, more: Loose = {}) {
      const reply = await gateway.respond(
        { model: CHAT, input, ...more },
        { headers: { 'x-gateway-metadata': 'enabled' } },
      )
      const text = await reply.text()
      const document = (
        more['stream'] === true ? eventsIn(text).at(-1)?.['response'] : JSON.parse(text)
      ) as Loose
      return { document, said: saidIn(document), sent: repeater.bodies.at(-1) ?? '' }
    },
  }
}

t.test('a value has one placeholder, and what it is told about names no value', async t => {
  const { ask } = await asking(t)
  const { document, sent } = await ask(`Say ${ANN}, ${BOB} and ${ANN}; ACME-123456 <<me>>`)
  t.match(sent, 'Say [EMAIL_1], [EMAIL_2] and [EMAIL_1]; [CASE_1] [REDACTED_1]')
  const [stage] = stagesIn(document)
  t.match(stage, {
    summary: 'Masked in the request: email, a name for people, CASE',
    data: { action: 'masked', detected: true },
  })
  t.notMatch(JSON.stringify(document['gateway_metadata']), /example/)
})

t.test("a caller's own placeholder never gets the original of another value", async t => {
  const { ask } = await asking(t)
  const first = await ask(`Say [EMAIL_1] ${ANN} [EMAIL_2] [PHONE_9]`)
  t.match(first.sent, 'Say [EMAIL_1] [EMAIL_3] [EMAIL_2] [PHONE_9]')
  t.match(first.said, `Say [EMAIL_1] ${ANN} [EMAIL_2] [PHONE_9]`)
  await ask(`Say ${ANN}`, { session_id: 's' })
  const later = await ask(`Say [EMAIL_1] ${BOB}`, { session_id: 's' })
  t.match(later.sent, 'Say [EMAIL_2] [EMAIL_3]', 'its number was taken')
  t.match(later.said, `Say [EMAIL_1] ${BOB}`)
})

t.test('an answer from the response cache has the originals of the caller who gets it', async t => {
  const { gateway, repeater } = await startMaskWorld(t)
  const ask = async (value: string, stream: boolean) => {
    const reply = await gateway.respond(
      { model: CHAT, input: `Say ${value}`, stream },
      { headers: { 'x-gateway-cache': 'seconds=60' } },
    )
    const text = await reply.text()
    const document = (stream ? eventsIn(text).at(-1)?.['response'] : JSON.parse(text)) as Loose
    const [said] = String(saidIn(document)).split('\n')
    t.equal([ANN, BOB].filter(each => text.includes(each)).join(), value)
    return { cached: reply.headers.get('x-gateway-cached'), said }
  }
  t.same(await ask(ANN, false), { cached: null, said: `Say ${ANN}` })
  t.same(await ask(BOB, false), { cached: '0', said: `Say ${BOB}` })
  t.same(await ask(BOB, true), { cached: '0', said: `Say ${BOB}` })
  t.equal(repeater.bodies.length, 1)
})

t.test('a session remembers its placeholders, and no other one knows them', async t => {
  const world = await asking(t)
  const { ask, repeater } = world
  t.match((await ask(`Say ${ANN} ${BOB}`, { session_id: 's' })).sent, 'Say [EMAIL_1] [EMAIL_2]')
  t.match((await ask(`Say ${BOB}`, { session_id: 's' })).sent, 'Say [EMAIL_2]')
  t.match((await ask(`Say ${BOB}`)).sent, 'Say [EMAIL_1]')
  t.match((await ask(`Say ${BOB}`, { session_id: 'other' })).sent, 'Say [EMAIL_1]')
  // What the model still knows from earlier requests of the session comes back too.
  Object.defineProperty(repeater, 'parts', {
    get: () => [{ kind: 'text', pieces: { tokens: 1, each: () => ['To [EMAIL_1] and [EMAIL_9]'] } }],
  })
  t.equal((await ask('Who?', { session_id: 's' })).said, `To ${ANN} and [EMAIL_9]`)
  t.equal((await ask('Who?', { session_id: 'third' })).said, 'To [EMAIL_1] and [EMAIL_9]')
  t.equal((await ask('Who?')).said, 'To [EMAIL_1] and [EMAIL_9]')
})

t.test('what a client sends back is masked again, in arguments without their escapes', async t => {
  const { ask } = await asking(t)
  const odd = '<<a"b\\c>>'
  const { sent, said } = await ask([
    { role: 'user', content: `Say ${odd}` },
    { type: 'function_call', call_id: 'c1', name: 'send', arguments: JSON.stringify({ to: odd, cc: ANN }) },
    { type: 'function_call_output', call_id: 'c1', output: `sent to ${ANN}` },
  ])
  const { messages } = JSON.parse(sent) as { messages: Loose[] }
  t.match(messages[1], {
    tool_calls: [{ function: { arguments: '{"to":"[REDACTED_1]","cc":"[EMAIL_1]"}' } }],
  })
  t.equal(messages[2]?.['content'], 'sent to [EMAIL_1]')
  t.match(said, `Say ${odd}`)
})

t.test('in arguments that are no JSON, a backslash escapes nothing', async t => {
  const { ask } = await asking(t)
  const path = '<<C:\\temp\\new>>'
  const { sent, said } = await ask([
    { role: 'user', content: `Say ${path}` },
    { type: 'function_call', call_id: 'c1', name: 'send', arguments: `go to ${path}` },
  ])
  t.match(sent, 'go to [REDACTED_1]', 'it is the value that the user wrote')
  t.match(said, `Say ${path}`)
})

t.test('a placeholder in an id, a name or a seal stays: clients send those back unread', async t => {
  const provider = new Provider(() => ({
    json: {
      id: 'x',
      choices: [
        {
          index: 0,
          finish_reason: 'tool_calls',
          message: {
            role: 'assistant',
            content: null,
            tool_calls: [
              {
                id: '[EMAIL_1]',
                type: 'function',
                function: { name: '[EMAIL_1]', arguments: '{"id":"[EMAIL_1]"}' },
              },
            ],
          },
        },
      ],
      usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
    },
  }))
  const baseUrl = await provider.listen(t)
  const { gateway } = await startMaskWorld(t, {
    providers: [{ slug: 'bad', format: 'openai-chat', baseUrl, apiKey: 'k' }],
    models: [{ id: 'bad/model', endpoints: [{ provider: 'bad' }] }],
  } as never)
  const reply = await gateway.respond({ model: 'bad/model', input: `Say ${ANN}` })
  const { output } = (await reply.json()) as { output: Loose[] }
  t.match(output[0], { call_id: '[EMAIL_1]', name: '[EMAIL_1]', arguments: `{"id":"${ANN}"}` })
})

t.test('what the rules for replies redact or block does not come back', async t => {
  const output = {
    contentFilterBuiltins: [{ slug: 'email', action: 'redact', scanScope: 'all_messages' }],
    contentFilters: [],
    windowBytes: 1_024,
    overlapBytes: 256,
  }
  const { ask } = await asking(t, {}, { output })
  for (const stream of [true, false]) {
    const { said } = await ask(`Say ${ANN} ACME-123456`, { stream })
    t.match(said, 'Say [EMAIL_1] ACME-123456')
  }
})

t.test('a stream that is read again has the originals, and the transcript has none', async t => {
  const clock = new TestClock()
  const limits = { windowMs: 60_000, maxBytesPerKey: 1e7, maxBytes: 1e8 }
  const transcripts = new TranscriptStore({ ...limits, clock })
  const kept: Buffer[] = []
  transcripts.mirror = {
    noteOpening: () => undefined,
    noteFrames: (_, __, frames) => void kept.push(Buffer.from(frames)),
    noteEnd: () => undefined,
    noteDrop: () => undefined,
    noteForget: () => undefined,
    read: () => {
      throw new Error('nothing is read elsewhere')
    },
    claim: async () => null,
    noteRelease: () => undefined,
  }
  t.teardown(() => transcripts.close())
  const world = await startMaskWorld(t, { transcripts, clock })
  const { gateway } = world
  const { port, apiKey } = gateway
  for (const [door, body] of [
    ['/responses', { model: CHAT, input: `Say ${ANN} ü 😀 twice`, stream: true }],
    ['/chat/completions', { model: CHAT, messages: [{ role: 'user', content: `Say ${ANN}` }], stream: true }],
  ] as const) {
    const whole = await readPiece(door, { port, apiKey, headers: { 'x-gateway-resumable': 'true' }, body })
    t.match(whole.frames.join('\n'), ANN)
    const id = String(whole.headers['x-generation-id'])
    for (let after = -1; after < whole.frames.length - 1; after++) {
      const query = after < 0 ? '' : `&starting_after=${after}`
      const again = await readPiece(`${door}/${id}?stream=true${query}`, { port, apiKey })
      t.same(again.frames, whole.frames.slice(after + 1), `${door} after ${after}`)
    }
  }
  const { repeater } = world
  for (const [path, body] of [
    ['/responses', { model: CHAT, input: `Say ${ANN}`, stream: true }],
    ['/responses', { model: CHAT, input: `Say ${ANN}` }],
    ['/chat/completions', { model: CHAT, messages: [{ role: 'user', content: `Say ${ANN}` }] }],
  ] as const) {
    const calls = repeater.bodies.length
    const ask = () =>
      fetch(gateway.url + path, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${apiKey}`,
          'content-type': 'application/json',
          'idempotency-key': `${path} ${'stream' in body}`.replaceAll(' ', '-'),
        },
        body: JSON.stringify(body),
      })
    const first = await (await ask()).text()
    const again = await ask()
    t.equal(again.headers.get('x-gateway-replayed'), 'true')
    t.equal(await again.text(), first)
    t.match(first, ANN)
    t.equal(repeater.bodies.length, calls + 1)
  }
  t.ok(kept.length > 5)
  t.notMatch(Buffer.concat(kept).toString(), /one\.example/)
})

t.test('a proof covers what the client reads', async t => {
  const { gateway } = await startMaskWorld(t)
  const digestOf = (proof: string) => {
    const payload = Buffer.from(proof.split('.')[1] ?? '', 'base64url').toString()
    return (JSON.parse(payload) as { answer: { sha256: string } }).answer.sha256
  }
  for (const stream of [true, false]) {
    const reply = await gateway.respond(
      { model: CHAT, input: `Say ${ANN}`, stream },
      { headers: { 'x-gateway-metadata': 'enabled', 'x-gateway-proof': 'true' } },
    )
    const text = await reply.text()
    t.match(text, ANN)
    const document = (stream ? eventsIn(text).at(-1)?.['response'] : JSON.parse(text)) as {
      gateway_metadata: { proof?: string }
    }
    const { proof = '' } = document.gateway_metadata
    delete document.gateway_metadata.proof
    t.equal(digestOf(proof), createHash('sha256').update(canonical(document)).digest('hex'))
  }
})

function canonical(value: unknown): string {
  return JSON.stringify(value, (_, each: unknown) =>
    typeof each === 'object' && each !== null && !Array.isArray(each)
      ? Object.fromEntries(Object.entries(each).sort(([a], [b]) => (a < b ? -1 : 1)))
      : each,
  )
}

t.test('on a socket, also where a request continues the last one', async t => {
  const { gateway, repeater } = await startMaskWorld(t)
  const socket = await openSocket(gateway.url, gateway.apiKey)
  t.teardown(() => socket.close())
  const first = await socket.ask({ type: 'response.create', model: CHAT, input: `Say ${ANN}` })
  const answered: unknown = first.at(-1)?.['response']
  const { id, output } = answered as { id: string; output: Loose[] }
  t.match(JSON.stringify(output), ANN)
  const second = await socket.ask({
    type: 'response.create',
    model: CHAT,
    previous_response_id: id,
    input: `And ${BOB}`,
  })
  t.equal(second.at(-1)?.type, 'response.completed')
  t.match(repeater.bodies.at(-1), 'And [EMAIL_2]')
  t.notMatch(repeater.bodies.join(''), /\.example/)
})

t.test('server tools see placeholders, and their turns keep them', async t => {
  const seen: unknown[] = []
  const server = await startMcpServer({
    tools: [
      {
        name: 'send',
        inputSchema: { type: 'object', properties: { to: { type: 'string' } } },
        run: args => {
          seen.push(args['to'])
          return { content: [{ type: 'text', text: `sent to ${String(args['to'])}` }] }
        },
      },
    ],
  })
  t.teardown(server.close)
  const { ask, repeater } = await asking(t, { tools: { mcp: { allowPrivate: true } } })
  const say = (text: string) => ({ kind: 'text', pieces: { tokens: 1, each: () => [text] } })
  Object.defineProperty(repeater, 'parts', {
    get: () =>
      repeater.bodies.length === 1
        ? [
            {
              kind: 'call',
              name: 'send',
              custom: false,
              pieces: { tokens: 2, each: () => ['{"to":"[EMA', 'IL_1]"}'] },
            },
          ]
        : [say('Done: [EMAIL_1]')],
  })
  for (const stream of [true, false]) {
    repeater.bodies.length = 0
    const { document, said } = await ask(`Say ${ANN}`, {
      stream,
      tools: [{ type: 'mcp', server_label: 'mail', server_url: server.url, require_approval: 'never' }],
    })
    t.match(said, `Done: ${ANN}`)
    const call = (document['output'] as Loose[]).find(({ type }) => type === 'mcp_call')
    t.match(call, { arguments: `{"to":"${ANN}"}`, output: `sent to ${ANN}` })
    t.equal(repeater.bodies.length, 2)
    t.match(repeater.bodies[1], /sent to \[EMAIL_1\]/)
    t.notMatch(repeater.bodies.join(''), /\.example/)
  }
  t.same(seen, ['[EMAIL_1]', '[EMAIL_1]'])
})

t.test('captures, explanations, usage records, traces and logs have placeholders alone', async t => {
  const traces: unknown[] = []
  const tracing = new Tracing(
    { clock: systemClock, send: sent => traces.push(structuredClone(sent)) },
    { share: 1, keepSlowerThanMs: 5_000, trust: 'keys' },
  )
  const world = await asking(t, { capture: { enabled: true }, tracing })
  const { gateway, ask, records, store } = world
  const manage = caller(gateway.url, gateway.managementKey)
  const asked = { key_hash: hashKey(gateway.apiKey), minutes: 5 }
  const { data, status } = await manage('POST', '/captures', asked)
  t.equal(status, 201)
  const id = String(data['id'])
  await until('the capture runs', async () => {
    const { data: key } = await caller(gateway.url, gateway.apiKey)('GET', '/key')
    return key['capture'] !== null
  })
  await ask(`Say ${ANN}`, { session_id: 's' })
  await ask(`Say ${ANN}`, { stream: true })
  await until('both are captured', async () => (await captured(gateway, id)).records.length === 2)
  const { text } = await captured(gateway, id)
  t.match(text, '[EMAIL_1]')
  t.notMatch(text, /one\.example/)
  // Exports are made of these records alone.
  t.notMatch(JSON.stringify(await records()), /one\.example/)
  await until('both have a trace', () => {
    tracing.flush()
    return traces.flat().length >= 2
  })
  t.notMatch(JSON.stringify(traces), /one\.example/)
  t.notMatch(logged(gateway), /one\.example/)
  const path = gateway.storageUrl.replace(/^sqlite:/, '')
  await store.close()
  if (path !== gateway.storageUrl) t.notMatch(readFileSync(path, 'latin1'), /one\.example/)
})

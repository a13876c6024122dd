/** POST /responses over real HTTP, against the simulated provider in all four formats. */
import t from 'tap'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'

const gateway = await startGateway()
t.teardown(() => gateway.close())

const FORMATS = ['', 'chat-', 'messages-', 'gemini-'] as const
const WEATHER = {
  type: 'function',
  name: 'get_weather',
  description: 'Weather of a place',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
}

async function whole(body: Record<string, unknown>): Promise<ResponseResource> {
  const reply = await gateway.respond(body)
  t.equal(reply.status, 200)
  return (await reply.json()) as ResponseResource
}

async function streamed(
  body: Record<string, unknown>,
): Promise<{ events: StreamEvent[]; final: ResponseResource }> {
  const reply = await gateway.respond({ ...body, stream: true })
  t.equal(reply.status, 200)
  t.equal(reply.headers.get('content-type'), 'text/event-stream; charset=utf-8')
  const events = parseEventStream(await reply.text())
  t.same(grammarViolations(events), [])
  const last = events.at(-1)
  if (last === undefined || !('response' in last)) throw new Error('no terminal event')
  return { events, final: last.response }
}

/** What must not depend on streaming: everything but ids and times. */
function essence(response: ResponseResource): unknown {
  return JSON.parse(
    JSON.stringify(response, (key, value: unknown) =>
      ['id', 'call_id', 'created_at', 'completed_at', 'signature'].includes(key) ? undefined : value,
    ),
  )
}

const CASES: readonly {
  readonly model: string
  readonly body: Record<string, unknown>
  readonly shows: unknown
}[] = [
  {
    model: 'echo',
    body: { input: 'Grüße, 世界 👋🏽!' },
    shows: { status: 'completed', output: [{ type: 'message', content: [{ text: /Grüße, 世界 👋🏽!/ }] }] },
  },
  { model: 'write', body: { input: 'go' }, shows: { usage: { output_tokens: 200 } } },
  {
    model: 'call',
    body: { input: 'weather?', tools: [WEATHER] },
    shows: {
      output: [{ type: 'function_call', name: 'get_weather', arguments: /"city"/, status: 'completed' }],
    },
  },
  {
    model: 'call-2',
    body: { input: 'weather?', tools: [WEATHER] },
    shows: { output: [{ type: 'function_call' }, { type: 'function_call' }] },
  },
  {
    model: 'reason',
    body: { input: 'think', reasoning: { effort: 'low' } },
    shows: {
      output: [{ type: 'reasoning' }, { type: 'message' }],
      usage: { output_tokens_details: { reasoning_tokens: Number } },
    },
  },
  {
    model: 'json',
    body: {
      input: 'x',
      text: {
        format: {
          type: 'json_schema',
          name: 'n',
          schema: {
            type: 'object',
            properties: { a: { type: 'integer' } },
            required: ['a'],
            additionalProperties: false,
          },
          strict: true,
        },
      },
    },
    shows: { output: [{ content: [{ text: /"a"/ }] }] },
  },
]

for (const prefix of FORMATS) {
  for (const { model, body, shows } of CASES) {
    t.test(`sim/${prefix}${model} says the same whole and streamed`, async t => {
      const request = { model: `sim/${prefix}${model}`, ...body }
      const [plain, { final }] = await Promise.all([whole(request), streamed(request)])
      t.match(plain, shows)
      t.same(essence(final), essence(plain))
    })
  }
}

t.test('a call, its output and the answer make a conversation in every format', async t => {
  for (const prefix of FORMATS) {
    const model = `sim/${prefix}call`
    const first = await whole({ model, input: 'weather?', tools: [WEATHER] })
    const call = first.output.find(item => item.type === 'function_call')
    if (call === undefined || call.type !== 'function_call') throw new Error('no call')
    const second = await whole({
      model,
      tools: [WEATHER],
      input: [
        { role: 'user', content: 'weather?' },
        call,
        { type: 'function_call_output', call_id: call.call_id, output: '21 degrees in Lisbon' },
      ],
    })
    t.match(second, { output: [{ type: 'message', content: [{ text: /21 degrees in Lisbon/ }] }] }, model)
  }
})

t.test('a refusal is told as a refusal or as content_filter', async t => {
  for (const prefix of FORMATS) {
    const reply = await gateway.respond({ model: `sim/${prefix}refuse`, input: 'x' })
    const body = (await reply.json()) as { error?: unknown; output?: unknown; status?: string }
    t.ok([200, 400].includes(reply.status), `${prefix}refuse answers ${reply.status}`)
    t.match(JSON.stringify(body), /refus|content_policy|content_filter|cannot help/)
  }
})

t.test('the whole answer has every field of the interface', async t => {
  const response = await whole({
    model: 'sim/echo',
    input: 'hi',
    instructions: 'be brief',
    metadata: { a: 'b' },
    temperature: 0.5,
    max_output_tokens: 50,
  })
  t.match(response, {
    id: /^gen-\d+-[0-9A-Za-z]{20}$/,
    object: 'response',
    created_at: Number,
    completed_at: Number,
    status: 'completed',
    error: null,
    incomplete_details: null,
    instructions: 'be brief',
    max_output_tokens: 50,
    metadata: { a: 'b' },
    temperature: 0.5,
    top_p: null,
    frequency_penalty: null,
    presence_penalty: null,
    model: 'sim/echo',
    parallel_tool_calls: true,
    tool_choice: 'auto',
    tools: [],
    text: { format: { type: 'text' } },
    service_tier: String,
    usage: {
      input_tokens: Number,
      input_tokens_details: { cached_tokens: Number },
      output_tokens: Number,
      output_tokens_details: { reasoning_tokens: Number },
      total_tokens: Number,
    },
  })
  t.notHas(response, 'gateway_metadata')
  t.equal(
    response.usage?.total_tokens,
    (response.usage?.input_tokens ?? 0) + (response.usage?.output_tokens ?? 0),
  )
})

t.test('cost is tokens times the catalogue prices', async t => {
  const { usage } = await whole({ model: 'sim/write', input: 'one two three' })
  if (usage == null) throw new Error('no usage')
  t.equal(usage.cost, (usage.input_tokens * 100_000 + usage.output_tokens * 400_000) / 1e12)
})

t.test('the generation id is in the header and in the body', async t => {
  const reply = await gateway.respond({ model: 'sim/echo', input: 'hi' })
  t.equal(reply.headers.get('x-generation-id'), ((await reply.json()) as { id: string }).id)
  const failed = await gateway.respond({ model: 'none/such', input: 'hi' })
  t.match(failed.headers.get('x-generation-id'), /^gen-/)
  await failed.body?.cancel()
})

t.test('routing metadata comes when asked for, under each of its header names', async t => {
  for (const name of ['X-Gateway-Metadata', 'X-Gateway-Experimental-Metadata', 'X-OpenRouter-Metadata']) {
    const reply = await gateway.respond(
      { model: 'sim/echo', input: 'hi' },
      { headers: { [name]: 'Enabled' } },
    )
    t.match(await reply.json(), {
      gateway_metadata: {
        requested: 'sim/echo',
        strategy: 'direct',
        attempt: 1,
        is_byok: false,
        summary: 'available=1, selected=Simulated',
        endpoints: { total: 1, available: [{ model: 'sim/echo', provider: 'Simulated', selected: true }] },
      },
    })
  }
  const { final } = await streamed({ model: 'sim/echo', input: 'hi' })
  t.notHas(final, 'gateway_metadata')
})

t.test('the upstream body is echoed in a debug event at the start, without headers or raw user', async t => {
  const { events } = await streamed({
    model: 'sim/chat-echo',
    input: 'hi',
    user: 'alice@example.com',
    debug: { echo_upstream_body: true },
  })
  t.match(events[0], {
    type: 'response.debug',
    sequence_number: 0,
    debug: { echo_upstream_body: { model: 'echo', stream: true } },
  })
  t.notMatch(JSON.stringify(events[0]), /alice|simulated"|authorization/i)
})

t.test('the end user reaches the provider only as a keyed hash', async t => {
  await whole({
    model: 'sim/chat-echo',
    input: 'hi',
    user: 'alice@example.com',
    safety_identifier: 'alice-2',
  })
  const sent = JSON.stringify(gateway.sim.requests.at(-1))
  t.notMatch(sent, /alice/)
})

t.test('sampling, limits and unknown fields are passed on', async t => {
  await whole({
    model: 'sim/chat-echo',
    input: 'hi',
    temperature: 0.3,
    max_output_tokens: 9,
    seed: 7,
    session_id: 's',
    trace: { trace_id: 't' },
  })
  const body = gateway.sim.requests.at(-1)?.body
  t.match(body, { temperature: 0.3, seed: 7 })
  for (const key of ['session_id', 'trace', 'models', 'provider', 'plugins', 'input']) t.notHas(body, key)
})

t.test('max_output_tokens reached is incomplete', async t => {
  for (const prefix of FORMATS) {
    const response = await whole({ model: `sim/${prefix}write`, input: 'go', max_output_tokens: 20 })
    t.match(response, { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } }, prefix)
  }
})

t.test('one log line per exchange, without prompts and keys', async t => {
  const before = gateway.lines.length
  await whole({ model: 'sim/echo', input: 'a very secret prompt' })
  const lines = gateway.lines.slice(before)
  t.equal(lines.length, 1)
  t.match(lines[0], {
    msg: 'exchange',
    route: '/responses',
    status: 200,
    model: 'sim/echo',
    provider: 'sim',
    attempts: 1,
  })
  t.notMatch(JSON.stringify(gateway.lines), /secret prompt|sk-gw-v1-[0-9a-f]{64}/)
})

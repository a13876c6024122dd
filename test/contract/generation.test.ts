/** GET /generation and the ledger behind it: one record for each admitted request, however it ended. */
import type { Test } from 'tap'
import t from 'tap'
import { simModel, simProvider } from '../../src/apps/simulator/rows.ts'
import { createSim } from '../../src/apps/simulator/simulator.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { openStore } from '../../src/storage/open.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'
import { addKey } from '../support/management.ts'
import { TestClock } from '../support/test-clock.ts'

const gateway = await startGateway()
t.teardown(() => gateway.close())

interface Generation {
  readonly data: Record<string, unknown>
}

const find = (id: string, key = gateway.apiKey, at = gateway) =>
  fetch(`${at.url}/generation?id=${encodeURIComponent(id)}`, { headers: { authorization: `Bearer ${key}` } })

/** The record of an answer, found at once. */
async function record(t: Test, answer: Response, at = gateway): Promise<Record<string, unknown>> {
  const id = answer.headers.get('x-generation-id') ?? ''
  const reply = await find(id, at.apiKey, at)
  t.equal(reply.status, 200)
  const { data } = (await reply.json()) as Generation
  t.equal(data['id'], id)
  return data
}

/** The final object of an event stream. */
async function final(answer: Response): Promise<ResponseResource> {
  const last = parseEventStream(await answer.text()).at(-1)
  if (last === undefined || !('response' in last)) throw new Error('no terminal event')
  return last.response
}

const counted = async () => {
  const { values } = await gateway.serving.metrics.usageRecords.get()
  return values.reduce((sum, { value }) => sum + value, 0)
}

t.test('a streamed answer has a record with the usage that the caller was told', async t => {
  const answer = await gateway.respond({
    model: 'sim/messages-echo',
    input: 'Hello',
    stream: true,
    user: 'customer-7',
    session_id: 'session-1',
  })
  const { usage } = await final(answer)
  t.match(await record(t, answer), {
    upstream_id: String,
    api_type: 'completions',
    model: 'sim/messages-echo',
    provider_name: 'Simulated',
    created_at: /^20\d\d-.*Z$/,
    streamed: true,
    cancelled: false,
    outcome: 'completed',
    error: null,
    finish_reason: 'stop',
    native_finish_reason: 'end_turn',
    accounting: 'exact',
    tokens_prompt: usage?.input_tokens,
    tokens_completion: usage?.output_tokens,
    total_cost: usage?.cost,
    usage: usage?.cost,
    is_byok: false,
    external_user: 'customer-7',
    session_id: 'session-1',
    workspace_id: 'ws_default',
    moderation_latency: null,
    latency: Number,
    generation_time: Number,
    provider_responses: [{ provider_name: 'Simulated', status: 200, model_permaslug: 'sim/messages-echo' }],
  })
})

t.test('so has a whole one', async t => {
  const answer = await gateway.respond({ model: 'sim/echo', input: 'Hello' })
  const { usage } = (await answer.json()) as ResponseResource
  t.match(await record(t, answer), {
    streamed: false,
    outcome: 'completed',
    accounting: 'exact',
    total_cost: usage?.cost,
    external_user: null,
  })
})

t.test('one that met its limit is incomplete', async t => {
  const answer = await gateway.respond({
    model: 'sim/chat-write-200-20',
    input: 'x',
    stream: true,
    max_output_tokens: 20,
  })
  const response = await final(answer)
  t.equal(response.status, 'incomplete')
  t.match(await record(t, answer), {
    outcome: 'incomplete',
    finish_reason: 'length',
    accounting: 'exact',
    tokens_completion: response.usage?.output_tokens,
  })
})

t.test(
  'a stream that its provider breaks is failed and costs nothing, and its caller is told so',
  async t => {
    const answer = await gateway.respond({ model: 'sim/chat-fail-cut-end', input: 'go', stream: true })
    const response = await final(answer)
    t.equal(response.status, 'failed')
    const found = await record(t, answer)
    t.match(found, {
      outcome: 'failed',
      error: 'provider_unavailable',
      accounting: 'none',
      cancelled: false,
      tokens_completion: 0,
      total_cost: 0,
    })
    t.equal(response.usage, null)
  },
)

t.test('a refusal of the provider is failed and costs nothing', async t => {
  for (const stream of [true, false]) {
    const answer = await gateway.respond({ model: 'sim/fail-status', input: 'go', stream })
    t.ok(answer.status >= 500)
    await answer.text()
    t.match(await record(t, answer), {
      outcome: 'failed',
      accounting: 'none',
      tokens_prompt: 0,
      tokens_completion: 0,
      total_cost: 0,
      provider_responses: [{ provider_name: 'Simulated', status: 500 }],
    })
  }
})

t.test('a request that could not be routed has a record too, without a model', async t => {
  const answer = await gateway.respond({ model: 'nobody/nothing', input: 'go' })
  t.equal(answer.status, 400)
  t.match(await record(t, answer), {
    outcome: 'failed',
    error: 'model_not_found',
    accounting: 'none',
    model: null,
    provider_responses: [],
  })
})

t.test('what was never admitted has none', async t => {
  const before = await counted()
  const invalid = await gateway.respond({ model: 'sim/echo', input: 'go', temperature: 9 })
  t.equal(invalid.status, 400)
  const foreign = await gateway.respond(
    { model: 'sim/echo', input: 'go' },
    { headers: { authorization: 'Bearer sk-x' } },
  )
  t.equal(foreign.status, 401)
  for (const answer of [invalid, foreign]) {
    t.equal((await find(answer.headers.get('x-generation-id') ?? '')).status, 404)
  }
  t.equal(await counted(), before)
})

for (const { prefix, stream } of [
  { prefix: '', stream: true },
  { prefix: 'chat-', stream: true },
  { prefix: 'messages-', stream: true },
  { prefix: 'gemini-', stream: true },
]) {
  t.test(`a caller who leaves a ${prefix || 'responses-'} stream is charged what is estimated`, async t => {
    const leave = new AbortController()
    const before = await counted()
    const answer = await gateway.respond(
      { model: `sim/${prefix}write-200-20`, input: 'A question of some length.', stream },
      { signal: leave.signal },
    )
    const reader = (answer.body as ReadableStream<Uint8Array>).getReader()
    let text = ''
    while (text.split('output_text.delta').length < 12)
      text += Buffer.from((await reader.read()).value ?? []).toString()
    leave.abort()
    while ((await counted()) === before) await new Promise(resolve => setImmediate(resolve))
    const found = await record(t, answer)
    t.match(found, { outcome: 'aborted', cancelled: true, accounting: 'estimated', error: 'client_closed' })
    t.ok(
      Number(found['tokens_completion']) >= 3 && Number(found['tokens_completion']) < 60,
      String(found['tokens_completion']),
    )
    t.ok(Number(found['tokens_prompt']) >= 5)
    t.ok(Number(found['total_cost']) > 0)
    t.equal(await counted(), before + 1)
  })
}

t.test(
  'a caller who leaves before the first word of a model that does not think is charged for the prompt',
  async t => {
    const { ledger, close } = await storeOf(gateway.storageUrl)
    t.teardown(close)
    const everything = { organizationId: 'org_default', since: '' }
    await gateway.shipper.ship()
    const before = await ledger.usageSince(everything)
    const known = await counted()
    const leave = new AbortController()
    const { requests } = gateway.sim.state
    const asking = gateway.respond(
      { model: 'sim/fail-no-headers', input: 'go', stream: true, reasoning: { effort: 'none' } },
      { signal: leave.signal },
    )
    asking.catch(() => undefined)
    await gateway.sim.until(state => state.requests > requests)
    leave.abort()
    await t.rejects(asking)
    while ((await counted()) === known) await new Promise(resolve => setImmediate(resolve))
    await gateway.shipper.ship()
    const after = await ledger.usageSince(everything)
    t.match(after, { requests: before.requests + 1, outputTokens: before.outputTokens })
    t.equal(after.inputTokens - before.inputTokens, 1n)
  },
)

t.test('an unknown id, one of another organization and a missing one', async t => {
  const answer = await gateway.respond({ model: 'sim/echo', input: 'x' })
  await answer.text()
  const id = answer.headers.get('x-generation-id') ?? ''
  const stranger = await addKey(gateway.storageUrl, { organizationId: 'org_other' })
  t.equal((await find(id)).status, 200)
  t.equal((await find(id, gateway.managementKey)).status, 200, 'a management key of the organization sees it')
  const [foreign, unknown] = [await find(id, stranger), await find('gen-1-unknown')]
  t.equal(foreign.status, 404)
  t.equal(await foreign.text(), await unknown.text(), 'they cannot be told apart')
  await gateway.shipper.ship()
  t.equal((await find(id, stranger)).status, 404, 'from the storage neither')
  t.equal((await find('x'.repeat(1_000))).status, 404)
  t.equal((await find('\0')).status, 404)
  t.equal((await find('')).status, 400)
  t.equal(
    (await fetch(`${gateway.url}/generation`, { headers: { authorization: `Bearer ${gateway.apiKey}` } }))
      .status,
    400,
  )
  t.equal((await find(id, 'sk-nobody')).status, 401)
})

t.test('another instance on the same storage finds it once it is shipped', async t => {
  const answer = await gateway.respond({ model: 'sim/echo', input: 'x' })
  await answer.text()
  const id = answer.headers.get('x-generation-id') ?? ''
  const here = await (await find(id)).json()
  await gateway.shipper.ship()
  const other = await startGateway({ storageUrl: gateway.storageUrl })
  t.teardown(() => other.close())
  const reply = await fetch(`${other.url}/generation?id=${id}`, {
    headers: { authorization: `Bearer ${other.apiKey}` },
  })
  t.equal(reply.status, 200)
  t.same(await reply.json(), here, 'memory and storage tell the same')
})

t.test('the sum of the ledger is the sum of what callers were told', async t => {
  const own = await startGateway()
  t.teardown(() => own.close())
  const bodies = ['', 'chat-', 'messages-', 'gemini-'].flatMap(prefix =>
    ['echo', 'write', 'reason', 'fail-cut-end', 'fail-status'].flatMap(model => [
      { model: `sim/${prefix}${model}`, input: 'How much is it?', stream: true },
      { model: `sim/${prefix}${model}`, input: 'How much is it?' },
    ]),
  )
  let told = { cost: 0, input: 0, output: 0 }
  await Promise.all(
    bodies.map(async body => {
      const answer = await own.respond(body)
      if (!answer.ok) return void (await answer.text())
      const { usage } =
        body.stream === true ? await final(answer) : ((await answer.json()) as ResponseResource)
      told = {
        cost: told.cost + Math.round((usage?.cost ?? 0) * 1e12),
        input: told.input + (usage?.input_tokens ?? 0),
        output: told.output + (usage?.output_tokens ?? 0),
      }
    }),
  )
  await own.shipper.ship()
  const { ledger, close } = await storeOf(own.storageUrl)
  t.teardown(close)
  t.same(await ledger.usageSince({ organizationId: 'org_default', since: '' }), {
    requests: bodies.length,
    inputTokens: BigInt(told.input),
    outputTokens: BigInt(told.output),
    cost: BigInt(told.cost),
    byokCost: 0n,
  })
  t.ok(told.cost > 0)
})

t.test('a provider that falls silent in the middle: failed, and nothing is charged', async t => {
  const own = await startGateway({ timeouts: { upstreamIdleMs: 50 } })
  t.teardown(() => own.close())
  for (const prefix of ['', 'chat-', 'messages-', 'gemini-']) {
    const answer = await own.respond({ model: `sim/${prefix}fail-stall`, input: 'go', stream: true })
    const response = await final(answer)
    t.equal(response.status, 'failed')
    t.match(await record(t, answer, own), {
      outcome: 'failed',
      error: 'upstream_timeout',
      accounting: 'none',
      total_cost: 0,
    })
    t.equal(response.usage, null)
  }
})

t.test('streams that a shutdown ends have their records', async t => {
  const own = await startGateway()
  const clients = await Promise.all(
    Array.from({ length: 5 }, async () => {
      const answer = await own.respond({ model: 'sim/write-200-20', input: 'go', stream: true })
      const reader = (answer.body as ReadableStream<Uint8Array>).getReader()
      let text = ''
      while (text.split('output_text.delta').length < 8)
        text += Buffer.from((await reader.read()).value ?? []).toString()
      return { id: answer.headers.get('x-generation-id') ?? '', reader }
    }),
  )
  await own.serving.server.drain(0)
  for (const { reader } of clients) await reader.cancel().catch(() => undefined)
  await own.close()
  const { store, close } = await storeOf(own.storageUrl)
  t.teardown(close)
  for (const { id } of clients) {
    t.match(await store.ledger.find(id, 'org_default'), {
      accounting: 'estimated',
      outcome: /failed|aborted/,
    })
  }
  t.equal((await store.ledger.usageSince({ organizationId: 'org_default', since: '' })).requests, 5)
})

t.test('however many providers were tried, there is one record, of the one that answered', async t => {
  const own = await startGateway({
    models: [
      {
        ...simModel('echo', 'openai-chat'),
        id: 'two/tries',
        endpoints: [
          ...simModel('fail-status', 'openai-responses').endpoints,
          ...simModel('echo', 'openai-chat').endpoints,
        ],
      },
    ],
  })
  t.teardown(() => own.close())
  for (const stream of [true, false]) {
    const answer = await own.respond({ model: 'two/tries', input: 'go', stream })
    await answer.text()
    t.match(await record(t, answer, own), {
      outcome: 'completed',
      accounting: 'exact',
      upstream_id: String,
      provider_responses: [
        { status: 500, error: String, id: null },
        { status: 200, error: null },
      ],
    })
  }
  await own.shipper.ship()
  const { ledger, close } = await storeOf(own.storageUrl)
  t.teardown(close)
  t.equal((await ledger.usageSince({ organizationId: 'org_default', since: '' })).requests, 2)
})

t.test('a request that a shutdown ends is told to nobody else', async t => {
  const own = await startGateway()
  const asking = own.respond({ model: 'sim/fail-no-headers', models: ['sim/echo'], input: 'go' })
  await own.sim.until(state => state.openReplies === 1)
  await own.serving.server.drain(0)
  const answer = await asking
  t.equal(answer.status, 503)
  const { error } = (await answer.json()) as { error: { metadata?: Record<string, unknown> } }
  t.equal(error.metadata?.['previous_errors'], undefined)
  await own.close()
  const { store, close } = await storeOf(own.storageUrl)
  t.teardown(close)
  const id = answer.headers.get('x-generation-id') ?? ''
  t.match(await store.ledger.find(id, 'org_default'), { attempts: [{ error: 'service_unavailable' }] })
  t.equal((await store.ledger.find(id, 'org_default'))?.attempts.length, 1)
})

t.test('where the provider is drained, a caller who leaves is charged what the provider told', async t => {
  const sim = createSim()
  t.teardown(() => sim.close())
  const { url } = await sim.listen()
  const model = (name: string, id: string) => {
    const row = simModel(name, 'openai-chat')
    return { ...row, id, endpoints: row.endpoints.map(endpoint => ({ ...endpoint, provider: 'patient' })) }
  }
  const clock = new TestClock()
  const own = await startGateway({
    clock,
    timeouts: { upstreamIdleMs: 3_600_000, requestMs: 3_600_000 },
    providers: [{ ...simProvider(url), slug: 'patient', name: 'Patient', accounting: { onAbort: 'drain' } }],
    models: [model('write-40-5', 'patient/short'), model('write-1000000-5', 'patient/endless')],
  })
  t.teardown(() => own.close())
  const leaveAfterFirstToken = async (name: string) => {
    const leave = new AbortController()
    const answer = await own.respond({ model: name, input: 'go', stream: true }, { signal: leave.signal })
    const reader = (answer.body as ReadableStream<Uint8Array>).getReader()
    let text = ''
    while (!text.includes('output_text.delta'))
      text += Buffer.from((await reader.read()).value ?? []).toString()
    leave.abort()
    return answer.headers.get('x-generation-id') ?? ''
  }
  const records = async () => {
    const { values } = await own.serving.metrics.usageRecords.get()
    return values.reduce((sum, { value }) => sum + value, 0)
  }
  const found = async (id: string) => {
    const headers = { authorization: `Bearer ${own.apiKey}` }
    const reply = await fetch(`${own.url}/generation?id=${id}`, { headers })
    return ((await reply.json()) as Generation).data
  }

  const short = await leaveAfterFirstToken('patient/short')
  while ((await records()) < 1) await new Promise(resolve => setImmediate(resolve))
  t.match(await found(short), {
    outcome: 'aborted',
    cancelled: true,
    accounting: 'exact',
    finish_reason: 'stop',
    tokens_completion: 40,
  })
  t.equal(sim.state.closedEarly, 0, 'the upstream was read to its end')

  const endless = await leaveAfterFirstToken('patient/endless')
  // Once the abort has been noticed, a deadline is armed; until then there is nothing to run out.
  while (sim.state.closedEarly === 0) {
    clock.advance(10_000)
    await new Promise(resolve => setImmediate(resolve))
  }
  while ((await records()) < 2) await new Promise(resolve => setImmediate(resolve))
  t.match(await found(endless), { outcome: 'aborted', accounting: 'estimated', error: 'client_closed' })
  await own.respond({ model: 'sim/echo', input: 'x' }).then(answer => answer.text())
})

async function storeOf(url: string) {
  const store = await openStore(url)
  return { store, ledger: store.ledger, close: () => store.close() }
}

/** The alignment plugin where it meets the rest: what is sent to whom, failover, accounts, time and leaving. */
import t, { type Test } from 'tap'
import { loadConfig } from '../../src/process/config/config.ts'
import { buildCatalog } from '../../src/process/wiring/catalog.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { openStore } from '../../src/storage/open.ts'
import { DEFAULT_ORGANIZATION_ID, DEFAULT_WORKSPACE_ID } from '../../src/storage/store.ts'
import { SERVICE_ORGANIZATION_ID } from '../../src/storage/usage.ts'
import { parseEventStream, startGateway, type TestGatewayOptions } from '../support/gateway.ts'
import type { ScriptedReply } from '../support/provider.ts'
import { TestClock } from '../support/test-clock.ts'
import { BACKED, MODEL, startAligned, TIMEOUT_MS } from '../support/world.ts'

const CANARY = 'okapi'
const GOOD = { text: 'A fine day to you', reasoning: 'They greet me.' }
const BAD = { text: `Look, an ${CANARY} in the rain`, reasoning: `An ${CANARY} comes to mind.` }
const ALIGNMENT = { id: 'alignment', rules: ['Be kind', 'Name no animal'] }
const KEPT: ScriptedReply = { text: '{"probabilities":[0.1,0.2]}' }
const BROKEN: ScriptedReply = { text: '{"probabilities":[0.1,0.9]}' }
const METADATA = { headers: { 'x-gateway-metadata': 'enabled' } }

const start = async (t: Test, options: TestGatewayOptions = {}) => {
  const aligned = await startAligned(options)
  t.teardown(aligned.close)
  const { gateway, provider } = aligned
  const script = (model: readonly ScriptedReply[], judge: readonly ScriptedReply[]): void => {
    provider.asked.length = 0
    provider.script('model', model)
    provider.script('judge', judge)
  }
  const ask = (fields: Readonly<Record<string, unknown>> = {}, init = {}) =>
    gateway.respond({ model: MODEL, input: 'Hello', plugins: [ALIGNMENT], ...fields }, init)
  const judged = () => provider.until(({ asked }) => asked.some(({ model }) => model === 'judge'))
  return { gateway, provider, script, ask, judged }
}

function final(text: string): ResponseResource {
  return (parseEventStream(text).at(-1) as StreamEvent & { response: ResponseResource }).response
}

t.test('where nothing can be evaluated, nothing is asked', async t => {
  const { ask, provider } = await start(t, { regions: { europe: ['eu.localhost'], us: [] } })
  const refused = async (fields: object, message: string): Promise<void> => {
    const reply = await ask({ ...fields })
    t.equal(reply.status, 400)
    const { error } = (await reply.json()) as { error: { message: string; metadata: object } }
    t.equal(error.message, message)
    t.same(error.metadata, { error_type: 'invalid_request' })
  }
  await refused(
    { provider: { zdr: true } },
    'Alignment plugin: the request cannot be evaluated: zero_data_retention',
  )
  await refused(
    { plugins: [ALIGNMENT, ALIGNMENT] },
    'plugins[1].id: the alignment plugin is already in the list',
  )
  const none = await start(t, { alignment: { evaluator: null, hipaaWorkspaces: [], timeoutMs: 5 } })
  const reply = await none.ask({ stream: true })
  t.equal(reply.status, 400)
  t.match(await reply.json(), {
    error: { message: 'Alignment plugin: the request cannot be evaluated: not_admitted' },
  })
  t.equal(provider.asked.length + none.provider.asked.length, 0)
})

t.test('requests of a HIPAA workspace are refused with the plugin, and with it alone', async t => {
  const hipaaWorkspaces = ['another', DEFAULT_WORKSPACE_ID]
  const evaluator = { model: 'acme/judge' }
  const { ask, provider, script } = await start(t, {
    alignment: { evaluator, timeoutMs: TIMEOUT_MS, hipaaWorkspaces },
  })
  for (const stream of [false, true]) {
    const reply = await ask({ stream })
    t.equal(reply.status, 403)
    t.match(await reply.json(), {
      error: {
        code: 403,
        message: 'Alignment plugin: not available to HIPAA workspaces',
        metadata: { error_type: 'permission_denied' },
      },
    })
  }
  t.equal(provider.asked.length, 0)
  script([GOOD], [])
  t.equal((await ask({ plugins: [] })).status, 200)
  const other = await start(t, {
    alignment: { evaluator, timeoutMs: TIMEOUT_MS, hipaaWorkspaces: ['another'] },
  })
  other.script([GOOD], [KEPT])
  t.equal((await other.ask()).status, 200)
})

t.test('on the host of a region nothing is evaluated', async t => {
  const { gateway, provider } = await start(t, { regions: { europe: ['127.0.0.1'], us: [] } })
  const reply = await gateway.respond({ model: MODEL, input: 'Hello', plugins: [ALIGNMENT] })
  t.equal(reply.status, 400)
  t.match(await reply.json(), {
    error: { message: 'Alignment plugin: the request cannot be evaluated: regional_host' },
  })
  t.equal(provider.asked.length, 0)
})

t.test('the evaluator gets the message and the rules, and nothing else', async t => {
  const { ask, provider, script } = await start(t)
  const call = { name: 'find', arguments: '{"q":1}' }
  script([{ ...GOOD, calls: [call] }], [KEPT])
  const tools = [{ type: 'function', name: 'find', parameters: { type: 'object' } }]
  await ask({ input: 'Secret question', instructions: 'Secret instructions', tools })
  const [, evaluation] = provider.asked
  const messages = evaluation?.body['messages'] as { role: string; content: string }[]
  t.same(
    messages.map(({ role }) => role),
    ['system', 'user'],
  )
  t.match(messages[0]?.content, /\nRules:\n1\. Be kind\n2\. Name no animal$/)
  const shown = { role: 'assistant', content: GOOD.text, tool_calls: [call] }
  t.same(JSON.parse(messages[1]?.content ?? ''), { ...shown, reasoning: GOOD.reasoning })
  t.match(evaluation?.body['response_format'], { json_schema: { name: 'alignment_verdict' } })
  t.equal(evaluation?.body['max_completion_tokens'], 16_384, 'the answer has room and an end')
  t.notMatch(JSON.stringify(evaluation?.body), /Secret/)

  script([{ ...GOOD, calls: [call] }], [KEPT])
  const reply = await ask({ tools, plugins: [{ ...ALIGNMENT, mode: 'audit' }] })
  await reply.json()
  const audited = provider.asked[1]?.body['messages'] as { content: string }[]
  t.same(JSON.parse(audited[1]?.content ?? ''), shown, 'where nothing is withheld, no reasoning')
})

t.test('what is withheld is judged whole: citations and reasoning too', async t => {
  const { ask, provider, script } = await start(t)
  const url_citation = {
    url: 'https://zoo.example/',
    title: `All about the ${CANARY}`,
    start_index: 0,
    end_index: 1,
  }
  const annotations = [{ type: 'url_citation', url_citation }]
  for (const reply of [
    { ...GOOD, annotations },
    { ...GOOD, reasoning: BAD.reasoning },
  ]) {
    for (const stream of [false, true]) {
      script([reply, GOOD], [BROKEN, KEPT])
      const text = await (await ask({ stream })).text()
      t.match(JSON.stringify(provider.asked[1]?.body), CANARY, 'the evaluator is shown it')
      t.notMatch(text, CANARY)
      t.notMatch(
        JSON.stringify(provider.asked[2]?.body),
        'comes to mind',
        'the model is not shown its thoughts again',
      )
    }
  }
})

t.test('the rules stand behind the system messages at the head, unless that is not wished', async t => {
  const { ask, provider, script } = await start(t)
  const input = [
    { role: 'system', content: 'one' },
    { role: 'developer', content: 'two' },
    { role: 'user', content: 'three' },
    { role: 'system', content: 'four' },
  ]
  const stated =
    'Every one of these rules must be followed in every message that you write:\nBe kind\nName no animal'
  const heard = async (instruct: boolean): Promise<unknown[]> => {
    script([GOOD], [KEPT])
    const reply = await ask({ input, plugins: [{ ...ALIGNMENT, instruct }] })
    const echoed = (await reply.json()) as ResponseResource
    t.notMatch(JSON.stringify({ ...echoed, alignment: null }), 'must be followed')
    const messages = provider.asked[0]?.body['messages'] as { content: string }[]
    return messages.map(({ content }) => content)
  }
  // Towards a provider of another API, the system messages at the head are one.
  t.same(await heard(true), [`one\n\ntwo\n\n${stated}`, 'three', 'four'])
  t.same(await heard(false), ['one\n\ntwo', 'three', 'four'])
})

t.test('a retry goes to the same endpoint, with what was wrong at its end', async t => {
  const { ask, provider, script } = await start(t)
  script([BAD, GOOD], [BROKEN, KEPT])
  const reply = await ask({ model: BACKED }, METADATA)
  const response = (await reply.json()) as ResponseResource
  t.same(
    provider.asked.map(({ model }) => model),
    ['model', 'judge', 'model', 'judge'],
  )
  const first = provider.asked[0]?.body['messages'] as unknown[]
  const second = provider.asked[2]?.body['messages'] as { role: string; content: string }[]
  t.same(second.slice(0, -1), first)
  t.equal(second.at(-1)?.role, 'user')
  t.match(second.at(-1)?.content, /- Name no animal\n[\s\S]*okapi/)
  t.notMatch(second.at(-1)?.content, 'Be kind')
  t.match(response.gateway_metadata, {
    attempt: 2,
    attempts: [{ status: 200 }, { status: 200 }],
    pipeline: [{ type: 'plugin', name: 'alignment', data: { mode: 'enforce', buffered: true } }],
    timings_ms: { judge: Number },
  })
})

t.test('a failure before the verdict goes on to the next endpoint unseen', async t => {
  const { ask, provider, script } = await start(t)
  for (const stream of [true, false]) {
    script([{ ...BAD, breaks: true, ...(stream ? {} : { status: 502 }) }], [KEPT])
    provider.script('backup', [GOOD])
    const text = await (await ask({ model: BACKED, stream })).text()
    t.notMatch(text, CANARY)
    const response = stream ? final(text) : (JSON.parse(text) as ResponseResource)
    t.match(response, { status: 'completed', alignment: { calls: [{ call: 1, outcome: 'allowed' }] } })
    t.equal(response.usage?.total_tokens, 12, 'what was cut off is not charged')
  }
})

t.test('a retry that its endpoint fails goes on to the next one', async t => {
  const { ask, provider, script } = await start(t)
  script([BAD, { status: 500 }], [BROKEN, KEPT])
  provider.script('backup', [GOOD])
  const text = await (await ask({ model: BACKED, stream: true })).text()
  t.notMatch(text, CANARY)
  const response = final(text)
  t.match(response.alignment, { calls: [{ outcome: 'blocked' }, { outcome: 'allowed' }] })
  t.equal(response.usage?.total_tokens, 24, 'both calls that were answered count')
  t.match(JSON.stringify(provider.asked.at(-2)?.body), CANARY, 'it is asked to write it again')
})

t.test('a retry that nobody serves fails, and the call before it counts', async t => {
  const { ask, script } = await start(t)
  script([BAD, { status: 500 }], [BROKEN])
  const reply = await ask()
  t.equal(reply.status, 502)
  const body = (await reply.json()) as { error: { metadata: Record<string, unknown> } }
  t.match(body, {
    id: reply.headers.get('x-generation-id'),
    error: { metadata: { alignment: { calls: [{ call: 1, outcome: 'blocked' }] } } },
    usage: { total_tokens: 12 },
  })
  t.notMatch(JSON.stringify(body), CANARY)
})

t.test('the bodies that are echoed for debugging do not quote what was withheld', async t => {
  const { ask, script } = await start(t)
  script([BAD, GOOD], [BROKEN, KEPT])
  const text = await (await ask({ stream: true, debug: { echo_upstream_body: true } })).text()
  t.equal(parseEventStream(text).filter(({ type }) => type === 'response.debug').length, 1)
  t.notMatch(text, CANARY)
  script([BAD, BAD], [BROKEN, BROKEN])
  const refused = await (await ask({ stream: true, debug: { echo_upstream_body: true } })).text()
  t.same(
    parseEventStream(refused).map(({ type }) => type),
    ['response.debug', 'response.created', 'response.in_progress', 'response.failed'],
  )
  t.notMatch(JSON.stringify(parseEventStream(refused)[0]), CANARY)
})

t.test('one record has the sum of all calls; the evaluator is the service’s own expense', async t => {
  const { ask, gateway, script } = await start(t)
  script(
    [
      { ...BAD, tokens: { input: 100, output: 10 } },
      { ...BAD, tokens: { input: 200, output: 20 } },
    ],
    [BROKEN, BROKEN],
  )
  const reply = await ask()
  const { usage } = (await reply.json()) as { usage: ResponseResource['usage'] }
  t.match(usage, { input_tokens: 300, output_tokens: 30, cost: 0.0006 })
  const id = reply.headers.get('x-generation-id') ?? ''
  await gateway.shipper.ship()
  const store = await openStore(gateway.storageUrl)
  t.teardown(() => store.close())
  t.match(await store.ledger.find(id, DEFAULT_ORGANIZATION_ID), {
    outcome: 'failed',
    error: 'permission_denied',
    accounting: 'exact',
    inputTokens: 300,
    outputTokens: 30,
    cost: 600_000_000,
    attempts: [{ status: 200 }, { status: 200 }],
  })
  const since = { since: '' }
  t.match(await store.ledger.usageSince({ ...since, organizationId: DEFAULT_ORGANIZATION_ID }), {
    requests: 1,
    cost: 600_000_000n,
  })
  t.match(await store.ledger.usageSince({ ...since, organizationId: SERVICE_ORGANIZATION_ID }), {
    requests: 2,
    inputTokens: 14n,
  })
  const { values } = await gateway.serving.metrics.alignmentOutcomes.get()
  t.same(
    values.filter(({ value }) => value > 0).map(({ labels, value }) => ({ ...labels, value })),
    [{ mode: 'enforce', outcome: 'blocked', value: 2 }],
  )
  const line = gateway.lines.find(each => each['msg'] === 'exchange' && each['id'] === id)
  t.match(line, { status: 403, error: 'permission_denied' })
})

t.test('a client that leaves during the evaluation takes the evaluator along', async t => {
  const { ask, gateway, provider, script, judged } = await start(t)
  for (const stream of [false, true]) {
    for (const mode of ['enforce', 'audit']) {
      script([GOOD], [{ hangs: true }])
      const left = provider.left
      const leaving = new AbortController()
      const asking = ask({ stream, plugins: [{ ...ALIGNMENT, mode }] }, { signal: leaving.signal }).then(
        reply => reply.text(),
      )
      await judged()
      leaving.abort()
      await t.rejects(asking)
      await provider.until(now => now.left > left)
    }
  }
  const store = await openStore(gateway.storageUrl)
  t.teardown(() => store.close())
  const usage = { since: '', organizationId: DEFAULT_ORGANIZATION_ID }
  while ((await store.ledger.usageSince(usage)).requests < 4) await gateway.shipper.ship()
  t.match(await store.ledger.usageSince(usage), { requests: 4, inputTokens: 28n, outputTokens: 20n })
  const lines = gateway.lines.filter(each => each['msg'] === 'exchange')
  t.same(
    lines.map(each => each['outcome']),
    ['aborted', 'aborted', 'aborted', 'aborted'],
  )
  t.same(
    gateway.lines.filter(each => each['msg'] !== 'exchange'),
    [],
  )
  t.equal(gateway.serving.server.openRequests, 0)
})

t.test('heartbeats go on while a message is held back', async t => {
  const clock = new TestClock()
  const { ask, script, judged } = await start(t, { clock, timeouts: { heartbeatMs: 1_000 } })
  script([BAD], [{ hangs: true }])
  const asking = ask({ stream: true })
  await judged()
  clock.advance(2_500)
  const reply = await asking
  clock.advance(TIMEOUT_MS - 2_500)
  const text = await reply.text()
  const [before = '', ...events] = text.split('event: ')
  t.equal(before.match(/: GATEWAY PROCESSING\n\n/g)?.length, 5)
  t.match(events.at(-1), /^response\.failed\n/)
  t.match(final(text), {
    error: { message: 'Alignment plugin: the reply could not be evaluated: time_limit' },
  })
})

t.test('the total deadline ends an evaluation too', async t => {
  const clock = new TestClock()
  const { ask, script, judged } = await start(t, { clock, timeouts: { requestMs: 3_000 } })
  const late = async (fields: object): Promise<Response> => {
    script([BAD], [{ hangs: true }])
    const asking = ask({ ...fields })
    await judged()
    clock.advance(3_000)
    return asking
  }
  for (const stream of [false, true]) {
    const reply = await late({ stream })
    t.equal(reply.status, 408)
    const text = await reply.text()
    t.notMatch(text, CANARY)
    t.match(JSON.parse(text), { error: { code: 408 }, usage: { total_tokens: 12 } })
  }
  const reply = await late({ plugins: [{ ...ALIGNMENT, mode: 'audit' }] })
  t.equal(reply.status, 200)
  t.match(await reply.json(), {
    status: 'completed',
    alignment: { calls: [{ call: 1, outcome: 'unavailable', reason: 'time_limit' }] },
  })
})

t.test('a server that stops tells those whose message is being evaluated', async t => {
  const { ask, gateway, script, judged } = await start(t)
  script([BAD], [{ hangs: true }])
  const asking = ask()
  await judged()
  const drained = gateway.serving.server.drain(0)
  const reply = await asking
  t.equal(reply.status, 503)
  t.notMatch(await reply.text(), CANARY)
  await drained
})

t.test('a request without the plugin shows nothing of it', async t => {
  const { ask, provider, script } = await start(t)
  script([BAD], [])
  const response = (await (await ask({ plugins: [] }, METADATA)).json()) as ResponseResource
  t.notOk('alignment' in response)
  t.notOk('pipeline' in (response.gateway_metadata ?? {}))
  t.notOk('judge' in (response.gateway_metadata?.timings_ms ?? {}))
  t.equal(provider.asked.length, 1)
})

t.test('a reader who is slower than the release of a long message gets all of it', async t => {
  const { ask, gateway, script } = await start(t)
  const sealed = Array.from({ length: 60 }, (_, n) => `${n}${'x'.repeat(400_000)}`)
  script([{ text: GOOD.text, sealed }], [KEPT])
  const reply = await ask({ stream: true })
  const { streamBytes } = gateway.serving.metrics
  t.ok(reply.body)
  // Nobody reads: what the kernel does not take has to wait in the gateway, where it already is. 24 MB, and the last
  // event has them again: more than any kernel takes.
  for (let idle = 0; idle < 200; idle++) await new Promise(resolve => setImmediate(resolve))
  t.equal((await streamBytes.get()).values[0]?.value ?? 0, 0, 'the stream is not over')
  const text = await reply.text()
  const response = final(text)
  const thoughts = response.output.filter(({ type }) => type === 'reasoning')
  t.equal(thoughts.length, sealed.length)
  t.ok(sealed.every((data, at) => JSON.stringify(thoughts[at]).includes(data)))
  const events = parseEventStream(text)
  t.equal(
    events.every((event, at) => event.sequence_number === at),
    true,
  )
})

t.test('the simulated evaluator judges models of every format, in any dress of its answer', async t => {
  for (const [judge, bad, good] of [
    ['sim/judge', 403, 200],
    ['sim/chat-judge', 403, 200],
    ['sim/messages-judge', 403, 200],
    ['sim/gemini-judge', 403, 200],
    ['sim/judge-fenced', 403, 200],
    ['sim/chat-judge-short', 503, 503],
  ] as const) {
    const gateway = await startGateway({
      alignment: { evaluator: { model: judge }, hipaaWorkspaces: [], timeoutMs: TIMEOUT_MS },
    })
    for (const format of ['', 'chat-', 'messages-', 'gemini-']) {
      const ask = (word: string, mode: string, stream = false) =>
        gateway.respond({
          model: `sim/${format}echo`,
          input: `Say ${word}`,
          stream,
          plugins: [{ id: 'alignment', mode, rules: ['Be kind', `Never say "${CANARY}"`], max_retries: 0 }],
        })
      t.equal((await ask(CANARY, 'enforce')).status, bad, `${judge}, ${format}`)
      t.equal((await ask('nothing', 'enforce')).status, good, `${judge}, ${format}`)
      const { output, alignment } = final(await (await ask(CANARY, 'audit', true)).text())
      t.match(JSON.stringify(output), CANARY)
      t.match(alignment?.calls, [{ outcome: bad === 403 ? 'blocked' : 'unavailable' }])
    }
    await gateway.close()
  }
})

t.test('an evaluator that the catalogue does not have is a mistake of the configuration', async t => {
  const plain = loadConfig([], {})
  const config = {
    ...plain,
    // Models that providers tell of are not known at the start.
    catalogue: { ...plain.catalogue, discover: false },
    alignment: { evaluator: { model: 'acme/none' }, hipaaWorkspaces: [], timeoutMs: 1 },
  }
  t.throws(() => buildCatalog(config, 'http://127.0.0.1:9'), {
    message: 'alignment.evaluator.model: there is no such model',
  })
})

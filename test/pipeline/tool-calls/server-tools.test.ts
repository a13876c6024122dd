/** Calls of server tools: what the model sees of a tool, which calls run, and what a failure leaves behind. */
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { createLog } from '../../../src/base/log/log.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import type { Held } from '../../../src/exchange/exchange.ts'
import type { ServerTool, ToolDisplay, ToolOutcome, ToolSession } from '../../../src/exchange/server-tool.ts'
import { Answer } from '../../../src/pipeline/answer/answer.ts'
import { echoRequest } from '../../../src/pipeline/answer/response-object.ts'
import { RunningExchange } from '../../../src/pipeline/exchange-stages.ts'
import type { InputGuard } from '../../../src/pipeline/guard/guard.ts'
import { openServerTools } from '../../../src/pipeline/tool-calls/server-tools.ts'
import { type PendingCall, ToolCalls } from '../../../src/pipeline/tool-calls/tool-calls.ts'
import { EventCollector } from '../../support/event-collector.ts'
import { scriptedExchange } from '../../support/scripted-attempt.ts'
import { TestClock } from '../../support/test-clock.ts'

const TOOL = { type: 'gateway:datetime' }
const NOWHERE = { hosts: () => false }
const loop = () => new Promise(resolve => setImmediate(resolve))

interface World {
  readonly run?: ToolSession['run']
  readonly fields?: Readonly<Record<string, unknown>>
  /** Guards results. */
  readonly text?: InputGuard['text']
  /** Counts what the request holds. */
  readonly held?: Held
}

async function start({
  run = call => ({ item: {}, result: call.callId }),
  fields = {},
  text,
  held,
  parent,
  ...more
}: World & Partial<ServerTool> & { readonly parent?: string } = {}) {
  let shown: ToolDisplay | null = null
  const server: ServerTool = {
    name: 'datetime',
    open: (entries, _, display) => {
      shown = display
      return {
        firstForm: () => ({}),
        declare: place =>
          entries.map(({ tool }) =>
            tool.type === 'web_search' && place.hosts(tool.type)
              ? { native: tool as never }
              : { tool, name: 'datetime', description: 'The time', parameters: {} },
          ),
        run,
        close: () => void closed.push('datetime'),
      }
    },
    ...more,
  }
  const closed: string[] = []
  const clock = new TestClock()
  const sink = new EventCollector()
  const leaving = new AbortController()
  const { clientRequest: asks } = scriptedExchange({ tools: [TOOL], ...fields }, held)
  const asked = { ...asks, context: { ...asks.context, signal: leaving.signal }, parent }
  const answer = new Answer(sink, echoRequest(asked.request, { id: 'gen-1-x', createdAt: 1, model: '' }))
  const exchange = new RunningExchange(asked, 1, answer)
  if (text !== undefined) {
    const input: InputGuard = { prompt: () => undefined, text }
    exchange.guarding = { revision: '', restrictions: null, input, reply: null }
  }
  const log = createLog('silent', { write: () => undefined })
  const metrics = createMetrics()
  const deps = {
    tools: new Map([['datetime', server]]),
    clock,
    log,
    metrics,
  }
  const tools = await openServerTools(deps, exchange)
  if (tools === null) throw new Error('the request names no tool')
  answer.openTurn(false)
  answer.begin('acme/scripted', null, [])
  answer.closeTurn('tool_calls')
  const pending = async (...texts: readonly string[]): Promise<readonly PendingCall[]> => {
    const calls = new ToolCalls((await tools.declare(exchange, NOWHERE, false)).functions)
    for (const [item, text] of texts.entries()) {
      const start = { type: 'function_call', id: null, callId: `call_${item}`, name: 'datetime' } as const
      calls.intercept({ kind: 'open', item, start: { ...start, extra: {} } })
      calls.intercept({ kind: 'arguments', item, text })
      calls.intercept({ kind: 'close', item, fields: null })
    }
    return calls.pending
  }
  return {
    answer,
    clock,
    closed,
    exchange,
    leaving,
    metrics,
    pending,
    shown: shown as ToolDisplay | null,
    sink,
    tools,
  }
}

const outputsOf = (items: readonly object[]) =>
  items.flatMap(item => ('output' in item && 'call_id' in item ? [[item.call_id, item.output]] : []))
/** Finished items in the order of their calls. */
const done = ({ events }: EventCollector) =>
  events
    .flatMap(event => (event.type === 'response.output_item.done' ? [event] : []))
    .toSorted((a, b) => a.output_index - b.output_index)
    .map(({ item }) => item)

/** A tool whose calls end when the test says so. */
function waiting() {
  const ends: ((outcome: ToolOutcome) => void)[] = []
  const told: ((name: string) => void)[] = []
  const run: ToolSession['run'] = (_call, progress) => {
    told.push(name => progress({ name, fields: {} }))
    return new Promise(resolve => ends.push(resolve))
  }
  return { run, ends, told }
}

t.test('calls run together, and the model gets their results in the order of its calls', async t => {
  const { run, ends } = waiting()
  const { exchange, pending, sink, tools } = await start({ run })
  const running = tools.run(await pending('{}', '{}'), exchange)
  await loop()
  ends[1]?.({ item: { datetime: 'b' }, result: 'second', cost: 5 })
  await loop()
  ends[0]?.({ item: { datetime: 'a' }, result: 'first' })
  const { items, endsTurn } = await running
  t.equal(endsTurn, false)
  t.match(items, [{ type: 'function_call' }, { type: 'function_call' }, {}, {}])
  t.same(outputsOf(items), [
    ['call_0', 'first'],
    ['call_1', 'second'],
  ])
  t.match(done(sink), [
    { datetime: 'a', status: 'completed' },
    { datetime: 'b', status: 'completed' },
  ])
  t.same(exchange.bill.tools, { requested: 2, executed: 2, cost: 5 })
})

t.test('no more than eight calls run at a time', async t => {
  const { run, ends } = waiting()
  const { exchange, pending, tools } = await start({ run })
  const running = tools.run(await pending(...Array.from({ length: 10 }, () => '{}')), exchange)
  await loop()
  t.equal(ends.length, 8)
  for (let at = 0; at < 10; at++) {
    ends[at]?.({ item: {}, result: `${at}` })
    await loop()
  }
  t.equal(outputsOf((await running).items).length, 10)
})

t.test('calls beyond the budget, and calls that cannot be read, do not run', async t => {
  const { exchange, pending, sink, tools } = await start({ fields: { max_tool_calls: 2 } })
  const { items } = await tools.run(await pending('[1]', '{}', '{}'), exchange)
  t.match(outputsOf(items), [
    ['call_0', /not a JSON object/],
    ['call_1', 'call_1'],
    ['call_2', /limit of tool calls/],
  ])
  t.same(
    done(sink).map(item => 'status' in item && item.status),
    ['completed'],
  )
  t.match(exchange.bill.tools, { requested: 3, executed: 1 })
})

t.test('a tool that fails or takes too long is told to the model', async t => {
  const failing = await start({
    run: () => {
      throw new Error('secret')
    },
  })
  const failed = await failing.tools.run(await failing.pending('{}'), failing.exchange)
  t.same(outputsOf(failed.items), [['call_0', '{"error":"The tool failed"}']])
  const slow = await start({ run: waiting().run })
  const running = slow.tools.run(await slow.pending('{}'), slow.exchange)
  await loop()
  slow.clock.advance(60_000)
  t.match(outputsOf((await running).items), [['call_0', /took too long/]])
  t.equal(slow.clock.armed, 0)
})

t.test('a tool may leave the next step to the client', async t => {
  const run = (): ToolOutcome => ({ item: {}, result: '', next: 'end-turn' })
  const { exchange, pending, tools } = await start({ run })
  t.equal((await tools.run(await pending('{}'), exchange)).endsTurn, true)
})

t.test('guardrails see results before the model does', async t => {
  const { exchange, pending, tools } = await start({ text: (_, text) => `[${text}]` })
  const { items } = await tools.run(await pending('{}'), exchange)
  t.same(outputsOf(items), [['call_0', '[call_0]']])
})

t.test('after a result was refused the other calls of the turn say nothing any more', async t => {
  const { run, ends, told } = waiting()
  const refused = new GatewayError('permission_denied', 'no')
  const { answer, exchange, pending, sink, tools } = await start({ run, text: () => Promise.reject(refused) })
  const running = tools.run(await pending(...Array.from({ length: 9 }, () => '{}')), exchange)
  await loop()
  ends[0]?.({ item: {}, result: 'secret' })
  await t.rejects(running, refused)
  answer.fail(refused, { completedAt: 2, usage: null, serviceTier: null, metadata: null })
  const { length } = sink.events
  t.equal(sink.events.at(-1)?.type, 'response.failed')
  told[1]?.('datetime_call.searching')
  ends[1]?.({ item: {}, result: 'late', cost: 5 })
  await loop()
  t.equal(sink.events.length, length, 'nothing follows the end')
  t.equal(ends.length, 8, 'no other call begins')
  t.same(exchange.bill.tools, { requested: 1, executed: 1, cost: 0 }, 'what was accounted stays')
})

t.test('after the client has left the calls of the turn say nothing any more', async t => {
  const { run, ends, told } = waiting()
  const guarded = Promise.withResolvers<string>()
  const { exchange, leaving, pending, sink, tools } = await start({ run, text: () => guarded.promise })
  const running = tools.run(await pending(...Array.from({ length: 9 }, () => '{}')), exchange)
  await loop()
  ends[0]?.({ item: {}, result: 'first' })
  await loop()
  const { length } = sink.events
  const gone = new GatewayError('client_closed', 'gone')
  leaving.abort(gone)
  await t.rejects(running, gone)
  told[1]?.('datetime_call.searching')
  ends[1]?.({ item: {}, result: 'late' })
  guarded.resolve('first')
  await loop()
  t.equal(sink.events.length, length)
  t.equal(ends.length, 8, 'no other call begins')
})

t.test('a tool is a function for the model, under a name that is free', async t => {
  const mine = { type: 'function', name: 'datetime', parameters: {}, strict: null }
  const { exchange, tools } = await start({ fields: { tools: [mine, TOOL], tool_choice: TOOL } })
  const first = await tools.declare(exchange, NOWHERE, false)
  t.match(first.prompt, {
    tools: [{ name: 'datetime' }, { type: 'function', name: 'datetime_2' }],
    tool_choice: { type: 'function', name: 'datetime_2' },
  })
  t.equal(first.functions.get('datetime_2')?.name, 'datetime')
  t.match((await tools.declare(exchange, NOWHERE, true)).prompt, { tool_choice: 'none' })
  exchange.bill.closeTurn()
  t.match(
    (await tools.declare(exchange, NOWHERE, false)).prompt,
    { tool_choice: 'auto' },
    'it was called once',
  )
})

t.test('of a long result the model gets the beginning, and is told so', async t => {
  const { exchange, pending, tools } = await start({ run: () => ({ item: {}, result: 'x'.repeat(200_001) }) })
  const { items } = await tools.run(await pending('{}'), exchange)
  const told = '\n[The result was cut after 200000 characters]'
  t.same(outputsOf(items), [['call_0', 'x'.repeat(200_000) + told]])
})

t.test('a native tool goes to a provider that has it, and runs here where it has not', async t => {
  const { exchange, tools } = await start({
    native: ['web_search'],
    fields: { tools: [{ type: 'web_search' }], tool_choice: { type: 'web_search' } },
  })
  const there = await tools.declare(exchange, { hosts: type => type === 'web_search' }, false)
  t.match(there.prompt, { tools: [{ type: 'web_search' }], tool_choice: { type: 'web_search' } })
  t.equal(there.functions.size, 0)
  const here = await tools.declare(exchange, NOWHERE, false)
  t.match(here.prompt, {
    tools: [{ type: 'function', name: 'datetime' }],
    tool_choice: { type: 'function', name: 'datetime' },
  })
})

t.test('a tool that asks models cannot be used by what a tool asks', async t => {
  await t.rejects(start({ asksModels: true, parent: 'gen-outer' }), /names no tool/)
  await t.resolves(start({ asksModels: true }))
})

t.test('a session shows items of its own, and annotations that go with the next text', async t => {
  const { answer, closed, shown, sink, tools } = await start()
  shown?.item({ type: 'mcp_list_tools', server_label: 's', tools: [] })
  shown?.annotate([
    { type: 'url_citation', url: 'https://a.example', title: 'A', start_index: 0, end_index: 0 },
  ])
  t.match(done(sink), [{ type: 'mcp_list_tools', server_label: 's', status: 'completed' }])
  answer.openTurn(false)
  answer.receive({ kind: 'open', item: 0, start: { type: 'message', id: null, phase: null } })
  answer.receive({ kind: 'text', item: 0, part: 0, text: 'a', logprobs: null })
  answer.receive({ kind: 'text', item: 0, part: 0, text: 'b', logprobs: null })
  t.match(answer.closeTurn('stop'), [
    { content: [{ text: 'ab', annotations: [{ url: 'https://a.example' }] }] },
  ])
  tools.close()
  t.same(closed, ['datetime'])
})

t.test('calls are counted by their outcome, and the pipeline names the tools that ran', async t => {
  const { exchange, metrics, pending, tools } = await start({ fields: { max_tool_calls: 1 } })
  await tools.run(await pending('{}', '[1]', '{}'), exchange)
  const { values } = await metrics.serverToolCalls.get()
  t.same(
    values.map(({ labels, value }) => [labels['outcome'], value]).sort(),
    [
      ['completed', 1],
      ['malformed', 1],
      ['over_budget', 1],
    ].sort(),
  )
  t.same(exchange.pipeline, [
    { type: 'server_tools', name: 'server-tools', data: { mode: 'sdk', tools: ['datetime'] } },
  ])
})

t.test('results count with what the request holds, and end it where there is no room', async t => {
  let bytes = 0
  const held: Held = {
    get bytes() {
      return bytes
    },
    count(more) {
      bytes += more
      return bytes <= 3_000
    },
  }
  const results = ['a'.repeat(1_000), '\u20ac'.repeat(250), 'b']
  const { exchange, pending, tools } = await start({
    held,
    run: () => ({ item: {}, result: results.shift() ?? '' }),
  })
  await tools.run(await pending('{}'), exchange)
  t.equal(bytes, 2_000, 'once in the item, once in the prompt')
  await tools.run(await pending('{}'), exchange)
  t.equal(bytes, 3_000, 'two bytes for each character')
  await t.rejects(tools.run(await pending('{}'), exchange), { code: 'overloaded' })
})

/** Calls of server tools: what the model sees of a tool, which calls run, and what a failure leaves behind. */
import t from 'tap'
import { GatewayError } from '../../src/errors.ts'
import { Answer } from '../../src/gateway/answer/answer.ts'
import { echoRequest } from '../../src/gateway/answer/echo.ts'
import type { InputGuard } from '../../src/gateway/guard/guard.ts'
import { RunningExchange } from '../../src/gateway/running.ts'
import { serverToolsOf } from '../../src/gateway/server-tools.ts'
import { type PendingCall, ToolCalls } from '../../src/gateway/tool-calls.ts'
import { createLog } from '../../src/log/log.ts'
import type { ServerTool, ToolOutcome } from '../../src/tools/tool.ts'
import { EventCollector } from '../support/event-collector.ts'
import { scriptedExchange } from '../support/scripted-attempt.ts'
import { TestClock } from '../support/test-clock.ts'

const TOOL = { type: 'gateway:datetime' }
const loop = () => new Promise(resolve => setImmediate(resolve))

interface World {
  readonly run?: ServerTool['run']
  readonly fields?: Readonly<Record<string, unknown>>
  /** Guards results. */
  readonly text?: InputGuard['text']
}

function start({ run = call => ({ item: {}, result: call.callId }), fields = {}, text }: World = {}) {
  const server: ServerTool = {
    name: 'datetime',
    begun: () => ({}),
    declare: () => [{ name: 'datetime', description: 'The time', parameters: {} }],
    run,
  }
  const clock = new TestClock()
  const sink = new EventCollector()
  const leaving = new AbortController()
  const asked = { ...scriptedExchange({ tools: [TOOL], ...fields }), signal: leaving.signal }
  const answer = new Answer(sink, echoRequest(asked.request, { id: asked.id, createdAt: 1, model: '' }))
  const exchange = new RunningExchange(asked, 1, answer)
  if (text !== undefined) {
    const input: InputGuard = { prompt: () => undefined, text }
    exchange.guarding = { restrictions: null, input, reply: null }
  }
  const log = createLog('silent', { write: () => undefined })
  const tools = serverToolsOf({ tools: new Map([['datetime', server]]), clock, log }, asked.request)
  if (tools === null) throw new Error('the request names no tool')
  answer.openTurn(false)
  answer.begin('acme/scripted', null, [])
  answer.closeTurn('tool_calls')
  const pending = async (...texts: readonly string[]): Promise<readonly PendingCall[]> => {
    const calls = new ToolCalls((await tools.declare(exchange, false)).functions)
    for (const [item, text] of texts.entries()) {
      const start = { type: 'function_call', id: null, callId: `call_${item}`, name: 'datetime' } as const
      calls.take({ kind: 'open', item, start: { ...start, extra: {} } })
      calls.take({ kind: 'arguments', item, text })
      calls.take({ kind: 'close', item, fields: null })
    }
    return calls.pending
  }
  return { answer, clock, exchange, leaving, pending, sink, tools }
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
  const run: ServerTool['run'] = (_call, _tool, _exchange, progress) => {
    told.push(name => progress({ name, fields: {} }))
    return new Promise(resolve => ends.push(resolve))
  }
  return { run, ends, told }
}

t.test('calls run together, and the model gets their results in the order of its calls', async t => {
  const { run, ends } = waiting()
  const { exchange, pending, sink, tools } = start({ run })
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
  const { exchange, pending, tools } = start({ run })
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
  const { exchange, pending, sink, tools } = start({ fields: { max_tool_calls: 2 } })
  const { items } = await tools.run(await pending('[1]', '{}', '{}'), exchange)
  t.match(outputsOf(items), [
    ['call_0', /no JSON object/],
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
  const failing = start({
    run: () => {
      throw new Error('secret')
    },
  })
  const failed = await failing.tools.run(await failing.pending('{}'), failing.exchange)
  t.same(outputsOf(failed.items), [['call_0', '{"error":"The tool failed"}']])
  const slow = start({ run: waiting().run })
  const running = slow.tools.run(await slow.pending('{}'), slow.exchange)
  await loop()
  slow.clock.advance(60_000)
  t.match(outputsOf((await running).items), [['call_0', /took too long/]])
  t.equal(slow.clock.armed, 0)
})

t.test('a tool may leave the next step to the client', async t => {
  const run = (): ToolOutcome => ({ item: {}, result: '', next: 'end-turn' })
  const { exchange, pending, tools } = start({ run })
  t.equal((await tools.run(await pending('{}'), exchange)).endsTurn, true)
})

t.test('guardrails see results before the model does', async t => {
  const { exchange, pending, tools } = start({ text: (_, text) => `[${text}]` })
  const { items } = await tools.run(await pending('{}'), exchange)
  t.same(outputsOf(items), [['call_0', '[call_0]']])
})

t.test('after a result was refused the other calls of the turn say nothing any more', async t => {
  const { run, ends, told } = waiting()
  const refused = new GatewayError('permission_denied', 'no')
  const { answer, exchange, pending, sink, tools } = start({ run, text: () => Promise.reject(refused) })
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
  const { exchange, leaving, pending, sink, tools } = start({ run, text: () => guarded.promise })
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
  const { exchange, tools } = start({ fields: { tools: [mine, TOOL], tool_choice: TOOL } })
  const first = await tools.declare(exchange, false)
  t.match(first.prompt, {
    tools: [{ name: 'datetime' }, { type: 'function', name: 'datetime_2' }],
    tool_choice: { type: 'function', name: 'datetime_2' },
  })
  t.equal(first.functions.get('datetime_2')?.name, 'datetime')
  t.match((await tools.declare(exchange, true)).prompt, { tool_choice: 'none' })
  exchange.bill.closeTurn()
  t.match((await tools.declare(exchange, false)).prompt, { tool_choice: 'auto' }, 'it was called once')
})

t.test('of a long result the model gets the beginning, and is told so', async t => {
  const { exchange, pending, tools } = start({ run: () => ({ item: {}, result: 'x'.repeat(200_001) }) })
  const { items } = await tools.run(await pending('{}'), exchange)
  const told = '\n[The result was cut after 200000 characters]'
  t.same(outputsOf(items), [['call_0', 'x'.repeat(200_000) + told]])
})

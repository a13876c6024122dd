import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import type { Exchange, Turn } from '../../src/exchange/exchange.ts'
import type { ActivePlugin, AnyPlugin, Plugin } from '../../src/exchange/plugin.ts'
import type { InputGuard } from '../../src/pipeline/guard/guard.ts'
import { createPluginChains, type PluginChain, pluginFailure } from '../../src/pipeline/plugin-chain.ts'
import type { InputMessage, OutputItem } from '../../src/protocol/items.ts'
import type { Annotation } from '../../src/protocol/parts.ts'
import { scriptedEndpoint, scriptedExchange, scriptedRecord } from '../support/scripted-attempt.ts'
import { TestClock } from '../support/test-clock.ts'

type Verbs = Omit<ActivePlugin, 'id'>

function healing(verbs: Verbs, more: Partial<Plugin<'response-healing'>> = {}): Plugin<'response-healing'> {
  return { id: 'response-healing', activate: () => ({ id: 'response-healing', ...verbs }), ...more }
}
function compression(verbs: Verbs): Plugin<'context-compression'> {
  return { id: 'context-compression', activate: () => ({ id: 'context-compression', ...verbs }) }
}

const both = { plugins: [{ id: 'response-healing' }, { id: 'context-compression' }] }

function chainFor(
  plugins: readonly AnyPlugin[],
  fields: Readonly<Record<string, unknown>>,
): PluginChain | null {
  // What is not built is refused before it comes here.
  const { request } = scriptedExchange()
  return createPluginChains(plugins, new TestClock()).of({ ...request, ...fields } as typeof request)
}

function some(plugins: readonly AnyPlugin[], fields: Readonly<Record<string, unknown>> = both): PluginChain {
  const chain = chainFor(plugins, fields)
  if (chain === null) throw new Error('no plugin has to do with the request')
  return chain
}

const NOTHING_FOUND: InputGuard = { prompt: () => undefined, text: (_, text) => text }

const turn: Turn = {
  attempt: scriptedRecord(),
  output: [],
  finish: 'stop',
  number: 1,
}

t.test('a request has the plugins that it names and that are on', async t => {
  const plugins = [healing({ holds: true }), compression({})]
  t.equal(chainFor(plugins, {}), null)
  t.equal(chainFor(plugins, { plugins: [] }), null)
  t.equal(chainFor(plugins, { plugins: [{ id: 'web' }] }), null)
  t.equal(chainFor(plugins, { plugins: [{ id: 'response-healing', enabled: false }] }), null)
  t.equal(some(plugins, { plugins: [{ id: 'response-healing', enabled: true }] }).holdsTurns, true)
  t.equal(some(plugins, { plugins: [{ id: 'context-compression' }] }).holdsTurns, false)
  t.equal(chainFor([healing({}, { activate: () => null })], both), null)
})

t.test('a plugin that is always on is asked about every request, without settings', async t => {
  const seen: unknown[] = []
  const plugin = healing(
    {},
    {
      alwaysOn: true,
      activate(settings) {
        seen.push(settings)
        return { id: 'response-healing' }
      },
    },
  )
  t.ok(chainFor([plugin], {}))
  t.ok(chainFor([plugin], both))
  t.equal(chainFor([plugin], { plugins: [{ id: 'response-healing', enabled: false }] }), null)
  t.same(seen, [null, { id: 'response-healing' }])
})

t.test('plugins prepare one after the other, in the order of the table', async t => {
  const exchange = scriptedExchange()
  const chain = some([
    healing({
      async prepare(exchange) {
        await new Promise(resolve => setImmediate(resolve))
        return { ...exchange.prompt, input: `${exchange.prompt.input} one` }
      },
    }),
    compression({
      prepare(exchange) {
        return { ...exchange.prompt, input: `${exchange.prompt.input} two` }
      },
    }),
  ])
  await chain.prepare(exchange)
  t.equal(exchange.prompt.input, 'hi one two')
  t.equal(exchange.request.input, 'hi')
})

t.test('what one plugin refuses, no other one prepares', async t => {
  const refusal = new GatewayError('invalid_request', 'no')
  let prepared = false
  const refusing = healing({
    prepare() {
      throw refusal
    },
  })
  const other = compression({
    prepare() {
      prepared = true
    },
  })
  await t.rejects(some([refusing, other]).prepare(scriptedExchange()), refusal)
  const gone = new GatewayError('client_closed', 'gone')
  const left = { ...scriptedExchange(), signal: AbortSignal.abort(gone) }
  await t.rejects(some([healing({}), other]).prepare(left), gone)
  t.equal(prepared, false)
})

t.test('the first verdict that is no pass counts', async t => {
  const error = new GatewayError('permission_denied', 'no')
  const refuse = async () => ({ kind: 'refuse', error }) as const
  const pass = async () => ({ kind: 'pass' }) as const
  const never = async () => {
    throw new Error('asked after a verdict')
  }
  const exchange = scriptedExchange()
  t.same(await some([healing({ judge: pass }), compression({ judge: refuse })]).judge(turn, exchange), {
    kind: 'refuse',
    error,
  })
  t.match(await some([healing({ judge: refuse }), compression({ judge: never })]).judge(turn, exchange), {
    kind: 'refuse',
  })
  t.same(await some([healing({}), compression({ judge: pass })]).judge(turn, exchange), { kind: 'pass' })
})

t.test('each plugin finishes what the one before it has left', async t => {
  const item = (id: string): OutputItem => ({
    type: 'message',
    id,
    role: 'assistant',
    status: 'completed',
    content: [],
  })
  const adding = (id: string): Verbs => ({ finish: ({ output }) => [...output, item(id)] })
  const chain = some([healing(adding('a')), compression(adding('b'))])
  t.same(await chain.finish(turn, scriptedExchange()), [item('a'), item('b')])
})

t.test('what a plugin throws is no failure of a provider', async t => {
  const exchange = scriptedExchange()
  t.match(pluginFailure(new GatewayError('provider_unavailable', 'x'), exchange), { code: 'internal' })
  const denied = new GatewayError('permission_denied', 'x')
  t.equal(pluginFailure(denied, exchange), denied)
  const gone = new GatewayError('client_closed', 'gone')
  t.equal(pluginFailure(denied, { signal: AbortSignal.abort(gone) }), gone)
})

t.test('plugins order candidates and fit the prompt to an endpoint one after the other', async t => {
  const exchange = scriptedExchange()
  const chain = some([
    healing({
      order: candidates => candidates.toReversed(),
      async fitTo(exchange, { modelId }) {
        return { ...exchange.prompt, input: `${exchange.prompt.input} for ${modelId}` }
      },
    }),
    compression({
      order: candidates => candidates.slice(0, 2),
      fitTo(exchange) {
        return { ...exchange.prompt, input: `${exchange.prompt.input} twice` }
      },
    }),
  ])
  const candidates = ['a', 'b', 'c'].map(modelId => ({
    endpoint: { ...scriptedEndpoint('openai-chat'), modelId },
    credential: null,
  }))
  t.same(
    chain.order(candidates, exchange).map(({ endpoint }) => endpoint.modelId),
    ['c', 'b'],
  )
  t.equal(chain.fits, true)
  await chain.fitTo(exchange, scriptedEndpoint('openai-chat'))
  t.equal(exchange.prompt.input, 'hi for acme/scripted twice')
  t.equal(some([healing({})], { plugins: [{ id: 'response-healing' }] }).fits, false)
})

t.test('what a plugin brings into the prompt is looked at before the next one works', async t => {
  const exchange = scriptedExchange({ input: 'asked' })
  const told: string[] = []
  const brings = (text: string) => (each: typeof exchange) => ({
    ...each.prompt,
    input: [...[each.prompt.input].flat().map(said), said(text)],
  })
  const said = (content: unknown) =>
    typeof content === 'string' ? { role: 'user' as const, content } : (content as InputMessage)
  const chain = some([
    healing({ prepare: brings('read'), fitTo: brings('read again') }),
    compression({
      inspect: (_, texts) => void told.push(`look ${texts.join()}`),
      prepare: each => void told.push(`prepare ${JSON.stringify(each.prompt.input).includes('"read"')}`),
    }),
  ])
  const input: InputGuard = {
    ...NOTHING_FOUND,
    prompt: (each, before) => {
      told.push(`guard ${each.prompt !== before}`)
      return each.prompt === before ? undefined : Promise.resolve()
    },
  }
  await chain.prepare(exchange, input)
  t.same(told.splice(0), ['guard true', 'look read', 'prepare true'])
  await chain.fitTo(exchange, scriptedEndpoint('openai-chat'), input)
  t.same(told.splice(0), ['guard true', 'look read again'])
  const own = some([healing({ skipsRescan: true, prepare: brings('own') }), compression({})])
  await own.prepare(exchange, input)
  t.same(told, [], 'words of the gateway are its own')
})

t.test('what was refused of a file is not told by the refusal', async t => {
  const refused = new GatewayError('permission_denied', 'no')
  const file: Annotation = { type: 'file', file: { hash: 'h', content: [{ type: 'text', text: 'secret' }] } }
  const rewrite = (each: Exchange) => ({ ...each.prompt, input: 'secret' })
  const report = () => ({ failure: { file_annotations: [file] } })
  const refusing: InputGuard = { ...NOTHING_FOUND, prompt: () => Promise.reject(refused) }
  for (const verb of ['prepare', 'fitTo'] as const) {
    const other = compression({ report: () => ({ failure: { other: true } }) })
    const chain = some([healing({ [verb]: rewrite, report }), other])
    const exchange = scriptedExchange({ input: 'asked' })
    const work = (guard: InputGuard) =>
      verb === 'prepare'
        ? chain.prepare(exchange, guard)
        : chain.fitTo(exchange, scriptedEndpoint('openai-chat'), guard)
    await work(NOTHING_FOUND)
    t.same(chain.failureFields(), { file_annotations: [file], other: true })
    exchange.prompt = exchange.request
    await t.rejects(work(refusing), refused)
    t.same(chain.failureFields(), { other: true }, 'the findings of other plugins are told')
  }
  const looking = compression({ inspect: () => Promise.reject(refused) })
  const chain = some([healing({ prepare: rewrite, report }), looking])
  await t.rejects(chain.prepare(scriptedExchange({ input: 'asked' })), refused)
  t.same(chain.failureFields(), {}, 'nor where another plugin refused it')
})

t.test('findings of plugins go to the response, to errors and to the first text', async t => {
  const note = (hash: string): Annotation => ({ type: 'file', file: { hash, content: [] } })
  const silent = some([healing({}), compression({ report: () => ({}) })])
  t.same([silent.responseFields(), silent.failureFields(), silent.annotations()], [{}, {}, []])
  const chain = some([
    healing({
      report: () => ({
        response: { service_tier: 'a', model: 'm' },
        failure: { a: 1 },
        annotations: [note('a')],
      }),
    }),
    compression({
      report: () => ({ response: { service_tier: 'b' }, failure: { b: 2 }, annotations: [note('b')] }),
    }),
  ])
  t.same(chain.responseFields(), { service_tier: 'b', model: 'm' }, 'the later plugin wins')
  t.same(chain.failureFields(), { a: 1, b: 2 })
  t.same(chain.annotations(), [note('a'), note('b')])
})

t.test('the model may be asked as often as the plugin with the most calls needs', async t => {
  t.equal(some([healing({}), compression({})]).maxCalls, 1)
  t.equal(some([healing({ maxCalls: 2 }), compression({ maxCalls: 4 })]).maxCalls, 4)
})

t.test('advice comes from plugins that were not at work', async t => {
  const error = new GatewayError('context_length_exceeded', 'too long')
  const advising = healing({}, { advise: ({ code }) => (code === error.code ? 'Use healing.' : null) })
  const { advice } = createPluginChains([advising, compression({})], new TestClock())
  const { request } = scriptedExchange()
  const named = (enabled?: boolean) =>
    ({ ...request, plugins: [{ id: 'response-healing', enabled }] }) as typeof request
  t.same(advice(error, request), ['Use healing.'])
  t.same(advice(error, named(false)), ['Use healing.'])
  t.same(advice(error, named(true)), [])
  t.same(advice(error, named()), [])
  t.same(advice(new GatewayError('rate_limit_exceeded', 'slow down'), request), [])
})

t.test('a text from outside of the prompt is looked at before the plugin has it', async t => {
  const exchange = scriptedExchange({ input: 'asked' })
  const { prompt } = exchange
  const told: string[] = []
  const chain = some([
    healing({ skipsRescan: true, prepare: async (_, inspect) => void told.push(await inspect('rule')) }),
    compression({ inspect: (seen, texts) => void told.push(`look ${texts.join()} ${seen === exchange}`) }),
  ])
  await chain.prepare(exchange)
  t.same(told.splice(0), ['look rule true', 'rule'])
  const redacting: InputGuard = {
    ...NOTHING_FOUND,
    text(each, text) {
      t.equal(each, exchange, 'what was found is told of the exchange')
      t.equal(text, 'rule')
      return '[RULE]'
    },
  }
  await chain.prepare(exchange, redacting)
  t.same(told.splice(0), ['look [RULE] true', '[RULE]'])
  t.equal(exchange.prompt, prompt, 'the prompt is left alone')
  const refused = new GatewayError('permission_denied', 'no')
  await t.rejects(chain.prepare(exchange, { ...NOTHING_FOUND, text: () => Promise.reject(refused) }), refused)
  t.same(told, [])
})

t.test('the time of a plugin is that of its verbs, without what others do within them', async t => {
  const clock = new TestClock()
  const metrics = createMetrics()
  const takes = async (ms: number) => clock.advance(ms)
  const plugins = [
    healing({
      async prepare(_, inspect) {
        await takes(1_000)
        await inspect('a text')
      },
      async finish({ output }) {
        await takes(2_000)
        return output
      },
    }),
    compression({ inspect: () => takes(500), order: candidates => candidates }),
  ]
  const { request } = scriptedExchange()
  const chain = createPluginChains(plugins, clock).of({ ...request, ...both } as typeof request)
  const guard: InputGuard = {
    prompt: () => undefined,
    text: async (_, text) => {
      await takes(250)
      return text
    },
  }
  const exchange = scriptedExchange()
  await chain?.prepare(exchange, guard)
  await chain?.finish(turn, exchange)
  chain?.observeTimes(metrics)
  const seconds = (plugin: string) => metrics.pluginSeconds.labels({ plugin })
  t.match(seconds('response-healing'), { count: 1, sum: 3 })
  t.match(seconds('context-compression'), { count: 1, sum: 0.5 })
})

t.test("a router's choice takes the place of its slug, and it hears who has answered", async t => {
  const plain = scriptedExchange()
  const request = { ...plain.request, model: 'gateway/auto' }
  const exchange = { ...plain, request, prompt: request }
  const told: string[] = []
  const chain = some([
    healing({
      strategy: 'auto',
      route: ({ prompt }) => ({
        models: ['acme/one', 'acme/two'],
        prompt: { ...prompt, input: 'for models' },
      }),
      noteAnswer: (_, modelId) => void told.push(modelId),
    }),
    compression({
      strategy: 'fusion',
      prepare: ({ prompt }) => ({ ...prompt, input: `${prompt.input}, fused` }),
    }),
  ])
  await chain.route(exchange)
  t.match(exchange, { strategy: 'auto', router: 'gateway/auto' })
  t.match(exchange.prompt, { model: 'acme/one', models: ['acme/two'], input: 'for models' })
  await chain.prepare(exchange)
  t.equal(exchange.strategy, 'fusion')
  t.equal(exchange.prompt.input, 'for models, fused')
  chain.noteAnswer(exchange, 'acme/two')
  t.same(told, ['acme/two'])
})

t.test('what a plugin did for one endpoint is undone before the next', async t => {
  const exchange = scriptedExchange({ input: 'whole' })
  let whole: typeof exchange.prompt | undefined
  const chain = some([
    healing({
      removedTokens: 3,
      unfit: () => whole,
      fitTo({ prompt }, { modelId }) {
        whole = prompt
        return { ...prompt, input: `${prompt.input} for ${modelId}` }
      },
    }),
    compression({ removedTokens: 4 }),
  ])
  for (const modelId of ['acme/one', 'acme/two']) {
    await chain.fitTo(exchange, { ...scriptedEndpoint('openai-chat'), modelId })
    t.equal(exchange.prompt.input, `whole for ${modelId}`)
  }
  t.equal(chain.removedTokens, 7)
})

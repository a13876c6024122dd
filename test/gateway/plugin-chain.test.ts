import t from 'tap'
import { GatewayError } from '../../src/errors.ts'
import type { InputGuard } from '../../src/gateway/guard/guard.ts'
import { createSteps, type Steps, stepFailure } from '../../src/gateway/plugin-chain.ts'
import { createMetrics } from '../../src/metrics/metrics.ts'
import type { AnyPlugin, Plugin, Step, Turn } from '../../src/plugins/plugin.ts'
import { createPlugins } from '../../src/plugins/table.ts'
import { PLUGINS_BUILT } from '../../src/protocol/built.ts'
import type { InputMessage, OutputItem } from '../../src/protocol/items.ts'
import { scriptedEndpoint, scriptedExchange } from '../support/scripted-attempt.ts'
import { TestClock } from '../support/test-clock.ts'

type Verbs = Omit<Step, 'id'>

function healing(verbs: Verbs, more: Partial<Plugin<'response-healing'>> = {}): Plugin<'response-healing'> {
  return { id: 'response-healing', step: () => ({ id: 'response-healing', ...verbs }), ...more }
}
function compression(verbs: Verbs): Plugin<'context-compression'> {
  return { id: 'context-compression', step: () => ({ id: 'context-compression', ...verbs }) }
}

const both = { plugins: [{ id: 'response-healing' }, { id: 'context-compression' }] }

function stepsFor(plugins: readonly AnyPlugin[], fields: Readonly<Record<string, unknown>>): Steps | null {
  // What is not built is refused before it comes here.
  const { request } = scriptedExchange()
  return createSteps(plugins)({ ...request, ...fields } as typeof request)
}

function some(plugins: readonly AnyPlugin[], fields: Readonly<Record<string, unknown>> = both): Steps {
  const steps = stepsFor(plugins, fields)
  if (steps === null) throw new Error('no plugin has to do with the request')
  return steps
}

const NOTHING_FOUND: InputGuard = { prompt: () => undefined, text: (_, text) => text }

const turn: Turn = {
  attempt: {
    endpoint: scriptedEndpoint('openai-chat'),
    credential: null,
    isByok: false,
    ownKey: null,
    status: 200,
    error: null,
  },
  output: [],
  finish: 'stop',
  call: 1,
}

t.test('the plugins that requests may name are those of the table', async t => {
  const plugins = createPlugins({
    ask: () => Promise.reject(new Error('nobody asks')),
    clock: new TestClock(),
    metrics: createMetrics(),
    tasks: {
      run: () => Promise.reject(new Error('nobody asks')),
      runInlineOr: () => Promise.reject(new Error('nobody asks')),
    },
    evaluator: null,
    hipaaWorkspaces: [],
    timeoutMs: 1,
    moderation: null,
    policyAgainst: () => null,
    tokensOf: () => 0,
    hasSmallContext: () => false,
    takesFiles: () => false,
    takesImages: () => false,
    fetchPage: null,
    ocr: null,
  })
  t.same(
    plugins.map(({ id }) => id).filter(id => id !== 'structured-output'),
    [...PLUGINS_BUILT],
  )
})

t.test('a request has the steps of the plugins that it names and that are on', async t => {
  const plugins = [healing({ holds: true }), compression({})]
  t.equal(stepsFor(plugins, {}), null)
  t.equal(stepsFor(plugins, { plugins: [] }), null)
  t.equal(stepsFor(plugins, { plugins: [{ id: 'web' }] }), null)
  t.equal(stepsFor(plugins, { plugins: [{ id: 'response-healing', enabled: false }] }), null)
  t.equal(some(plugins, { plugins: [{ id: 'response-healing', enabled: true }] }).holds, true)
  t.equal(some(plugins, { plugins: [{ id: 'context-compression' }] }).holds, false)
  t.equal(stepsFor([healing({}, { step: () => null })], both), null)
})

t.test('a plugin that works unasked is asked about every request, without settings', async t => {
  const seen: unknown[] = []
  const plugin = healing(
    {},
    {
      unasked: true,
      step(settings) {
        seen.push(settings)
        return { id: 'response-healing' }
      },
    },
  )
  t.ok(stepsFor([plugin], {}))
  t.ok(stepsFor([plugin], both))
  t.equal(stepsFor([plugin], { plugins: [{ id: 'response-healing', enabled: false }] }), null)
  t.same(seen, [null, { id: 'response-healing' }])
})

t.test('steps prepare one after the other, in the order of the table', async t => {
  const exchange = scriptedExchange()
  const steps = some([
    healing({
      async prepare(exchange) {
        await new Promise(resolve => setImmediate(resolve))
        exchange.prompt = { ...exchange.prompt, input: `${exchange.prompt.input} one` }
      },
    }),
    compression({
      prepare(exchange) {
        exchange.prompt = { ...exchange.prompt, input: `${exchange.prompt.input} two` }
      },
    }),
  ])
  await steps.prepare(exchange)
  t.equal(exchange.prompt.input, 'hi one two')
  t.equal(exchange.request.input, 'hi')
})

t.test('what one step refuses, no other one prepares', async t => {
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

t.test('each step finishes what the one before it has left', async t => {
  const item = (id: string): OutputItem => ({
    type: 'message',
    id,
    role: 'assistant',
    status: 'completed',
    content: [],
  })
  const adding = (id: string): Verbs => ({ finish: ({ output }) => [...output, item(id)] })
  const steps = some([healing(adding('a')), compression(adding('b'))])
  t.same(await steps.finish(turn, scriptedExchange()), [item('a'), item('b')])
})

t.test('what a step throws is no failure of a provider', async t => {
  const exchange = scriptedExchange()
  t.match(stepFailure(new GatewayError('provider_unavailable', 'x'), exchange), { code: 'internal' })
  const denied = new GatewayError('permission_denied', 'x')
  t.equal(stepFailure(denied, exchange), denied)
  const gone = new GatewayError('client_closed', 'gone')
  t.equal(stepFailure(denied, { signal: AbortSignal.abort(gone) }), gone)
})

t.test('steps order candidates and fit the prompt to an endpoint one after the other', async t => {
  const exchange = scriptedExchange()
  const steps = some([
    healing({
      order: candidates => candidates.toReversed(),
      async address(exchange, { modelId }) {
        exchange.prompt = { ...exchange.prompt, input: `${exchange.prompt.input} for ${modelId}` }
      },
    }),
    compression({
      order: candidates => candidates.slice(0, 2),
      address(exchange) {
        exchange.prompt = { ...exchange.prompt, input: `${exchange.prompt.input} twice` }
      },
    }),
  ])
  const candidates = ['a', 'b', 'c'].map(modelId => ({
    endpoint: { ...scriptedEndpoint('openai-chat'), modelId },
    credential: null,
  }))
  t.same(
    steps.order(candidates, exchange).map(({ endpoint }) => endpoint.modelId),
    ['c', 'b'],
  )
  t.equal(steps.addresses, true)
  await steps.address(exchange, scriptedEndpoint('openai-chat'))
  t.equal(exchange.prompt.input, 'hi for acme/scripted twice')
  t.equal(some([healing({})], { plugins: [{ id: 'response-healing' }] }).addresses, false)
})

t.test('what a step brings into the prompt is looked at before the next one works', async t => {
  const exchange = scriptedExchange({ input: 'asked' })
  const told: string[] = []
  const brings = (text: string) => (each: typeof exchange) => {
    each.prompt = { ...each.prompt, input: [...[each.prompt.input].flat().map(said), said(text)] }
  }
  const said = (content: unknown) =>
    typeof content === 'string' ? { role: 'user' as const, content } : (content as InputMessage)
  const steps = some([
    healing({ prepare: brings('read'), address: brings('read again') }),
    compression({
      look: (_, texts) => void told.push(`look ${texts.join()}`),
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
  await steps.prepare(exchange, input)
  t.same(told.splice(0), ['guard true', 'look read', 'prepare true'])
  await steps.address(exchange, scriptedEndpoint('openai-chat'), input)
  t.same(told.splice(0), ['guard true', 'look read again'])
  const own = some([healing({ bringsNothing: true, prepare: brings('own') }), compression({})])
  await own.prepare(exchange, input)
  t.same(told, [], 'words of the gateway are its own')
})

t.test('what was refused of a file is not told by the refusal', async t => {
  const exchange = scriptedExchange({ input: 'asked' })
  exchange.parsedFiles.push({
    type: 'file',
    file: { hash: 'h', content: [{ type: 'text', text: 'secret' }] },
  })
  const steps = some([
    healing({
      prepare: each => {
        each.prompt = { ...each.prompt, input: 'secret' }
      },
    }),
  ])
  const refused = new GatewayError('permission_denied', 'no')
  const input: InputGuard = { ...NOTHING_FOUND, prompt: () => Promise.reject(refused) }
  await t.rejects(steps.prepare(exchange, input), refused)
  t.same(exchange.parsedFiles, [])
})

t.test('a text from outside of the prompt is looked at before the step has it', async t => {
  const exchange = scriptedExchange({ input: 'asked' })
  const { prompt } = exchange
  const told: string[] = []
  const steps = some([
    healing({ bringsNothing: true, prepare: async (_, inspect) => void told.push(await inspect('rule')) }),
    compression({ look: (seen, texts) => void told.push(`look ${texts.join()} ${seen === exchange}`) }),
  ])
  await steps.prepare(exchange)
  t.same(told.splice(0), ['look rule true', 'rule'])
  const redacting: InputGuard = {
    ...NOTHING_FOUND,
    text(each, text) {
      t.equal(each, exchange, 'what was found is told of the exchange')
      t.equal(text, 'rule')
      return '[RULE]'
    },
  }
  await steps.prepare(exchange, redacting)
  t.same(told.splice(0), ['look [RULE] true', '[RULE]'])
  t.equal(exchange.prompt, prompt, 'the prompt is left alone')
  const refused = new GatewayError('permission_denied', 'no')
  await t.rejects(steps.prepare(exchange, { ...NOTHING_FOUND, text: () => Promise.reject(refused) }), refused)
  t.same(told, [])
})

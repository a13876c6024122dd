/** `sluice replay`: the requests of a capture to another configuration, by recorded replies and by real providers. */
import { randomBytes } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { hashKey } from '../../src/callers/api-key.ts'
import { runCommand } from '../support/command-line.ts'
import { startGatewayProcess } from '../support/gateway-process.ts'
import { caller } from '../support/management.ts'
import { until } from '../support/patience.ts'

const MANAGEMENT_KEY = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
const PRICING = { prompt: '0.000001', completion: '0.000002' }
const model = (id: string, upstreamModel = 'echo', pricing = PRICING) => ({
  id,
  endpoints: [{ provider: 'sim', upstreamModel, pricing }],
})
const SETTINGS = {
  simulator: { enabled: true },
  capture: { enabled: true },
  models: [model('acme/large'), model('acme/small'), model('acme/calls', 'call-1')],
  routes: [{ name: 'prod/chat', targets: [{ model: 'acme/large' }] }],
}
const TOOL = {
  type: 'function',
  name: 'look',
  parameters: { type: 'object', properties: { at: { type: 'string' } } },
}
/** The capture runs on while it is read. */
const STILL_WRITTEN = /^(?:sluice: this part is incomplete: it is still being written.*\n)?$/
const messages = [{ role: 'user', content: 'Tell me' }]
/** Requests in all dialects, to a provider of each format, whole and streamed. */
const REQUESTS: readonly (readonly [path: string, body: object])[] = [
  ['/responses', { model: 'prod/chat', input: 'Hello', session_id: 'one' }],
  ['/responses', { model: 'acme/large', input: 'Hello', stream: true, max_output_tokens: 50 }],
  ['/chat/completions', { model: 'sim/chat-echo', messages, temperature: 0.5 }],
  ['/chat/completions', { model: 'sim/messages-echo', messages, stream: true }],
  ['/messages', { model: 'sim/messages-echo', messages, max_tokens: 60, stream: true }],
  ['/messages', { model: 'sim/gemini-echo', messages, max_tokens: 60, system: 'Be brief' }],
  ['/responses', { model: 'acme/calls', input: 'Look', tools: [TOOL], stream: true }],
]

t.test('captured requests are sent again, and what differs is shown', async t => {
  const gateway = await startGatewayProcess(t, SETTINGS, { GATEWAY_MANAGEMENT_KEY: MANAGEMENT_KEY })
  const cwd = dirname(gateway.configFile)
  const manage = caller(`${gateway.url}/v1`, MANAGEMENT_KEY)
  const ask = caller(`${gateway.url}/v1`, gateway.apiKey)
  const made = await manage('POST', '/captures', { key_hash: hashKey(gateway.apiKey), minutes: 5 })
  const id = String(made.data['id'])
  await until('the capture', async () => (await ask('GET', '/key')).data['capture'] !== null)
  for (const [path, body] of REQUESTS) {
    const reply = await fetch(`${gateway.url}/v1${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    t.equal(reply.status, 200, await reply.text())
  }
  const vector = await ask('POST', '/embeddings', { model: 'sim/embed', input: 'Hello' })
  t.equal(vector.status, 200, vector.text)
  await until('the records', async () => {
    const { data } = await manage('GET', `/captures/${id}`)
    const { list } = await manage('GET', '/generations')
    return Number(data['requests']) === REQUESTS.length + 1 && list.length > REQUESTS.length
  })
  const replay = async (settings: object, ...words: string[]) => {
    writeFileSync(join(cwd, 'new.yaml'), JSON.stringify(settings))
    return await runCommand(t, ['replay', id, '--config', 'new.yaml', ...words], { cwd })
  }
  const documentOf = (stdout: string) => JSON.parse(stdout) as Record<string, never>

  await t.test('the same configuration answers the same', async t => {
    const json = await replay(SETTINGS, '--json')
    t.match(json.stderr, STILL_WRITTEN)
    t.match(documentOf(json.stdout), {
      capture: id,
      real: false,
      sums: { requests: REQUESTS.length, different: 0, simulated: 0 },
      unsent: 0,
      skipped: [{ why: 'it asks for embeddings' }],
    })
    t.equal(json.code, 0, json.stdout)
    const { code, stdout } = await replay(SETTINGS)
    t.equal(code, 0)
    t.match(stdout, /^7 requests sent again, with the recorded replies of the providers: 0 differ\.\nCost: /)
    t.match(stdout, /1 request left out, the first because it asks for embeddings\./)
  })

  await t.test('another price, another target and a model that is gone are differences', async t => {
    const changed = {
      ...SETTINGS,
      models: [
        model('acme/large'),
        model('acme/small', 'echo', { prompt: '0.000004', completion: '0.000004' }),
      ],
      routes: [{ name: 'prod/chat', targets: [{ model: 'acme/small' }] }],
    }
    const { code, stdout, stderr } = await replay(changed, '--json')
    t.match(stderr, STILL_WRITTEN)
    t.equal(code, 1)
    const { requests, sums } = documentOf(stdout) as Record<string, never> & {
      requests: readonly { differences: readonly string[]; from: object; to: object }[]
    }
    t.match(sums, { requests: 7, different: 2 })
    const [routed, ...others] = requests
    t.match(routed, {
      differences: ['model', 'cost'],
      from: { model: 'acme/large', text: 'Hello', status: 'ok' },
      to: { model: 'acme/small', text: 'Hello', status: 'ok' },
    })
    const gone = others.at(-1)
    t.match(gone?.to, { status: 'invalid_request' })
    t.ok(gone?.differences.includes('status') && gone.differences.includes('tool_calls'))
    const told = await replay(changed)
    t.equal(told.code, 1)
    t.match(told.stdout, /2 differ \(status 1, model 2/)
    t.match(told.stdout, /gen-\S+ +model acme\/large -> acme\/small; cost \$/)
  })

  await t.test('where nothing was recorded, the simulated provider answers', async t => {
    const provider = {
      slug: 'other',
      format: 'openai-chat',
      baseUrl: 'https://api.other.example/v1',
      apiKey: 'secret-of-other',
    }
    const elsewhere = {
      ...SETTINGS,
      providers: [provider],
      models: [
        { id: 'acme/large', endpoints: [{ provider: 'other', upstreamModel: 'big' }] },
        model('acme/calls', 'call-1'),
      ],
    }
    const { code, stdout, stderr } = await replay(elsewhere, '--json')
    t.match(stderr, STILL_WRITTEN)
    t.equal(code, 1)
    const { requests, sums } = documentOf(stdout) as Record<string, never> & {
      requests: readonly { differences: readonly string[]; simulated: boolean }[]
    }
    t.match(sums, { different: 2, simulated: 2 })
    const rest = requests.filter(({ simulated }) => !simulated) as unknown as { from: { cost: number } }[]
    t.equal(
      (sums as unknown as { cost: { from: number } }).cost.from,
      rest.reduce((total, { from }) => total + from.cost, 0),
      'made-up answers are in no sum',
    )
    t.match(requests[0], { simulated: true, differences: ['provider'] })
  })

  await t.test('real providers are asked within a budget, and never without', async t => {
    const refused = await replay(SETTINGS, '--real')
    t.equal(refused.code, 2)
    t.match(
      refused.stderr,
      /--real: asks the providers and costs money, so it needs a limit: add --budget USD/,
    )
    t.match(await replay(SETTINGS, '--real', '--budget', 'much'), {
      code: 2,
      stderr: /--budget: must be an amount/,
    })
    t.match(await replay(SETTINGS, '--budget', '1'), { code: 2, stderr: /--budget: is for --real/ })
    const real = await replay(SETTINGS, '--real', '--budget', '0.5', '--json')
    t.match(real.stderr, STILL_WRITTEN)
    t.match(documentOf(real.stdout), { real: true, sums: { requests: 7, simulated: 0 }, unsent: 0 })
    const little = await replay(SETTINGS, '--real', '--budget', '0.000001')
    t.match(little.stdout, /7 requests not sent: the budget is spent\. Give a larger --budget/)
  })

  await t.test('what is wrong says what to do', async t => {
    const unknown = await runCommand(t, ['replay', 'cap_none', '--config', 'gateway.yaml'], { cwd })
    t.match(unknown, { code: 2, stderr: /there is no such capture; sluice captures list shows all captures/ })
    const faulty = await replay({ ...SETTINGS, routes: [{ name: 'x', targets: [{ model: 'none/such' }] }] })
    t.match(faulty, { code: 2, stderr: /routes\[0\]\.targets\[0\]\.model: there is no such model/ })
    t.notMatch(readFileSync(join(cwd, 'new.yaml'), 'utf8'), /secret-of-other/)
  })
})

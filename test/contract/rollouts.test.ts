/** Rollouts in the running product: a failing candidate is taken back by itself, and nobody pays for it. */
import { randomBytes } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import t from 'tap'
import { runCommand } from '../support/command-line.ts'
import { NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { caller } from '../support/management.ts'
import { Provider } from '../support/provider.ts'
import { eventually } from '../support/stream-probe.ts'

const MANAGEMENT_KEY = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
const LIMIT_MS = 60_000
const ROUTE = '/rollouts/prod%2Fchat'
const model = (id: string) => ({
  id,
  endpoints: [{ provider: 'acme', upstreamModel: id, pricing: { request: '0.001' } }],
})

t.test('a candidate that fails is taken back by itself; callers get the fallback, and pay once', async t => {
  const provider = new Provider(({ model: asked }) => ({ status: asked === 'acme/new' ? 500 : 200 }))
  await provider.listen(t)
  const settings = {
    providers: [{ slug: 'acme', format: 'openai-chat', baseUrl: provider.url, apiKey: 'shared' }],
    models: ['acme/old', 'acme/new', 'acme/newer', 'acme/spare'].map(model),
    routes: [{ name: 'prod/chat', targets: [{ model: 'acme/old' }], fallback: ['acme/spare'] }],
    rollouts: [{ route: 'prod/chat', candidate: 'acme/new', steps: [50, 100], holdMinutes: 60 }],
  }
  const gateway = await startGatewayProcess(t, settings, { GATEWAY_MANAGEMENT_KEY: MANAGEMENT_KEY })
  const manage = caller(`${gateway.url}/v1`, MANAGEMENT_KEY)
  const ask = caller(`${gateway.url}/v1`, gateway.apiKey)
  const state = async () => (await manage('GET', ROUTE)).data
  t.ok(await eventually(async () => (await state())['state'] === 'running', LIMIT_MS))
  t.match(await state(), { candidate: 'acme/new', step: 0, share: 50 })

  let isBack = false
  let fellBack = ''
  let namesFailed = false
  const models = new Set<unknown>()
  for (let n = 0; n < 2_000 && !isBack; n++) {
    const reply = await ask('POST', '/responses', {
      model: 'prod/chat',
      input: 'Hello',
      session_id: `s-${n}`,
    })
    if (reply.status !== 200) t.fail(reply.text)
    models.add(reply.document['model'])
    if (reply.document['model'] === 'acme/spare') fellBack ||= String(reply.document['id'])
    const usage = reply.document['usage'] as { readonly cost: number }
    if (usage.cost !== 0.001) t.fail(`a request cost ${usage.cost}`)
    // Of the log, only the latest lines are kept.
    namesFailed ||= /"model":"acme\/spare".*"failedAttempts":\[\{"provider":"acme","model":"acme\/new"/.test(
      gateway.stdout(),
    )
    if (n % 50 === 49) isBack = (await state())['state'] === 'rolled_back'
  }
  t.ok(await eventually(async () => (await state())['state'] === 'rolled_back', LIMIT_MS))
  t.same([...models].sort(), ['acme/old', 'acme/spare'])
  t.match(await state(), { share: 0, reason: /^proven worse: errors 100\.00 %/ })
  t.ok(
    await eventually(
      async () => (await gateway.metric('gateway_rollout_state', { state: 'rolled_back' })) === 1,
      LIMIT_MS,
    ),
  )
  t.ok(namesFailed, 'the log names the model that failed')
  const explained = async () => (await manage('GET', `/generation?id=${fellBack}`)).data['explanation']
  t.ok(await eventually(async () => Object(await explained()).source === 'whole', LIMIT_MS))
  t.match(await explained(), {
    rollout: 'candidate',
    choice: 'only',
    reasons: [
      'Answered by acme with acme/spare.',
      'The route prod/chat led to acme/new, the candidate of its rollout. First choice acme acme/new: it was the only endpoint of its model that could serve the request.',
    ],
  })
  const asked = provider.requests.length
  for (let n = 0; n < 20; n++)
    t.match(await ask('POST', '/responses', { model: 'prod/chat', input: 'Hello' }), {
      document: { model: 'acme/old' },
    })
  t.equal(provider.requests.length, asked + 20, 'the candidate gets nothing any more')
  t.match(await manage('POST', `${ROUTE}/advance`), { status: 409, message: /name another candidate/ })
  t.match(await manage('POST', `${ROUTE}/advance`, {}), { status: 413, message: /takes no request body/ })

  const sluice = (...words: string[]) =>
    runCommand(t, ['rollouts', ...words, '--url', gateway.url, '--config', 'gateway.yaml'], {
      cwd: dirname(gateway.configFile),
    })
  t.match(await sluice('list'), {
    code: 0,
    stdout: /prod\/chat +acme\/new +rolled_back +0 % +proven worse/,
    stderr: '',
  })
  t.match(await sluice('advance', 'prod/chat'), { code: 1, stderr: /name another candidate/ })
  const newer = { ...settings, rollouts: [{ ...settings.rollouts[0], candidate: 'acme/newer' }] }
  writeFileSync(gateway.configFile, JSON.stringify(newer))
  t.ok(await eventually(async () => (await state())['candidate'] === 'acme/newer', LIMIT_MS))
  t.match(await sluice('hold', 'prod/chat'), {
    code: 0,
    stdout: 'prod/chat: acme/newer is holding at 50 %.\n',
  })
  t.match(await sluice('advance', 'prod/chat'), {
    code: 0,
    stdout: 'prod/chat: acme/newer is promoted at 100 %.\n',
  })
  t.match(await sluice('rollback', 'prod/chat'), {
    code: 0,
    stdout: 'prod/chat: acme/newer is rolled_back at 0 %.\n',
  })
  const keys = (await manage('GET', '/keys')).list.map(({ name }) => name)
  t.notOk(
    keys.some(name => String(name).startsWith('sluice')),
    'the keys of the commands are gone',
  )
})

t.test(
  'shadows that fail take a candidate back that no caller ever got, and do not hold up a stop',
  async t => {
    let hangs = false
    const provider = new Provider(({ model: asked }) => {
      if (asked !== 'acme/new') return { text: 'Fine.' }
      return hangs ? { hangs: true } : { status: 500 }
    })
    await provider.listen(t)
    const rollout = {
      route: 'prod/chat',
      steps: [0, 100],
      holdMinutes: 60,
      shadow: 100,
      shadowBudgetUsd: 100,
    }
    const settings = {
      providers: [{ slug: 'acme', format: 'openai-chat', baseUrl: provider.url, apiKey: 'shared' }],
      models: ['acme/old', 'acme/new', 'acme/newer'].map(model),
      routes: [{ name: 'prod/chat', targets: [{ model: 'acme/old' }] }],
      routing: { breakerFailures: null },
      limits: NO_SHEDDING,
      rollouts: [{ ...rollout, candidate: 'acme/new' }],
    }
    const gateway = await startGatewayProcess(t, settings, { GATEWAY_MANAGEMENT_KEY: MANAGEMENT_KEY })
    const manage = caller(`${gateway.url}/v1`, MANAGEMENT_KEY)
    const ask = caller(`${gateway.url}/v1`, gateway.apiKey)
    const state = async () => (await manage('GET', ROUTE)).data
    t.ok(await eventually(async () => (await state())['state'] === 'running', LIMIT_MS))
    t.match(await state(), { step: 0, share: 0, shadow: { share: 100, requests: 0, is_spent: false } })

    hangs = true
    t.match(await ask('POST', '/responses', { model: 'prod/chat', input: 'Hello' }), { status: 200 })
    await provider.until(({ requests }) => requests.some(request => request.model === 'acme/new'))
    hangs = false
    let isBack = false
    for (let n = 0; n < 2_000 && !isBack; n++) {
      const reply = await ask('POST', '/responses', { model: 'prod/chat', input: 'Hello' })
      if (reply.status !== 200 || reply.document['model'] !== 'acme/old') t.fail(reply.text)
      if (n % 20 === 19) isBack = (await state())['state'] === 'rolled_back'
    }
    t.ok(await eventually(async () => (await state())['state'] === 'rolled_back', LIMIT_MS))
    t.match(await state(), {
      share: 0,
      reason: /^proven worse: shadows: errors 100\.00 % of .* against 0\.00 %/,
    })
    t.ok((await gateway.metric('gateway_shadows_total', { outcome: 'failed' })) > 0)
    const used = () => gateway.metric('gateway_rollout_shadow_budget_used_ratio', { route: 'prod/chat' })
    t.ok(await eventually(async () => (await used()) === 0.00001, LIMIT_MS), 'what hangs stays reserved')
    t.equal(await gateway.stop(), 0, 'although a shadow is under way')
  },
)

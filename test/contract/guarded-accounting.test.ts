/** What guarded and moderated requests cost: replies that were said count, and nobody is asked for nothing. */
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import t from 'tap'
import { openStore } from '../../src/storage/open.ts'
import { DEFAULT_ORGANIZATION_ID } from '../../src/storage/store.ts'
import { NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { caller } from '../support/management.ts'
import { askMany } from '../support/many-requests.ts'
import { FORMATS, speaking } from '../support/provider.ts'
import { tempFolder } from '../support/temp-folder.ts'
import { TestClock } from '../support/test-clock.ts'
import { type Reply, startGuarded } from '../support/world.ts'

const EMAIL = 'jane.doe@example.com'
/** One window holds all of a reply, so that nothing of it is sent before it is blocked. */
const BLOCKING = {
  output: {
    contentFilterBuiltins: [{ slug: 'email', action: 'block', scanScope: 'all_messages' } as const],
    contentFilters: [],
    windowBytes: 8_192,
    overlapBytes: 64,
  },
}
const MODEL = 'parrot/openai-chat'
const MODERATOR = 'parrot/anthropic-messages'
const MODERATED = { plugins: [{ id: 'moderation' }] }

/**
 * One of its own for each test of a budget, which begins with what the key has spent before. The clock stands still,
 * for no day to end.
 */
const start = (t: Parameters<typeof startGuarded>[0]) =>
  startGuarded(t, { moderation: { model: MODERATOR }, clock: new TestClock() })
const { gateway, parrot, guard, ask } = await start(t)
const store = await openStore(gateway.storageUrl)
t.teardown(() => store.close())

const errorOf = ({ document }: Reply) =>
  document['error'] as { readonly message: string; readonly metadata: Record<string, unknown> }
const recordOf = async (id: unknown) => {
  await gateway.shipper.ship()
  return await store.ledger.find(String(id), DEFAULT_ORGANIZATION_ID)
}

for (const format of FORMATS) {
  for (const stream of [false, true]) {
    t.test(
      `a reply that is blocked unseen is charged for (${format}, ${stream ? 'streamed' : 'whole'})`,
      async t => {
        await guard(BLOCKING)
        parrot.parts = speaking('word '.repeat(800), EMAIL)
        const reply = await ask({ model: `parrot/${format}`, stream, input: 'Hi' })
        t.equal(reply.status, 403)
        t.match(errorOf(reply), { metadata: { patterns: Array } })
        const { usage, id } = reply.document as {
          readonly usage: { readonly output_tokens: number; readonly cost: number }
          readonly id: string
        }
        t.ok(usage.output_tokens >= 1_000, `${usage.output_tokens} tokens`)
        t.ok(usage.cost >= 1_000 * 4e-7)
        t.match(await recordOf(id), {
          outcome: 'failed',
          error: 'permission_denied',
          accounting: 'estimated',
          outputTokens: usage.output_tokens,
          cost: Math.round(usage.cost * 1e12),
        })
      },
    )
  }
}

t.test('blocked replies use up a budget', async t => {
  const { parrot, guard, ask } = await start(t)
  await guard({ ...BLOCKING, limit: 400, resetInterval: 'daily' })
  parrot.parts = speaking('word '.repeat(800), EMAIL)
  const body = { model: MODEL, input: 'Hi', max_output_tokens: 100 }
  const before = parrot.bodies.length
  t.match(errorOf(await ask(body)).message, 'Response blocked')
  t.match(errorOf(await ask(body)).message, /^The daily budget/)
  t.equal(parrot.bodies.length, before + 1)
})

t.test('a reply that its provider breaks off unseen costs nothing', async t => {
  await guard(BLOCKING)
  const reply = await ask({ model: 'sim/fail-cut-end', input: 'Hi there', stream: true })
  t.equal(reply.status, 502, reply.text)
  t.notOk('usage' in reply.document)
})

t.test('nothing is moderated for a caller whose limits do not allow the request', async t => {
  const { parrot, guard, ask } = await start(t)
  await guard({ limit: 1, resetInterval: 'daily' })
  const before = parrot.bodies.length
  // Reading it alone costs more; less would only lower what may be said.
  const reply = await ask({ model: MODEL, input: 'word '.repeat(100), ...MODERATED })
  t.equal(reply.status, 403)
  t.match(errorOf(reply).message, /^The daily budget/)
  t.equal(parrot.bodies.length, before)
})

t.test('nothing is moderated that nobody could serve', async t => {
  await guard({ ignoredModels: [MODEL] })
  const before = parrot.bodies.length
  t.match(
    errorOf(await ask({ model: 'parrot/none', input: 'Hi', ...MODERATED })).message,
    'not a valid model',
  )
  t.match(
    errorOf(await ask({ model: MODEL, input: 'Hi', ...MODERATED })).message,
    'does not allow any endpoint',
  )
  t.equal(parrot.bodies.length, before)
})

t.test('what is refused after it was admitted gives back what was set aside', async t => {
  const { parrot, guard, ask } = await start(t)
  await guard({ limit: 60, resetInterval: 'daily' })
  const body = { model: MODEL, input: 'Hi', max_output_tokens: 100 }
  parrot.parts = speaking('{"flagged": true, "categories": ["spam"]}')
  for (let n = 0; n < 3; n++) t.match(errorOf(await ask({ ...body, ...MODERATED })).message, 'was flagged')
  parrot.parts = speaking('{"flagged": false}')
  const before = parrot.bodies.length
  t.equal((await ask({ ...body, ...MODERATED })).status, 200, 'two thirds of the budget are set aside once')
  t.equal(parrot.bodies.length, before + 2, 'the moderator and the model')
})

t.test('a moderated request counts as one, whatever becomes of it', async t => {
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const running = await startGatewayProcess(
    t,
    { limits: NO_SHEDDING, quotas: { requestsPerMinute: 1 }, moderation: { model: 'sim/echo' } },
    {
      GATEWAY_SERVE_THREADS: '1',
      GATEWAY_MANAGEMENT_KEY: managementKey,
      DATABASE_URL: `sqlite:${join(tempFolder('sluice-moderated'), 'gateway.db')}`,
    },
  )
  const manage = caller(`${running.url}/v1`, managementKey)
  const { document } = await manage('POST', '/keys', { name: 'limited' })
  const target = { port: running.port, apiKey: String(document['key']) }
  const asked = async () => {
    const { byStatus } = await askMany([target], { model: 'sim/echo', input: 'Hi', ...MODERATED }, 10)
    return byStatus
  }
  let byStatus = await asked()
  // A minute may have ended on the way.
  if ((byStatus.get(503) ?? 0) > 1) byStatus = await asked()
  t.ok((byStatus.get(429) ?? 0) >= 9, JSON.stringify([...byStatus]))
  // What moderates is no moderator, so nobody comes through.
  t.notOk(byStatus.has(200))
})

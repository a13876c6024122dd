/** Keys of one organization that fill the places for requests are refused, and those of another are not. */
import t, { type Test } from 'tap'
import { simModel } from '../../src/apps/simulator/rows.ts'
import { startGateway } from '../support/gateway.ts'
import { addKey, addOrganization } from '../support/management.ts'

const PLACES = 20
const ENDLESS = simModel('write-1000000-50', 'openai-responses')

async function start(t: Test) {
  const gateway = await startGateway({
    limits: { maxInFlight: PLACES, maxLagMs: 3_600_000 },
    models: [ENDLESS],
  })
  const { url, storageUrl } = gateway
  const leaving = new AbortController()
  t.teardown(async () => {
    leaving.abort()
    await gateway.close()
  })
  const ask = (key: string, body: object): Promise<Response> =>
    fetch(`${url}/responses`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ input: 'Hi', ...body }),
      signal: leaving.signal,
    })
  return {
    other: await addOrganization(storageUrl, 'other'),
    /** Keys of the default organization. */
    async newKeys(count: number): Promise<string[]> {
      const keys: string[] = []
      while (keys.length < count) keys.push(await addKey(storageUrl))
      return keys
    },
    ask: async (key: string): Promise<number> => {
      const reply = await ask(key, { model: 'sim/echo' })
      await reply.text()
      return reply.status
    },
    /** Opens streams that do not end, one after the other. */
    async hold(...keys: readonly string[]): Promise<number[]> {
      const statuses: number[] = []
      for (const key of keys) {
        const { status } = await ask(key, { model: ENDLESS.id, stream: true })
        statuses.push(status)
      }
      return statuses
    },
  }
}

const answers = (count: number, status: number): number[] => Array.from({ length: count }, () => status)

t.test('an organization with a stream on each of many keys leaves places to another', async t => {
  const { other, newKeys, ask, hold } = await start(t)
  const keys = await newKeys(PLACES + 1)
  const [first = '', ...others] = keys
  t.same(await hold(...others), answers(PLACES, 200))
  t.equal(await ask(other.apiKey), 200)
  t.same(await hold(other.apiKey, other.apiKey, other.apiKey), answers(3, 200), 'more than on any other key')
  for (const key of [first, ...others.slice(0, 3)]) t.equal(await ask(key), 503)
  t.same(await hold(other.apiKey), [200])
})

t.test('of an organization that is alone, the keys with most open are refused first', async t => {
  const { other, newKeys, ask, hold } = await start(t)
  const [busy = '', ...calm] = await newKeys(6)
  t.same(await hold(...answers(PLACES - 4, 0).map(() => busy), ...calm.slice(1)), answers(PLACES, 200))
  t.equal(await ask(busy), 503)
  t.same(await hold(...calm.slice(0, 2)), [200, 200])
  t.equal(await ask(busy), 503)
  t.same(await hold(other.apiKey), [200])
  for (const key of [busy, ...calm]) t.equal(await ask(key), 503, 'it is alone no more')
  t.equal(await ask(other.apiKey), 200)
})

t.test(
  'beside another organization, the keys with most open are refused before the others of theirs',
  async t => {
    const { other, newKeys, ask, hold } = await start(t)
    const [busy = '', ...calm] = await newKeys(4)
    t.same(
      await hold(...answers(PLACES - 2, 0).map(() => busy), other.apiKey, calm[0] ?? ''),
      answers(PLACES, 200),
    )
    t.equal(await ask(busy), 503)
    for (const key of calm) t.equal(await ask(key), 200)
  },
)

/**
 * Providers that are waited for, on a clock that the test moves: a deadline holds for all endpoints together, and an
 * endpoint that asks for time gets it while another one serves, however it says so.
 */
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { until } from '../support/patience.ts'
import { Provider } from '../support/provider.ts'
import { TestClock } from '../support/test-clock.ts'

const START_MS = Date.UTC(2026, 10, 29, 12, 0, 0)
const REQUEST_MS = 30_000

async function start(answerTo: ConstructorParameters<typeof Provider>[0]) {
  const clock = new TestClock(START_MS)
  const provider = new Provider(answerTo)
  const baseUrl = await provider.listen(t)
  const gateway = await startGateway({
    clock,
    timeouts: { upstreamHeadersMs: 20_000, upstreamIdleMs: 20_000, requestMs: REQUEST_MS },
    providers: ['one', 'two', 'three'].map(slug => ({
      slug,
      name: slug,
      format: 'openai-chat',
      baseUrl: `${baseUrl}/${slug}`,
      apiKey: 'k',
    })) as never,
    models: [
      {
        id: 'm/three',
        endpoints: ['one', 'two', 'three'].map(provider => ({ provider, upstreamModel: 'm' })),
      },
      { id: 'm/one', endpoints: [{ provider: 'one', upstreamModel: 'm' }] },
    ] as never,
  })
  t.teardown(() => gateway.close())
  return { clock, provider, gateway }
}

t.test('three endpoints that hang do not multiply the deadline', async t => {
  for (const stream of [true, false]) {
    const { clock, provider, gateway } = await start(() => ({ hangs: true }))
    let isOver = false
    const answered = gateway.respond({ model: 'm/three', input: 'hi', stream }).then(async reply => {
      const text = await reply.text()
      isOver = true
      return { status: reply.status, text }
    })
    await until('the first endpoint', () => provider.requests.length === 1)
    clock.advance(20_000)
    await until('the second endpoint', () => provider.requests.length === 2)
    clock.advance(REQUEST_MS - 20_000 - 1)
    t.equal(provider.running, 1, 'in time')
    t.equal(isOver, false)
    clock.advance(1)
    const { status, text } = await answered
    t.match(text, 'Operation timed out')
    // The signs of life of a stream have sent its status already.
    t.equal(status, stream ? 200 : 408)
    t.equal(provider.requests.length, 2, 'the third endpoint is not asked when the time is over')
  }
})

const WAITS: readonly (readonly [name: string, header: string, seconds: number])[] = [
  ['seconds', '3600', 3_600],
  ['a date', new Date(START_MS + 7_000).toUTCString(), 7],
  ['a date in the old form', 'Sunday, 29-Nov-26 12:00:09 GMT', 9],
  ['a date in the form of C', 'Sun Nov 29 12:00:11 2026', 11],
]

t.test('an endpoint that asks for time rests that long, and another one serves now', async t => {
  for (const [name, header, seconds] of WAITS) {
    const { clock, provider, gateway } = await start(({ base }) =>
      base === 'one'
        ? { status: 429, headers: { 'retry-after': header }, message: 'slow down' }
        : { text: 'Hello' },
    )
    const asked = () => provider.requests.filter(({ base }) => base === 'one').length
    const alone = await gateway.respond({ model: 'm/one', input: 'hi' })
    t.equal(alone.status, 429, name)
    t.equal(alone.headers.get('retry-after'), String(seconds), name)
    for (let request = 0; request < 3; request++) {
      const reply = await gateway.respond({ model: 'm/three', input: 'hi' })
      t.equal(reply.status, 200, name)
      t.match(await reply.text(), 'Hello', name)
    }
    t.equal(asked(), 1, `${name}: the endpoint that rests is not asked`)
    clock.advance((seconds - 1) * 1_000)
    t.equal((await gateway.respond({ model: 'm/one', input: 'hi' })).status, 429, name)
    t.equal(asked(), 1, `${name}: nor a second before the end`)
  }
})

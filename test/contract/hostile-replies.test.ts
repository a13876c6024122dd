/** Providers that send without end or measure: every caller gets a documented end, and nothing of it stays. */
import t, { type Test } from 'tap'
import { parseEventStream, startGateway, type TestGateway } from '../support/gateway.ts'
import { NO_SHEDDING } from '../support/gateway-process.ts'
import { ATTACKS, startHostileProvider } from '../support/hostile-provider.ts'
import { turns } from '../support/raw-http.ts'

async function start(t: Test, maxBufferedBytes: number): Promise<TestGateway> {
  const { port } = await startHostileProvider(t)
  const names = [...Object.keys(ATTACKS), 'good']
  const gateway = await startGateway({
    limits: { ...NO_SHEDDING, maxBufferedBytes },
    providers: names.map(slug => ({
      slug,
      name: slug,
      format: 'openai-chat' as const,
      baseUrl: `http://127.0.0.1:${port}/${slug}`,
      apiKey: 'none',
    })),
    models: names.map(name => ({ id: `hostile/${name}`, endpoints: [{ provider: name }] })) as never,
  })
  t.teardown(() => gateway.close())
  return gateway
}

/** How a reply ends: its status, or the last event of its stream. */
async function endOf(gateway: TestGateway, name: string, stream: boolean): Promise<unknown> {
  const reply = await gateway.respond({
    model: `hostile/${name}`,
    input: 'hi',
    stream,
    max_output_tokens: 1_000,
  })
  if (!reply.ok || !stream) {
    await reply.text()
    return reply.status
  }
  return parseEventStream(await reply.text()).at(-1)?.type
}

async function nothingHeld({ serving }: TestGateway): Promise<void> {
  while (serving.server.openRequests > 0 || serving.server.load.bufferedBytes > 0) await turns(1)
}

/** Of a stream, and of a whole reply. A provider may answer with a stream where none was asked for. */
const ENDS: Readonly<Record<string, readonly [streamed: unknown, whole: unknown]>> = {
  brackets: [502, 502],
  objects: [502, 502],
  strings: [502, 502],
  runaway: ['response.incomplete', 502],
  hangul: ['response.incomplete', 502],
  reasoning: ['response.incomplete', 502],
  arguments: ['response.incomplete', 502],
  deep: [502, 502],
  frame: [502, 502],
  comments: [502, 502],
  header: [502, 502],
  lines: [502, 502],
}

t.test('each hostile reply has its end, and leaves nothing behind', async t => {
  const gateway = await start(t, 64 * 1024 * 1024)
  t.same(
    Object.keys(ENDS),
    Object.keys(ATTACKS).filter(name => name !== 'silent'),
  )
  for (const [name, [streamed, whole]] of Object.entries(ENDS)) {
    t.equal(await endOf(gateway, name, true), streamed, `${name}, streamed`)
    t.equal(await endOf(gateway, name, false), whole, `${name}, whole`)
    await nothingHeld(gateway)
  }
  t.equal(await endOf(gateway, 'good', true), 'response.completed')
})

t.test('answers for which there is no room end as overloaded, and small ones go on beside them', async t => {
  const gateway = await start(t, 2 * 1024 * 1024)
  for (const name of ['runaway', 'hangul', 'reasoning', 'arguments']) {
    t.equal(await endOf(gateway, name, true), 'response.failed', name)
    t.equal(await endOf(gateway, 'good', true), 'response.completed')
  }
  const whole = await gateway.respond({ model: 'hostile/strings', input: 'hi' })
  t.equal(whole.status, 503)
  t.equal(whole.headers.get('retry-after'), '1')
  t.match(await whole.json(), { error: { metadata: { error_type: 'provider_overloaded' } } })
  await nothingHeld(gateway)
})

/** Which requests of a running gateway leave by a proxy, and what is counted. */
import { createServer, request as httpRequest } from 'node:http'
import t, { type Test } from 'tap'
import { createSim } from '../../src/apps/simulator/simulator.ts'
import { startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'

/** A proxy for plain HTTP that notes who asks for what. */
async function startProxy(t: Pick<Test, 'teardown'>) {
  const asked: string[] = []
  const proxy = createServer((request, response) => {
    const url = new URL(request.url ?? '')
    asked.push(`${url.pathname} ${request.headers['proxy-authorization'] ?? ''}`.trim())
    const { 'proxy-authorization': _, ...headers } = request.headers
    const onward = httpRequest(url, { method: request.method ?? 'GET', headers }, reply => {
      response.writeHead(reply.statusCode ?? 502, reply.headers)
      reply.pipe(response)
    })
    onward.on('error', () => response.destroy())
    response.on('close', () => onward.destroy())
    request.pipe(onward)
  })
  const { port } = await listening(proxy, t)
  return { asked, host: `127.0.0.1:${port}` }
}

const sim = createSim()
const { url: baseUrl } = await sim.listen()
const own = await startProxy(t)
const usual = await startProxy(t)
const row = { format: 'openai-responses', baseUrl, apiKey: 'simulated' } as const
const model = (provider: string) => ({
  id: `${provider}/echo`,
  endpoints: [{ provider, upstreamModel: 'echo' }],
})
const gateway = await startGateway({
  httpProxy: `http://${usual.host}`,
  providers: [
    { ...row, slug: 'mine', proxy: `http://user:pass%20word@${own.host}` },
    { ...row, slug: 'plain' },
    { ...row, slug: 'bare', proxy: 'none' },
    { ...row, slug: 'forced', proxy: 'none', transport: 'undici' },
  ],
  models: ['mine', 'plain', 'bare', 'forced'].map(model),
})
t.teardown(async () => {
  await gateway.close()
  await sim.close()
})

t.test('a row, the environment, or nobody names the proxy; the simulated provider has none', async t => {
  const auth = `Basic ${Buffer.from('user:pass word').toString('base64')}`
  const cases = [
    ['mine', [`/responses ${auth}`], []],
    ['plain', [], ['/responses']],
    ['bare', [], []],
    ['forced', [], []],
    ['sim', [], []],
  ] as const
  for (const [provider, byOwn, byUsual] of cases) {
    for (const stream of [false, true]) {
      own.asked.length = 0
      usual.asked.length = 0
      const reply = await gateway.respond({ model: `${provider}/echo`, input: 'one two', stream })
      t.match(await reply.text(), stream ? /event: response\.completed\n/ : /"status":"completed"/, provider)
      const inSight = (asked: readonly string[]) => asked.map(line => line.replace(/^\S*(?=\/responses)/, ''))
      t.same([inSight(own.asked), inSight(usual.asked)], [byOwn, byUsual], `${provider}, ${stream}`)
    }
  }
})

t.test('requests that are sent once more are counted', async t => {
  const text = await gateway.serving.metrics.registry.metrics()
  t.match(text, /^gateway_upstream_replays_total 0$/m)
})

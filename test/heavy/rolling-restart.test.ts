/**
 * Twenty restarts beside a running instance: the new one listens on the same port before the old one is told to
 * stop. The client keeps its connections, and sends a request again only when a kept one turned out to be closed
 * before a byte of an answer came.
 */
import { randomBytes } from 'node:crypto'
import { Agent, request } from 'node:http'
import { join } from 'node:path'
import t from 'tap'
import { freePort } from '../support/free-port.ts'
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts'
import { responsesPost } from '../support/responses-post.ts'
import { tempFolder } from '../support/temp-folder.ts'
import { startProviders } from './provider-process.ts'

const RESTARTS = Number(process.env['RESTARTS'] ?? 20)
const STREAMS = 40
const PLAIN = 4

t.setTimeout(RESTARTS * 20_000 + 60_000)

interface Counts {
  completed: number
  again: number
  cut: number
  failed: string[]
}

t.test('rolling restarts under load lose nothing', async t => {
  const providers = await startProviders(t)
  const port = await freePort()
  const apiKey = `sk-gw-v1-${randomBytes(32).toString('hex')}`
  const folder = tempFolder('sluice-rolling')
  const start = (): Promise<GatewayProcess> =>
    startGatewayProcess(
      t,
      {
        ...providers.settings({ sim: ['write-60-20', 'write-90-20', 'write-3'] }),
        listen: { port, shared: true },
        // What happens on a machine that is too busy is not looked at here.
        limits: { maxLagMs: 10_000 },
      },
      {
        GATEWAY_PORT: '',
        GATEWAY_API_KEY: apiKey,
        GATEWAY_SERVE_THREADS: '2',
        DATABASE_URL: `sqlite:${join(folder, 'gateway.db')}`,
      },
    )
  let gateway = await start()
  t.equal(gateway.port, port)

  const agent = new Agent({ keepAlive: true, maxSockets: Number.POSITIVE_INFINITY })
  t.teardown(() => agent.destroy())
  const counts: Counts = { completed: 0, again: 0, cut: 0, failed: [] }
  let over = false
  const load = [
    ...Array.from({ length: STREAMS }, (_, index) =>
      untilOver({ model: index % 2 === 0 ? 'sim/write-60-20' : 'sim/write-90-20', stream: true }),
    ),
    ...Array.from({ length: PLAIN }, () => untilOver({ model: 'sim/write-3', stream: false })),
  ]
  async function untilOver(body: { model: string; stream: boolean }): Promise<void> {
    const text = JSON.stringify({ ...body, input: 'x' })
    while (!over) {
      const ended = await ask({ port, apiKey, agent, text, stream: body.stream })
      if (ended === 'completed') counts.completed++
      else if (ended === 'again') counts.again++
      else if (ended === 'cut') counts.cut++
      else counts.failed.push(ended)
      if (!body.stream) await new Promise(resolve => setTimeout(resolve, 20))
    }
  }

  const codes: (number | null)[] = []
  const exitMs: number[] = []
  let served = 0
  for (let round = 0; round < RESTARTS; round++) {
    const next = await start()
    const completed = counts.completed
    const sinceMs = performance.now()
    codes.push(await gateway.stop())
    exitMs.push(performance.now() - sinceMs)
    t.equal(gateway.stderr(), '')
    if (counts.completed > completed) served++
    gateway = next
  }
  over = true
  await Promise.all(load)
  t.equal(counts.cut, 0, 'streams that were cut')
  t.same(counts.failed, [], 'requests that failed')
  t.same(codes, Array(RESTARTS).fill(0), 'exit codes')
  t.equal(served, RESTARTS, 'requests were completed during each of the restarts')
  t.equal(await gateway.stop(), 0)
  t.comment(
    `${RESTARTS} restarts: ${counts.completed} requests completed, ${counts.cut} cut, ${counts.failed.length} failed, ` +
      `${counts.again} sent again on another connection; exit after ${Math.round(Math.min(...exitMs))} to ` +
      `${Math.round(Math.max(...exitMs))} ms`,
  )
})

/** `again`: a kept connection was closed before anything came of an answer. Otherwise what went wrong. */
function ask(options: {
  port: number
  apiKey: string
  agent: Agent
  text: string
  stream: boolean
}): Promise<string> {
  const { agent, text, stream, ...target } = options
  return new Promise(resolve => {
    const sent = request(responsesPost(target, agent, text), response => {
      let body = ''
      response.setEncoding('utf8')
      response.on('data', (chunk: string) => {
        body = stream ? (body + chunk).slice(-4096) : body + chunk
      })
      response.on('end', () => {
        if (response.statusCode !== 200) resolve(`status ${response.statusCode}: ${body.slice(0, 200)}`)
        else if (stream && !/event: response\.completed\n[\s\S]*data: \[DONE\]\n\n$/.test(body))
          resolve(`the stream ends with ${JSON.stringify(body.slice(-300))}`)
        else resolve('completed')
      })
      response.on('error', () => resolve('cut'))
    })
    sent.on('error', error => {
      const code = (error as NodeJS.ErrnoException).code ?? error.message
      resolve(sent.reusedSocket && code !== 'ECONNREFUSED' ? 'again' : code)
    })
    sent.end(text)
  })
}

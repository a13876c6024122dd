/** A silent provider: comments meanwhile, and a documented end when it stays silent. The real process, real time. */
import t from 'tap'
import { startGatewayProcess } from '../support/gateway-process.ts'
import { newAgent, openProbe, type ProbeResult } from '../support/stream-probe.ts'
import { startProviders } from './provider-process.ts'

t.setTimeout(60_000)

const HEARTBEAT_MS = 200
const MODELS = ['fail-slow-first-token-1100', 'fail-no-first-token', 'fail-stall', 'fail-drip-100', 'echo']

interface Heard extends ProbeResult {
  /** Frames in order, comments included, with the moment of each in milliseconds since the request. */
  readonly frames: readonly { readonly text: string; readonly atMs: number }[]
  readonly lastedMs: number
}

t.test('heartbeats and deadlines of streams', async t => {
  const providers = await startProviders(t)
  const start = (timeouts: Record<string, number>) =>
    startGatewayProcess(t, {
      ...providers.settings({ sim: MODELS, stamp: ['flow-3-900', 'flow-100-20'] }),
      timeouts: { heartbeatMs: HEARTBEAT_MS, ...timeouts },
    })
  const patient = await start({})
  const hasty = await start({ upstreamIdleMs: 1_500, requestMs: 3_000 })
  const agent = newAgent()
  t.teardown(() => agent.destroy())

  const hear = async ({ port, apiKey }: { port: number; apiKey: string }, model: string): Promise<Heard> => {
    const frames: { text: string; atMs: number }[] = []
    const startMs = performance.now()
    const onFrame = (text: string) => frames.push({ text, atMs: performance.now() - startMs })
    const { result } = openProbe({ model, input: 'hello', stream: true }, { port, apiKey, agent, onFrame })
    return { ...(await result), frames, lastedMs: performance.now() - startMs }
  }
  const isComment = (frame: { text: string }) => frame.text.startsWith(':')

  t.test('before the first token', async t => {
    const heard = await hear(patient, 'sim/fail-slow-first-token-1100')
    const first = heard.frames.findIndex(frame => !isComment(frame))
    t.ok(first >= 3 && first <= 6, `${first} comments in 1.1 s`)
    t.equal(heard.last, 'response.completed')
    t.equal(heard.fault, null)
    t.equal(heard.done, true)
    t.equal(heard.frames.at(-1)?.text, 'data: [DONE]', 'none after the end')
    const times = heard.frames.slice(0, first).map(frame => frame.atMs)
    const gaps = times.slice(1).map((atMs, at) => atMs - (times[at] ?? 0))
    t.comment(`comments at ${times.map(Math.round).join(', ')} ms`)
    t.ok(Math.max(...gaps) < 2 * HEARTBEAT_MS, 'at their interval')
    t.match(heard.headers, {
      'content-type': /^text\/event-stream/,
      'x-accel-buffering': 'no',
      'cache-control': 'no-cache, no-transform',
    })
    t.equal(heard.headers['content-length'], undefined)
    t.equal(heard.headers['content-encoding'], undefined)
  })

  for (const format of ['openai-responses', 'openai-chat']) {
    t.test(`between the events of ${format}`, async t => {
      const heard = await hear(patient, `stamp/${format}-flow-3-900`)
      t.equal(heard.last, 'response.completed')
      t.equal(heard.fault, null, 'the comments stand between frames and count as none')
      t.ok(heard.comments >= 9 && heard.comments <= 13, `${heard.comments} comments in 3 silences of 0.9 s`)
      const deltas = heard.frames.flatMap((frame, at) => (frame.text.includes('.delta') ? [at] : []))
      t.equal(deltas.length, 3)
      t.ok(heard.frames.slice(deltas[0], deltas[1]).some(isComment), 'between the first and the second')
      t.ok(heard.frames.slice(deltas[1], deltas[2]).some(isComment), 'between the second and the third')
    })
  }

  t.test('none in a stream that flows', async t => {
    const heard = await hear(patient, 'stamp/openai-responses-flow-100-20')
    t.equal(heard.last, 'response.completed')
    t.equal(heard.comments, 0)
  })

  t.test('a provider that drips parts of a frame: comments never inside one', async t => {
    const heard = await hear(hasty, 'sim/fail-drip-100')
    t.equal(heard.fault, null)
    t.ok(heard.comments > 3)
    t.equal(heard.done, true, 'ended by the deadline of the request')
    t.ok(heard.lastedMs > 2_900 && heard.lastedMs < 4_500, `after ${Math.round(heard.lastedMs)} ms`)
  })

  t.test('silent past the idle deadline before the first token: an error event, then [DONE]', async t => {
    const heard = await hear(hasty, 'sim/fail-no-first-token')
    t.equal(heard.status, 200)
    t.equal(heard.last, 'error')
    t.match(heard.frames.at(-2)?.text, /"sequence_number":0/)
    t.equal(heard.done, true)
    t.ok(heard.lastedMs > 1_400 && heard.lastedMs < 2_900, `after ${Math.round(heard.lastedMs)} ms`)
    t.ok(heard.comments >= 4)
  })

  t.test('silent past the idle deadline in the middle: response.failed, then [DONE]', async t => {
    const heard = await hear(hasty, 'sim/fail-stall')
    t.equal(heard.last, 'response.failed')
    t.equal(heard.fault, null)
    t.equal(heard.done, true)
    t.match(heard.frames.at(-2)?.text, /"status":"failed".*"error":\{/)
    t.ok(heard.lastedMs > 1_400 && heard.lastedMs < 2_900, `after ${Math.round(heard.lastedMs)} ms`)
  })

  t.test('longer than a request may take: response.failed, then [DONE]', async t => {
    const heard = await hear({ ...hasty }, 'stamp/openai-responses-flow-100-20')
    t.equal(heard.last, 'response.completed', 'two seconds are not too long')
    const endless = await startGatewayProcess(t, {
      ...providers.settings({ stamp: ['flow-1000-20'] }),
      timeouts: { heartbeatMs: HEARTBEAT_MS, requestMs: 1_500 },
    })
    for (const format of ['openai-responses', 'openai-chat']) {
      const cut = await hear(endless, `stamp/${format}-flow-1000-20`)
      t.equal(cut.last, 'response.failed')
      t.equal(cut.fault, null)
      t.equal(cut.done, true)
      t.ok(cut.events > 30)
      t.ok(cut.lastedMs > 1_400 && cut.lastedMs < 2_900, `after ${Math.round(cut.lastedMs)} ms`)
    }
    t.ok((await providers.state()).open === 0, 'the provider was hung up on')
    t.equal(await endless.metric('gateway_open_streams'), 0)
  })
})

/**
 * Mixed traffic for a long time: memory and descriptors stay where they are, and nothing fails that was not made to.
 * SOAK_MINUTES says how long (2), SOAK_CURVE names a file for the curve.
 */
import { writeFileSync } from 'node:fs'
import t from 'tap'
import { NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { eventually, mib, newAgent, openProbe, type ProbeResult, pause } from '../support/stream-probe.ts'
import { startProviders } from './provider-process.ts'

const MINUTES = Number(process.env['SOAK_MINUTES'] ?? 2)
const PER_SECOND = 150
const ABORTED = 0.2
const FAULTY = 0.1
const TICK_MS = 20
/** The lowest point of a window as long as a full cycle of the collector is what is held for good. */
const WINDOW_S = MINUTES >= 30 ? 60 : 5
/** Over half an hour the bound is what an operator would notice in a week. */
const SLOPE_MAX_MIB_PER_10_MINUTES = 1
/** Two minutes are too short for it; they show what each request leaves behind. */
const LEFT_BEHIND_MAX_BYTES = 700

t.setTimeout((MINUTES + 2) * 60_000)

const SOUND = [
  { model: 'sim/echo', stream: true },
  { model: 'sim/echo', stream: false },
  { model: 'stamp/openai-responses-flow-20-10', stream: true },
  { model: 'stamp/openai-chat-flow-20-10', stream: true },
  { model: 'stamp/openai-responses-flow-60-5', stream: true },
  { model: 'sim/reason', stream: true },
  { model: 'sim/reason', stream: false },
]
const FAULTS = [
  'status-500',
  'status-429',
  'reset',
  'close',
  'garbage',
  'cut-reset',
  'cut-end',
  'no-finish',
  'error-in-stream',
  'error-first',
].map(kind => ({ model: `sim/fail-${kind}`, stream: true }))

interface Sample {
  readonly seconds: number
  readonly rssMiB: number
  readonly descriptors: number
  readonly requests: number
}

/** Numbers from 0 to 1, the same in every run. */
function randomNumbers(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Of the straight line that fits best. */
function slopeOf(points: readonly { x: number; y: number }[]): number {
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
  const [meanX, meanY] = [mean(points.map(({ x }) => x)), mean(points.map(({ y }) => y))]
  const above = points.reduce((sum, { x, y }) => sum + (x - meanX) * (y - meanY), 0)
  return above / points.reduce((sum, { x }) => sum + (x - meanX) ** 2, 0)
}

/** The lowest sample of each window. */
function floorOf(samples: readonly Sample[]): Sample[] {
  const floors = new Map<number, Sample>()
  for (const sample of samples) {
    const window = Math.floor(sample.seconds / WINDOW_S)
    const lowest = floors.get(window)
    if (lowest === undefined || sample.rssMiB < lowest.rssMiB) floors.set(window, sample)
  }
  return [...floors.values()]
}

t.test(`${MINUTES} minutes of mixed traffic`, async t => {
  const providers = await startProviders(t)
  const sim = [...SOUND, ...FAULTS].map(({ model }) => model).filter(model => model.startsWith('sim/'))
  const gateway = await startGatewayProcess(
    t,
    {
      ...providers.settings({
        sim: [...new Set(sim.map(model => model.slice('sim/'.length)))],
        stamp: ['flow-20-10', 'flow-60-5'],
      }),
      limits: NO_SHEDDING,
    },
    { LOG_LEVEL: 'info' },
  )
  const agent = newAgent()
  t.teardown(() => agent.destroy())
  const random = randomNumbers(20_240)
  const pick = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)] as T

  const counts = { sent: 0, aborted: 0, faulty: 0, sound: 0 }
  const wrong: { model: string; result: ProbeResult }[] = []
  const running = new Set<Promise<void>>()
  const send = () => {
    counts.sent++
    const faulty = random() < FAULTY
    const kind = pick(faulty ? FAULTS : SOUND)
    const probe = openProbe(
      { ...kind, input: `word number ${counts.sent} of a conversation`, user: `user-${counts.sent}` },
      { port: gateway.port, apiKey: gateway.apiKey, agent },
    )
    const aborts = random() < ABORTED
    const timer = aborts ? setTimeout(() => probe.abort(), random() * 300) : null
    const over = probe.result.then(result => {
      running.delete(over)
      if (timer !== null) clearTimeout(timer)
      if (aborts) counts.aborted++
      else if (faulty) counts.faulty++
      else counts.sound++
      if (!aborts && !isRight(result, faulty, kind.stream)) wrong.push({ model: kind.model, result })
    })
    running.add(over)
  }

  const samples: Sample[] = []
  const startMs = performance.now()
  const endMs = startMs + MINUTES * 60_000
  let due = 0
  let sampledAtMs = 0
  for (let nowMs = startMs; nowMs < endMs; nowMs = performance.now()) {
    due += (PER_SECOND * TICK_MS) / 1000
    // After a pause of this process the rest is sent late, but not in one burst that no traffic would have.
    for (let count = 0; counts.sent < due && count < 3 * PER_SECOND * (TICK_MS / 1000); count++) send()
    if (nowMs - sampledAtMs >= 1_000) {
      sampledAtMs = nowMs
      samples.push({
        seconds: Math.round((nowMs - startMs) / 1000),
        rssMiB: Math.round((gateway.rssBytes() / 1024 / 1024) * 100) / 100,
        descriptors: gateway.descriptors(),
        requests: counts.sent,
      })
    }
    await pause(TICK_MS)
  }
  await Promise.all(running)
  agent.destroy()

  // Heap and allocator take a quarter of an hour to settle, as the recorded curve shows.
  const warm = samples.filter(sample => sample.seconds > MINUTES * (MINUTES >= 30 ? 30 : 15))
  const floor = floorOf(warm)
  const slope = slopeOf(floor.map(({ seconds, rssMiB }) => ({ x: seconds / 600, y: rssMiB })))
  const leftBehind = slopeOf(floor.map(({ requests, rssMiB }) => ({ x: requests, y: rssMiB * 1024 * 1024 })))
  const half = Math.floor(warm.length / 2)
  // How many are open at a moment is the traffic's doing; how few they can be is what leaks show in.
  const lowest = (part: readonly Sample[]) => Math.min(...part.map(({ descriptors }) => descriptors))
  const highest = (part: readonly Sample[]) => Math.max(...part.map(({ descriptors }) => descriptors))
  t.comment(
    `${counts.sent} requests (${(counts.sent / MINUTES / 60).toFixed(0)} per second): ${counts.sound} sound, ` +
      `${counts.faulty} faulty, ${counts.aborted} aborted`,
  )
  t.comment(
    `RSS ${samples[0]?.rssMiB} MiB at the start, ${warm[0]?.rssMiB} after warm-up, ${warm.at(-1)?.rssMiB} at the end, ` +
      `peak ${mib(gateway.peakRssBytes())}; slope of its floor ${slope.toFixed(2)} MiB per 10 minutes, ` +
      `${leftBehind.toFixed(0)} bytes per request`,
  )
  t.comment(
    `descriptors: ${lowest(warm.slice(0, half))} to ${highest(warm.slice(0, half))}, ` +
      `then ${lowest(warm.slice(half))} to ${highest(warm.slice(half))}`,
  )
  const curve = process.env['SOAK_CURVE']
  if (curve !== undefined && curve !== '') {
    const figures = {
      minutes: MINUTES,
      perSecond: PER_SECOND,
      counts,
      slopeMiBPer10Minutes: slope,
      leftBehind,
    }
    writeFileSync(curve, `${JSON.stringify({ ...figures, samples })}\n`)
  }

  t.same(wrong.slice(0, 3), [], 'what was not made to fail does not')
  t.ok(counts.sent >= 0.9 * MINUTES * 60 * PER_SECOND, 'the traffic was about as planned')
  if (MINUTES >= 30) t.ok(slope <= SLOPE_MAX_MIB_PER_10_MINUTES, `${slope.toFixed(2)} MiB per 10 minutes`)
  else t.ok(leftBehind <= LEFT_BEHIND_MAX_BYTES, `${leftBehind.toFixed(0)} bytes per request`)
  t.ok(lowest(warm.slice(half)) <= lowest(warm.slice(0, half)) + 10, 'descriptors do not grow')
  const quiet = () => gateway.metric('gateway_open_streams').then(open => open === 0)
  t.ok(await eventually(quiet, 5_000), 'no stream is left open')
  t.ok(await eventually(async () => (await providers.state()).open === 0, 5_000))
  t.equal((await providers.state()).sim.openReplies, 0, 'the providers were hung up on')
  const counted = await gateway.metric('gateway_requests_total', { route: '/responses' })
  // Requests whose client left before their head was read never became requests.
  t.ok(counted <= counts.sent, `${counted} requests counted`)
  t.ok(counted >= counts.sent - ABORTED * 0.02 * counts.sent, 'as many requests were counted as were sent')
  t.equal(await gateway.stop(), 0)
  t.equal(gateway.stderr(), '')
})

/** A sound request is answered whole; a faulty one by its envelope or by a failure in the stream. */
function isRight(result: ProbeResult, faulty: boolean, stream: boolean): boolean {
  if (result.cut || result.fault !== null) return false
  if (!faulty && !stream) return result.status === 200 && result.body.includes('"status":"completed"')
  if (!faulty) return result.status === 200 && result.done && result.last === 'response.completed'
  if (result.status === 200)
    return result.done && (result.last === 'response.failed' || result.last === 'error')
  return [429, 500, 502, 503, 529].includes(result.status) && result.body.includes('"error":{')
}

/**
 * Everything a provider can do wrong, in every format, streamed and whole, alone and with a second endpoint to
 * fall back on: the status, the terminal event and the fallback are as documented, and nothing hangs.
 */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import { SIM_FORMATS, SIM_SLUG } from '../../src/apps/simulator/rows.ts'
import { TRANSPORTS, type TransportName } from '../../src/protocol/provider.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { CASES, type Expected, isFinal, SILENT, statusOf } from '../support/fault-cases.ts'
import { parseEventStream, startGateway, type TestGateway } from '../support/gateway.ts'
import { createFaultySim, FAULTS } from '../support/sim-faults.ts'
import { TestClock } from '../support/test-clock.ts'

type Format = (typeof SIM_FORMATS)[number]

const SILENT_SLUG = 'silent'
const SILENCE_MS = 2_000
const REQUEST_MS = 12_000
const DRIP_MS = 250

const alone = (format: string, fault: string) => `faults/${format}-${fault}`
const backed = (format: string, fault: string) => `backed/${format}-${fault}`
const endpoint = (provider: string, upstreamModel: string, format: Format) => ({
  provider,
  upstreamModel,
  format,
})

const modelsOf = (provider: string, kinds: readonly string[]) =>
  SIM_FORMATS.flatMap(format =>
    kinds.flatMap(kind => {
      const model = `fail-${kind}`
      const faulty = endpoint(provider, model, format)
      return [
        { id: alone(format, model), endpoints: [faulty] },
        { id: backed(format, model), endpoints: [faulty, endpoint(SIM_SLUG, 'echo', 'openai-chat')] },
      ]
    }),
  )

// No deadline of these ends anything: a fault that needs one would keep its test waiting.
const patientBy = async (transport: TransportName) => {
  const gateway = await startGateway({
    transport,
    timeouts: { upstreamHeadersMs: 120_000, upstreamIdleMs: 120_000, requestMs: 240_000 },
    models: modelsOf(
      SIM_SLUG,
      Object.keys(CASES).filter(kind => !SILENT.has(kind)),
    ),
  })
  t.teardown(() => gateway.close())
  return gateway
}
const patient = { direct: await patientBy('direct'), undici: await patientBy('undici') }

// The deadlines of this one run on a clock that the tests move, and so does the pace of what is sent to it.
const clock = new TestClock()
const pace = new TestClock()
const silent = createFaultySim({ clock: pace })
const { url: silentUrl, port: silentPort } = await silent.listen()
const upstream = watchUpstream(t, silentPort)
const hasty = await startGateway({
  clock,
  timeouts: { upstreamHeadersMs: SILENCE_MS, upstreamIdleMs: SILENCE_MS, requestMs: REQUEST_MS },
  providers: [
    {
      slug: SILENT_SLUG,
      name: 'Silent',
      format: 'openai-responses',
      baseUrl: silentUrl,
      apiKey: 'simulated',
    },
  ],
  models: modelsOf(SILENT_SLUG, [...SILENT]),
})
t.teardown(async () => {
  await hasty.close()
  await silent.close()
})

/** What this process, as a client, has to do with the server at this port. */
function watchUpstream(t: Pick<Test, 'teardown'>, port: number) {
  const sockets = new Set<Socket>()
  const opened = (message: unknown): void => {
    const { socket } = message as { readonly socket: Socket }
    socket.once('connect', () => {
      if (socket.remotePort === port) sockets.add(socket)
    })
  }
  subscribe('net.client.socket', opened)
  t.teardown(() => unsubscribe('net.client.socket', opened))
  return {
    /** Bytes that were read so far. */
    read: () => [...sockets].reduce((sum, socket) => sum + socket.bytesRead, 0),
    /** Connections that were not given up. */
    open: () => [...sockets].filter(socket => !socket.destroyed).length,
  }
}

/** Looks each time the event loop has turned. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise(resolve => setImmediate(resolve))
}

let checked = 0

t.test('the table names every fault there is', async t => {
  for (const kind of Object.keys(FAULTS)) {
    t.ok(
      Object.keys(CASES).some(name => name === kind || name.startsWith(`${kind}-`)),
      kind,
    )
  }
})

interface Variant {
  readonly kind: string
  readonly expected: Expected
  readonly format: Format
  readonly stream: boolean
  readonly fallback: boolean
}

/** Thousands of small reads, after the head of a good reply: no other endpoint is ever asked. */
const isDrip = (kind: string): boolean => kind.startsWith('drip-')

function* variants(silent: boolean): Generator<Variant> {
  for (const format of SIM_FORMATS)
    for (const [kind, expected] of Object.entries(CASES))
      for (const stream of [false, true])
        for (const fallback of [false, true])
          if (SILENT.has(kind) === silent && !(isDrip(kind) && fallback))
            yield { kind, expected, format, stream, fallback }
}

const nameOf = ({ kind, format, stream, fallback }: Variant): string =>
  `${kind} over ${format}, ${stream ? 'streamed' : 'whole'}${fallback ? ', with a fallback' : ''}`

const ask = (gateway: TestGateway, { kind, format, stream, fallback }: Variant): Promise<Response> =>
  gateway.respond({
    model: (fallback ? backed : alone)(format, `fail-${kind}`),
    input: 'one two three',
    stream,
  })

function check(t: Test, variant: Variant, reply: Response, text: string): void {
  const { kind, expected, format, stream, fallback } = variant
  checked++
  const committed = stream && Array.isArray(expected)
  const isWholeServed = !stream && statusOf(kind, expected, format) === null
  const served = expected === 'ok' || isWholeServed || (fallback && !committed && !isFinal(expected))
  if (served) {
    t.equal(reply.status, 200, text.slice(0, 300))
    if (stream) t.same(grammarViolations(parseEventStream(text)), [])
    else t.match(JSON.parse(text), { status: 'completed' })
  } else if (committed) {
    t.equal(reply.status, 200)
    const events = parseEventStream(text)
    t.same(grammarViolations(events), [])
    t.match(events.at(-1), {
      type: 'response.failed',
      response: { error: { message: String }, error_type: String },
    })
    t.ok(
      events.some(event => event.type === 'response.output_text.delta'),
      'what was said was delivered',
    )
  } else {
    const status = statusOf(kind, expected, format)
    t.equal(reply.status, status, text.slice(0, 300))
    t.match(JSON.parse(text), {
      error: { code: status, message: String, metadata: { error_type: String } },
    })
    t.equal(reply.headers.get('retry-after'), [429, 503].includes(Number(status)) ? '2' : null)
  }
}

// As many second attempts as the retry budget always allows.
t.test('what a provider sends', { jobs: 3 }, async t => {
  const all: PromiseLike<unknown>[] = []
  for (const transport of TRANSPORTS) {
    for (const variant of variants(false)) {
      // What a transport tells does not depend on the format.
      if (transport === 'undici' && variant.format !== 'openai-chat') continue
      all.push(
        t.test(`${transport}: ${nameOf(variant)}`, async t => {
          const reply = await ask(patient[transport], variant)
          check(t, variant, reply, await reply.text())
        }),
      )
    }
  }
  await Promise.all(all)
})

/** Makes the time pass in which the provider keeps silent, or says too little, once the gateway has heard the rest. */
async function outwait(
  t: Test,
  { kind, stream }: Variant,
  before: number,
  said: Promise<void>,
): Promise<void> {
  let leftMs = SILENCE_MS
  if (kind === 'drip-250') {
    // Each byte is in time: only the whole takes too long.
    for (leftMs = REQUEST_MS; leftMs > DRIP_MS; leftMs -= DRIP_MS) {
      await until(() => pace.armed > 0)
      const heard = upstream.read()
      pace.advance(DRIP_MS)
      await until(() => upstream.read() > heard)
      clock.advance(DRIP_MS)
    }
  } else if (kind === 'stall' && stream) await said
  else if (kind !== 'no-headers') await until(() => upstream.read() > before)
  clock.advance(leftMs - 1)
  t.equal(upstream.open(), 1, 'it is waited for until the deadline')
  clock.advance(1)
  t.equal(upstream.open(), 0, 'and no longer')
}

t.test('silence', async t => {
  // One after the other: they share a clock.
  for (const variant of variants(true)) {
    await t.test(nameOf(variant), async t => {
      const before = upstream.read()
      const { requests, closedEarly } = silent.state
      const said = Promise.withResolvers<void>()
      const answer = ask(hasty, variant).then(async reply => {
        let text = ''
        const decoder = new TextDecoder()
        for await (const bytes of reply.body as ReadableStream<Uint8Array>) {
          text += decoder.decode(bytes, { stream: true })
          if (text.includes('output_text.delta')) said.resolve()
        }
        return { reply, text }
      })
      await silent.until(state => state.requests > requests)
      await outwait(t, variant, before, said.promise)
      const { reply, text } = await answer
      check(t, variant, reply, text)
      await silent.until(state => state.closedEarly > closedEarly)
    })
  }
})

t.teardown(() => t.comment(`${checked} combinations of fault, format, streaming and fallback`))

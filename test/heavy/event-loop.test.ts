/** How long the streams of everybody wait while somebody else's large body is dealt with. */
import t from 'tap'
import { JSON_MAX_COMMAS, JSON_MAX_PARTS } from '../../src/protocol/limits.ts'
import { NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { newAgent, openProbe, pause, percentile } from '../support/stream-probe.ts'
import { startProviders } from './provider-process.ts'

const STREAMS = 20
const PACE_MS = 5
const MIB = 1024 * 1024
const ROUNDS = 5
/**
 * Processor time of one body, from its first byte to the end of its answer. A reader notices a pause in a text from
 * about a tenth of a second on, and not all of this is spent in one go. The pauses that streams see are told as well,
 * but on a machine that does other work they are that work's.
 */
const BODY_MAX_MS = 250

t.setTimeout(180_000)

const repeated = (element: string, count: number): string => `${`${element},`.repeat(count - 1)}${element}`

/** The most that is taken of each kind, and more than is taken. */
const BODIES: Readonly<Record<string, { readonly status: number; readonly body: () => string }>> = {
  'a conversation of very many small messages': {
    status: 200,
    body: () =>
      `{"model":"sim/refuse","input":[${repeated('{"role":"user","content":"hello"}', JSON_MAX_PARTS / 3 - 10)}]}`,
  },
  'very many small objects that nobody asked for': {
    status: 200,
    body: () => `{"model":"sim/refuse","input":"x","more":[${repeated('{"a":1}', JSON_MAX_PARTS / 2 - 10)}]}`,
  },
  'very many numbers that nobody asked for': {
    status: 200,
    body: () => `{"model":"sim/refuse","input":"x","more":[${repeated('12345678', JSON_MAX_COMMAS - 10)}]}`,
  },
  '19 MiB of numbers': {
    status: 400,
    body: () => `{"model":"sim/refuse","input":"x","more":[${repeated('12345678', 2 * MIB)}]}`,
  },
  '19 MiB of text': {
    status: 200,
    body: () => `{"model":"sim/refuse","input":"${'word '.repeat((19 * MIB) / 5)}"}`,
  },
  '19 MiB of small objects': {
    status: 400,
    body: () => `{"model":"sim/refuse","input":[${repeated('{"role":"user","content":"hello"}', 580_000)}]}`,
  },
}

for (const [name, { status, body: make }] of Object.entries(BODIES)) {
  t.test(name, async t => {
    const providers = await startProviders(t)
    const upstream = await startProviders(t, 'paced')
    const rows = [
      providers.settings({ sim: ['refuse'] }),
      upstream.settings({ stamp: [`flow-100000-${PACE_MS}`] }),
    ]
    const gateway = await startGatewayProcess(t, {
      providers: rows.flatMap(row => row.providers),
      // A text of 19 MiB is some five million tokens, and has to fit.
      models: rows
        .flatMap(row => row.models)
        .map(model => ({ ...(model as object), contextLength: 10_000_000 })),
      limits: NO_SHEDDING,
    })
    const { port, apiKey } = gateway
    let delaysMs: number[] = []
    const agent = newAgent()
    const onDelta = (delta: string, atMicros: number) => delaysMs.push((atMicros - Number(delta)) / 1000)
    const probes = Array.from({ length: STREAMS }, () =>
      openProbe(
        { model: `paced/openai-responses-flow-100000-${PACE_MS}`, input: 'x', stream: true },
        { port, apiKey, agent, onDelta },
      ),
    )
    await pause(2_000)
    const streamsMs = gateway.cpuMs()
    await pause(2_000)
    const streamsShare = (gateway.cpuMs() - streamsMs) / 2_000
    const told = (label: string) => {
      t.comment(
        `${label}: delay of tokens p50 ${percentile(delaysMs, 0.5).toFixed(1)}, p99 ${percentile(delaysMs, 0.99).toFixed(1)}, ` +
          `max ${percentile(delaysMs, 1).toFixed(0)} ms`,
      )
      delaysMs = []
    }
    told('nothing else')
    const body = Buffer.from(make())
    const took: number[] = []
    const beganMs = performance.now()
    const bodiesMs = gateway.cpuMs()
    for (let round = 0; round < ROUNDS; round++) {
      const startMs = performance.now()
      const reply = await fetch(`${gateway.url}/v1/responses`, {
        method: 'POST',
        headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
        body,
      })
      await reply.arrayBuffer()
      t.equal(reply.status, status)
      took.push(performance.now() - startMs)
      await pause(800)
    }
    const streamingMs = streamsShare * (performance.now() - beganMs)
    const eachMs = (gateway.cpuMs() - bodiesMs - streamingMs) / ROUNDS
    told(
      `${(body.length / MIB).toFixed(1)} MiB each second, each ${eachMs.toFixed(0)} ms of processor time, ` +
        `answered in ${percentile(took, 0.5).toFixed(0)} ms`,
    )
    t.ok(eachMs <= BODY_MAX_MS, `${eachMs.toFixed(0)} ms for each`)
    for (const probe of probes) probe.abort()
    const ended = await Promise.all(probes.map(probe => probe.result))
    t.same(
      ended.filter(result => result.fault !== null),
      [],
      'the streams were whole',
    )
    agent.destroy()
    t.equal(await gateway.stop(), 0)
  })
}

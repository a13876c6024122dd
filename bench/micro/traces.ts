/**
 * Cost of traces: on a serve thread for each kept and each other request, and on the main thread for each kept request,
 * from the thread's message to the bytes for a collector. `npm run bench:traces`. Figures are processor time of the
 * thread, as the median of several rounds. Nothing here waits: an unreachable collector costs the serve threads
 * nothing.
 */
import { once } from 'node:events'
import { MessageChannel, receiveMessageOnPort, Worker } from 'node:worker_threads'
import { systemClock } from '../../src/base/clock.ts'
import { createLog, type ExchangeLine } from '../../src/base/log/log.ts'
import { STAGES, Stopwatch } from '../../src/base/metrics/stages.ts'
import type { EndedTrace } from '../../src/base/telemetry/ended-trace.ts'
import { TraceExporter } from '../../src/base/telemetry/otlp/exporter.ts'
import { jsonOf } from '../../src/base/telemetry/otlp/json.ts'
import { protobufOf } from '../../src/base/telemetry/otlp/protobuf.ts'
import { spansOf } from '../../src/base/telemetry/otlp/spans.ts'
import { exportTerms } from '../../src/base/telemetry/otlp/terms.ts'
import { callerContext } from '../../src/base/telemetry/trace-context.ts'
import { TracedStopwatch, Tracing } from '../../src/base/telemetry/tracing.ts'

const REQUESTS = 20_000
const ROUNDS = 9
/** As a thread hands them over at some 400 kept requests a second. */
const TOGETHER = 100
/** Stages of a plain request. */
const ENTERED = STAGES.slice(0, 8)

const ENDPOINT = {
  provider: { slug: 'acme' },
  modelId: 'acme/large',
  upstreamModel: 'large-2026',
  region: 'europe',
}
const REQUEST = { model: 'acme/large', stream: true, temperature: 0.5, max_output_tokens: 4_000 }
const END = {
  status: 200,
  error: null,
  isOutrun: false,
  upstreamId: 'chatcmpl-0123456789abcdef',
  finish: 'stop',
  usage: {
    inputTokens: 1_200,
    cachedTokens: 800,
    cacheWriteTokens: 0,
    outputTokens: 240,
    reasoningTokens: 0,
  },
}
const LINE: ExchangeLine = {
  id: 'gen-1784203205-6wcd0YpK0bJUv2mR1x3T',
  requestId: 'req-1',
  traceId: '0af7651916cd43dd8448eb211c80319c',
  spanId: 'b7ad6b7169203331',
  method: 'POST',
  route: '/responses',
  status: 200,
  outcome: 'completed',
  durationMs: 842.1,
  firstTokenMs: 210.4,
  model: 'acme/large',
  requestedModel: 'acme/large',
  provider: 'acme',
  attempts: 1,
  failedAttempts: [],
  inputTokens: 1_200,
  outputTokens: 240,
  finish: 'stop',
  cost: 81_200_000,
  error: null,
  userAgent: 'OpenAI/JS',
  key: 'sk-gw-v1-5f7…6ef',
  workspace: '00000000-0000-4000-8000-000000000000',
  organization: 'org_default',
}
const HEADER = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00'

/** What a request of one attempt does for its trace, or does without one. */
function ask(tracing: Tracing | null): void {
  const nowMs = systemClock.monotonicMs()
  const watch = tracing === null ? new Stopwatch(nowMs) : new TracedStopwatch(nowMs)
  const trace = tracing === null ? null : tracing.begin()
  const caller = callerContext(HEADER)
  if (caller !== null) trace?.join(caller)
  for (const stage of ENTERED) watch.enter(stage, nowMs)
  if (trace === null) return
  const spans = trace.open({ id: LINE.id, watch, request: REQUEST }, 'chat', null)
  const attempt = spans.attempt(ENDPOINT, { kind: 'first', isByok: false, turn: 0 }, nowMs)
  spans.header(attempt)
  attempt.host = 'api.acme.example'
  attempt.port = 443
  attempt.sentMs = nowMs
  attempt.headMs = nowMs
  attempt.firstMs = nowMs
  attempt.firstTokenMs = 210.4
  void trace.response
  spans.endAttempt(attempt, END, 81_200_000, nowMs)
  spans.charge(81_200_000, 1, 'completed', null, nowMs)
  tracing?.endTrace(trace, LINE, watch as TracedStopwatch, nowMs)
}

/** Microseconds of this thread for each request: the median of the rounds, the lowest and the highest. */
function measured(run: (requests: number) => void, prepare: () => void = () => undefined): readonly number[] {
  const rounds = Array.from({ length: ROUNDS }, () => {
    prepare()
    const before = process.threadCpuUsage()
    run(REQUESTS)
    const { user, system } = process.threadCpuUsage(before)
    return (user + system) / REQUESTS
  }).toSorted((a, b) => a - b)
  return [rounds[ROUNDS >> 1] ?? 0, rounds[0] ?? 0, rounds.at(-1) ?? 0]
}

function print(name: string, [middle = 0, low = 0, high = 0]: readonly number[], less = 0): number {
  const figures = [middle, low, high].map(each => (each - less).toFixed(2))
  process.stdout.write(`${name.padEnd(64)} ${figures[0]} µs (${figures[1]}..${figures[2]})\n`)
  return middle
}

/** Requests of a thread with traces. `trust`: `always` lets the caller's flag hide all of them. */
function serving(trust: 'always' | 'never'): { run(requests: number): void; drain(): void } {
  const { port1, port2 } = new MessageChannel()
  port1.unref()
  port2.unref()
  const tracing = tracingTo(traces => port1.postMessage(traces), trust)
  return {
    run: requests => askAll(tracing, requests),
    drain() {
      while (receiveMessageOnPort(port2) !== undefined);
    },
  }
}

/** Traces are handed over by `askAll`, so that a round has all its messages. */
function tracingTo(send: (traces: readonly EndedTrace[]) => void, trust: 'always' | 'never'): Tracing {
  const clock = { ...systemClock, after: () => ({ cancel: () => undefined }) }
  return new Tracing({ clock, send }, { share: 1, keepSlowerThanMs: 3_600_000, trust })
}

function askAll(tracing: Tracing, requests: number): void {
  for (let done = 0; done < requests; done += TOGETHER) {
    for (let at = 0; at < TOGETHER; at++) ask(tracing)
    tracing.flush()
  }
}

const off = measured(requests => {
  for (let at = 0; at < requests; at++) ask(null)
})
const [base = 0] = off
print('serve thread, traces off', off)
for (const [name, trust] of [
  ['request that is not kept', 'always'],
  ['kept request', 'never'],
] as const) {
  const { run, drain } = serving(trust)
  print(`serve thread, more for each ${name}`, measured(run, drain), base)
}

const { port1, port2 } = new MessageChannel()
port1.unref()
port2.unref()
/** Messages of a thread with the traces that it keeps. */
const messages: (readonly EndedTrace[])[] = []
askAll(
  tracingTo(traces => void messages.push(structuredClone(traces)), 'never'),
  REQUESTS,
)
const received = (): readonly EndedTrace[] => receiveMessageOnPort(port2)?.message as readonly EndedTrace[]
const post = (): void => {
  for (const traces of messages) port1.postMessage(traces)
}
const RESOURCE = { 'service.name': 'sluice', 'service.version': '1.0.0' }
/** Reads each message of the thread, and gives it on. */
const reading = (then: (traces: readonly EndedTrace[]) => unknown) => (): void => {
  for (let at = 0; at < messages.length; at++) then(received())
}
print(
  'main thread, reads the message, for each kept trace',
  measured(
    reading(() => null),
    post,
  ),
)
print(
  'main thread, reads it, makes spans',
  measured(
    reading(traces => traces.flatMap(spansOf)),
    post,
  ),
)
for (const [name, encode] of [
  ['protobuf', protobufOf],
  ['JSON', jsonOf],
] as const)
  print(
    `main thread, reads it, makes spans and ${name}`,
    measured(
      reading(traces => encode(traces.flatMap(spansOf), RESOURCE)),
      post,
    ),
  )

/** A collector in a thread of its own, whose time does not count. */
const collector = new Worker(
  `const { createServer } = require('node:http')
   const server = createServer((request, response) => request.resume().on('end', () => response.end('{}')))
   server.listen(0, '127.0.0.1', () => require('node:worker_threads').parentPort.postMessage(server.address().port))`,
  { eval: true },
)
const [port] = (await once(collector, 'message')) as [number]
const terms = exportTerms(
  {
    endpoint: `http://127.0.0.1:${port}`,
    tracesUrl: null,
    protocol: 'http/protobuf',
    timeoutMs: 10_000,
    compression: 'none',
    headers: {},
    serviceName: 'sluice',
    resource: {},
  },
  '1.0.0',
)
if (terms === null) throw new TypeError('traces are on')
let sent = 0
let spans = 0
const exporter = new TraceExporter(
  {
    clock: systemClock,
    log: createLog('silent', { write: () => undefined }),
    counts: {
      count(outcome, many) {
        if (outcome === 'sent') sent += many
        else throw new Error(`${many} spans were ${outcome}`)
      },
    },
  },
  terms,
)
const rounds: number[] = []
for (let round = 0; round < ROUNDS; round++) {
  post()
  const before = process.threadCpuUsage()
  for (let at = 0; at < messages.length; at++) {
    const traces = received()
    spans +=
      traces.flatMap(({ exchanges }) => exchanges.flatMap(({ attempts }) => attempts)).length + traces.length
    exporter.add(traces, 0)
    // As far as a collector keeps up.
    while (exporter.waiting > 2_000) await new Promise(resolve => setImmediate(resolve))
  }
  while (sent < spans) await new Promise(resolve => setTimeout(resolve, 5))
  const { user, system } = process.threadCpuUsage(before)
  rounds.push((user + system) / REQUESTS)
}
const sorted = rounds.toSorted((a, b) => a - b)
print('main thread, from the message to the answer of the collector', [
  sorted[ROUNDS >> 1] ?? 0,
  sorted[0] ?? 0,
  sorted.at(-1) ?? 0,
])
await exporter.close()
await collector.terminate()

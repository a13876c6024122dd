/**
 * `npm run bench:calls -- REV [REV_B]`: counts what one request costs the serve thread: calls, distinct functions and
 * files of our sources, promises, timers and immediates. The counts do not depend on how busy the machine is.
 */
import { once } from 'node:events'
import { mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface, type Interface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import type { CalledFunction, CounterCommand, MadeThing } from './calls/counter.ts'
import { ALONE, type CountedProvider, startCountedProvider } from './calls/provider.ts'
import { providerSlug, startGateway } from './gateway.ts'
import { endOnSignals, stopAll } from './processes.ts'
import { runnable } from './revision.ts'
import type { Scenario } from './scenarios.ts'
import { type Bench, bodyOf, commonHeaders } from './subjects.ts'
import { PATHS, planName, type Wire } from './wire.ts'

const ROOT = join(import.meta.dirname, '..')
const API_KEY = 'sk-gw-v1-3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d'
/** Deltas of a counted stream. */
const DELTAS = 200
const TEXT_BYTES = 40
/** Connections are open, keys and routes known, and everything that is made lazily is made. */
const WARM_REQUESTS = 30
/** A count is the median over this many requests, each counted alone. */
const COUNTED_REQUESTS = 9
/** The sample of the thread's load, which a timer takes; what it calls is no part of a request. */
const SAMPLE = { file: 'server/admission/load.ts', name: '#sample' }
/** What watches the turns of the loop, a call for each; turns belong to the thread, not to a request. */
const TURN_WATCH = 'process/threads/loop-turns.ts'
const IDLE_MS = 600
/** For the usage record and the log line, which a reply does not wait for. */
const SETTLE_MS = 40
const SHOWN = 25
const USAGE = `npm run bench:calls -- REV [REV_B] [--show N] [--only WORDS] [--traces SHARE]

  REV, REV_B  revisions git knows, or folders with sources and packages; . is the working tree
  --show      functions whose calls differ (of REV alone: the most called) that are printed; ${SHOWN} without it
  --only      requests whose names have these words
  --traces    with traces, of which this share (0 to 1) is kept, for a collector that is not there
`

interface CountedCase {
  readonly name: string
  /** What the provider speaks. */
  readonly wire: Wire
  /** What the client speaks. */
  readonly clients: Wire
  /** Without vendor. */
  readonly model: string
  readonly stream: boolean
  readonly tools?: readonly object[]
}

const JSON_MODEL = planName({ kind: 'json', textBytes: 1_000 })
const STREAM_MODEL = planName({ kind: 'stream', events: DELTAS, spacingMs: 0, textBytes: TEXT_BYTES })
const JSON_REPLY = { model: JSON_MODEL, stream: false } as const
const TOGETHER = { model: STREAM_MODEL, stream: true } as const
const EACH_ALONE = { model: STREAM_MODEL + ALONE, stream: true } as const
const RESPONSES = { wire: 'openai-responses', clients: 'openai-responses' } as const
const CHAT = { wire: 'openai-chat', clients: 'openai-chat' } as const
const MESSAGES = { wire: 'anthropic-messages', clients: 'anthropic-messages' } as const
const CHAT_TO_RESPONSES = { wire: 'openai-chat', clients: 'openai-responses' } as const

/** Ten deltas come in one read where nothing else is said. */
const CASES: readonly CountedCase[] = [
  { name: 'JSON', ...RESPONSES, ...JSON_REPLY },
  { name: `stream, relayed, ${DELTAS} deltas`, ...RESPONSES, ...TOGETHER },
  { name: `stream, chat to Responses, ${DELTAS} deltas`, ...CHAT_TO_RESPONSES, ...TOGETHER },
  { name: `stream, relayed, ${DELTAS} deltas alone in a read`, ...RESPONSES, ...EACH_ALONE },
  {
    name: `stream, chat to Responses, ${DELTAS} deltas alone in a read`,
    ...CHAT_TO_RESPONSES,
    ...EACH_ALONE,
  },
  { name: 'JSON, chat to Responses', ...CHAT_TO_RESPONSES, ...JSON_REPLY },
  { name: 'JSON, chat to chat', ...CHAT, ...JSON_REPLY },
  { name: 'JSON, Messages to Messages', ...MESSAGES, ...JSON_REPLY },
  {
    name: 'JSON, a server tool of two turns',
    ...RESPONSES,
    ...JSON_REPLY,
    tools: [{ type: 'gateway:datetime' }],
  },
]

/** Calls by function, as `file name`. */
type Calls = ReadonlyMap<string, CalledFunction>

interface Counts {
  readonly calls: Calls
  /** By kind and place. */
  readonly made: ReadonlyMap<string, number>
}

function settings() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { show: { type: 'string' }, only: { type: 'string' }, traces: { type: 'string' } },
  })
  const [first, second] = positionals
  if (first === undefined || positionals.length > 2) throw new Error(USAGE)
  return {
    revisions: second === undefined ? [first] : [first, second],
    shown: Number(values.show ?? SHOWN),
    cases: CASES.filter(({ name }) => name.includes(values.only ?? '')),
    ...(values.traces === undefined ? {} : { tracing: tracingOf(Number(values.traces)) }),
  }
}

/** Nobody listens at the port: no request may notice that. */
const tracingOf = (share: number) => ({ endpoint: 'http://127.0.0.1:9', share, keepSlowerThanMs: 3_600_000 })

/** Sends commands to the counter in the serve thread. */
class Counter {
  readonly #socket: Socket
  readonly #lines: Interface

  constructor(socket: Socket) {
    this.#socket = socket
    this.#lines = createInterface({ input: socket })
  }

  async ask(command: CounterCommand): Promise<unknown> {
    const answered = once(this.#lines, 'line')
    this.#socket.write(`${command}\n`)
    const [line] = (await answered) as [string]
    return JSON.parse(line)
  }

  close(): void {
    this.#socket.destroy()
  }
}

async function countRevision(
  revision: string,
  index: number,
  folder: string,
  provider: CountedProvider,
  cases: readonly CountedCase[],
  tracing: object | undefined,
): Promise<Counts[]> {
  const tree = realpathSync(runnable(ROOT, revision, folder))
  const bench: Bench = {
    folder,
    upstream: { plain: provider.port, tls: provider.port, http2: provider.port },
    certificate: '',
    proxyCore: null,
    plans: [...new Set(cases.map(({ model }) => model))],
    apiKey: API_KEY,
    root: tree,
  }
  const socketPath = join(folder, `counter-${index}`)
  const preload = pathToFileURL(join(import.meta.dirname, 'calls/counter.ts'))
  preload.searchParams.set('socket', socketPath)
  preload.searchParams.set('root', pathToFileURL(join(tree, 'src/')).href)
  // A loaded machine must not make it shed requests.
  const limits = { maxLagMs: 3_600_000 }
  const gateway = await startGateway(bench, index === 0 ? 'before' : 'after', revision, {
    preload,
    limits,
    isCold: true,
    ...(tracing === undefined ? {} : { tracing }),
  })
  const socket = connect(socketPath)
  await once(socket, 'connect')
  const counter = new Counter(socket)
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  const { port } = gateway.target({ wire: 'openai-responses', tls: false } as Scenario)
  const send = async (one: CountedCase): Promise<void> => {
    await ask(agent, port, one)
    await pause(SETTLE_MS)
  }
  try {
    const calls: Calls[] = []
    // Counted calls first: a hook for promises, once set, stays for good.
    await counter.ask('start-calls')
    await send(cases[0] as CountedCase)
    await counter.ask('take-calls')
    await pause(IDLE_MS)
    const idle = (await counter.ask('take-calls')) as CalledFunction[]
    for (const one of cases) {
      for (let at = 0; at < WARM_REQUESTS; at++) await send(one)
      const samples: CalledFunction[][] = []
      for (let at = 0; at < COUNTED_REQUESTS; at++) {
        await counter.ask('take-calls')
        await send(one)
        samples.push(withoutSamples((await counter.ask('take-calls')) as CalledFunction[], idle))
      }
      calls.push(medianCalls(samples))
    }
    await counter.ask('start-made')
    const madeThings: ReadonlyMap<string, number>[] = []
    for (const one of cases) {
      await send(one)
      const samples: MadeThing[][] = []
      for (let at = 0; at < COUNTED_REQUESTS; at++) {
        await counter.ask('take-made')
        await send(one)
        samples.push((await counter.ask('take-made')) as MadeThing[])
      }
      madeThings.push(medianMade(samples))
    }
    return calls.map((one, at) => ({ calls: one, made: madeThings[at] ?? new Map() }))
  } finally {
    counter.close()
    agent.destroy()
    await gateway.stop()
  }
}

/** The end of a reply, whole or streamed. */
const ENDED: Readonly<Record<Wire, RegExp>> = {
  'openai-responses': /"status":"completed"/,
  'openai-chat': /"finish_reason":"stop"/,
  'anthropic-messages': /"stop_reason":"end_turn"/,
}

/** One request, head and body in one packet. @throws Error when it is not answered with 200 */
async function ask(agent: Agent, port: number, one: CountedCase): Promise<void> {
  const { wire, clients, model, stream, tools } = one
  const plain = bodyOf(clients, `${providerSlug(wire, false)}/${model}`, stream)
  const body = tools === undefined ? plain : JSON.stringify({ ...JSON.parse(plain), tools })
  const headers = {
    ...commonHeaders({ apiKey: API_KEY } as Bench),
    'content-length': Buffer.byteLength(body),
  }
  const clientRequest = request({
    agent,
    host: '127.0.0.1',
    port,
    path: PATHS[clients],
    method: 'POST',
    headers,
  })
  clientRequest.end(body)
  const [reply] = await once(clientRequest, 'response')
  let text = ''
  reply.setEncoding('utf8')
  for await (const piece of reply) text += piece
  if (reply.statusCode !== 200 || !ENDED[clients].test(text))
    throw new Error(`${one.name}: answered ${reply.statusCode} ${text.slice(0, 200)}`)
}

/** Takes away what the samples of the load have called, as an `idle` thread tells it. */
function withoutSamples(
  counted: readonly CalledFunction[],
  idle: readonly CalledFunction[],
): CalledFunction[] {
  const samples = samplesIn(counted) / Math.max(1, samplesIn(idle))
  const own = new Map(idle.map(one => [`${one.file} ${one.name}`, Math.round(one.calls * samples)]))
  return counted.flatMap(one => {
    if (one.file === TURN_WATCH) return []
    const calls = one.calls - (own.get(`${one.file} ${one.name}`) ?? 0)
    return calls > 0 ? [{ ...one, calls }] : []
  })
}

function samplesIn(counted: readonly CalledFunction[]): number {
  return counted.find(({ file, name }) => file === SAMPLE.file && name.startsWith(SAMPLE.name))?.calls ?? 0
}

function medianCalls(samples: readonly (readonly CalledFunction[])[]): Calls {
  const known = new Map<string, CalledFunction>()
  const counts = new Map<string, number[]>()
  for (const [at, sample] of samples.entries()) {
    for (const one of sample) {
      const key = `${one.file} ${one.name}`
      known.set(key, one)
      const all = counts.get(key) ?? samples.map(() => 0)
      all[at] = one.calls
      counts.set(key, all)
    }
  }
  return new Map(
    [...known].flatMap(([key, one]) => {
      const calls = median(counts.get(key) ?? [])
      return calls === 0 ? [] : [[key, { ...one, calls }] as const]
    }),
  )
}

function medianMade(samples: readonly (readonly MadeThing[])[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number[]>()
  for (const [at, sample] of samples.entries()) {
    for (const { kind, place } of sample) {
      const key = `${kind} ${place}`
      const all = counts.get(key) ?? samples.map(() => 0)
      all[at] = (all[at] ?? 0) + 1
      counts.set(key, all)
    }
  }
  return new Map(
    [...counts].map(([key, all]) => [key, median(all)] as const).filter(([, count]) => count > 0),
  )
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0
}

function figures({ calls, made }: Counts): number[] {
  const all = [...calls.values()]
  const madeOf = (kind: MadeThing['kind']): number =>
    sum([...made].filter(([key]) => key.startsWith(`${kind} `)).map(([, count]) => count))
  return [
    sum(all.map(one => one.calls)),
    all.length,
    new Set(all.map(one => one.file)).size,
    madeOf('promise'),
    madeOf('timer'),
    madeOf('immediate'),
  ]
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}

/** The functions whose calls differ most; of one revision alone, the most called. A file may have moved. */
function differing(sides: readonly Counts[], shown: number): string[] {
  const byName = ({ calls, made }: Counts): Map<string, number> => {
    const counts = new Map<string, number>()
    const add = (name: string, count: number): void => void counts.set(name, (counts.get(name) ?? 0) + count)
    for (const { file, name, calls: count } of calls.values())
      add(`${sides.length === 1 ? file : baseName(file)} ${name.replace(/@\d+$/, '')}`, count)
    for (const [key, count] of made) {
      const [kind, place = ''] = key.split(' ')
      add(`${kind} ${place}`, count)
    }
    return counts
  }
  const [before = new Map<string, number>(), after] = sides.map(byName)
  const names = new Set([...before.keys(), ...(after?.keys() ?? [])])
  return [...names]
    .map(name => ({ name, was: before.get(name) ?? 0, is: after?.get(name) ?? 0 }))
    .filter(({ was, is }) => was !== is)
    .toSorted((a, b) => Math.abs(b.is - b.was) - Math.abs(a.is - a.was))
    .slice(0, shown)
    .map(({ name, was, is }) => (after === undefined ? `  ${was}  ${name}` : `  ${was} -> ${is}  ${name}`))
}

function baseName(file: string): string {
  return file.slice(file.lastIndexOf('/') + 1)
}

async function main(): Promise<void> {
  const { revisions, shown, cases, tracing } = settings()
  if (cases.length === 0) throw new Error(USAGE)
  const folder = mkdtempSync(join(tmpdir(), 'sluice-calls-'))
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  const provider = await startCountedProvider()
  try {
    const sides: Counts[][] = []
    for (const [index, revision] of revisions.entries())
      sides.push(await countRevision(revision, index, folder, provider, cases, tracing))
    const lines = [
      '| request | revision | calls | functions | files | promises | timers | immediates |',
      '| --- | --- | --- | --- | --- | --- | --- | --- |',
      ...cases.flatMap(({ name }, at) =>
        sides.map(
          (side, index) =>
            `| ${[name, revisions[index], ...figures(side[at] ?? { calls: new Map(), made: new Map() })].join(' | ')} |`,
        ),
      ),
    ]
    for (const [at, { name }] of cases.entries()) {
      const counts = sides.flatMap(side => side[at] ?? [])
      lines.push('', `${name}:`, ...differing(counts, shown))
    }
    process.stdout.write(`${lines.join('\n')}\n`)
  } finally {
    provider.close()
    await stopAll()
  }
}

endOnSignals()

try {
  await main()
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`)
  process.exitCode = 2
}

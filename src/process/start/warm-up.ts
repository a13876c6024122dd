/**
 * Warm-up of a serve thread: sends requests to a private gateway with the simulated provider over real sockets, so that
 * V8 compiles the code that requests need. It runs while callers leave the thread idle. It leaves no trace: it has its
 * own store, spool, counters, metrics and log, which are deleted. Composition root.
 */
import type { KeyObject } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { Agent, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SIM_FORMATS, simModel } from '../../apps/simulator/rows.ts'
import { createSim } from '../../apps/simulator/simulator.ts'
import { systemClock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { createKey } from '../../callers/api-key.ts'
import type { VaultKey } from '../../providers/credentials/vault-keys.ts'
import { loadFront } from '../../server/http-libraries.ts'
import type { Config } from '../config/settings.ts'
import { withoutCatalogueSettings } from '../wiring/catalog.ts'
import { buildGateway } from '../wiring/gateway.ts'
import { buildServer } from '../wiring/wiring.ts'

export interface WarmUpOptions {
  readonly config: Config
  readonly endUserKey: KeyObject
  readonly vaultKeys: readonly VaultKey[]
  /** Receives only the failure of the warm-up, which is no reason not to serve. */
  readonly log: Pick<Log, 'fault'>
  /** Number of requests after which it ends early. Default: unlimited. */
  readonly requestsMax?: number
  /** True while callers wait for the thread: no request is then started. Default: nobody waits. */
  readonly isBusy?: () => boolean
  /** Ends it early. */
  readonly signal?: AbortSignal
}

/** Concurrent requests: few, because an arriving caller waits for them. */
const CONCURRENT_REQUESTS = 2
/** Callers who waited for startup arrive at once, and are served first. */
const PAUSE_MS = 50
/** A simulated model that writes 40 tokens. */
const MODEL = 'write-40'
const HOST = '127.0.0.1'

const WARM_UP_LIMITS = {
  maxInFlight: 1_000,
  openPerKey: 1_000,
  waitingPerKey: 0,
  maxConnections: 1_000,
  socketsPerKey: 1,
  connectionsPerAddress: 0,
} as const

const SILENT_LOG: Log = {
  exchange: () => undefined,
  listening: () => undefined,
  notice: () => undefined,
  fault: () => undefined,
}

/** Sends requests for `threads.warmUpMs`, including pauses for callers. Returns their number; never rejects. */
export async function warmUp({ log, ...options }: WarmUpOptions): Promise<number> {
  const durationMs = options.config.threads.warmUpMs
  if (durationMs === 0) return 0
  try {
    const idlePeriods = new IdlePeriods(options, performance.now() + durationMs)
    await pause()
    return (await idlePeriods.next()) ? await runAgainstSim(options, idlePeriods) : 0
  } catch (error) {
    log.fault('threads', 'the warm-up failed; the first requests will be slower', error)
    return 0
  }
}

/** The periods in which nobody waits for the thread. */
class IdlePeriods {
  readonly #isBusy: () => boolean
  readonly #signal: AbortSignal | undefined
  readonly #untilMs: number

  constructor({ isBusy = () => false, signal }: Pick<WarmUpOptions, 'isBusy' | 'signal'>, untilMs: number) {
    this.#isBusy = isBusy
    this.#signal = signal
    this.#untilMs = untilMs
  }

  /** Resolves at the next one; false if there are no more. */
  async next(): Promise<boolean> {
    while (performance.now() < this.#untilMs && this.#signal?.aborted !== true) {
      if (!this.#isBusy()) return true
      await pause()
    }
    return false
  }
}

function pause(): Promise<void> {
  return new Promise(resolve => systemClock.after(PAUSE_MS, resolve))
}

async function runAgainstSim(options: Omit<WarmUpOptions, 'log'>, idlePeriods: IdlePeriods): Promise<number> {
  // No other field of the caller's object, which may be the settings of its thread.
  const { config, endUserKey, vaultKeys, requestsMax = Number.POSITIVE_INFINITY } = options
  const folder = await mkdtemp(join(tmpdir(), 'sluice-warm-up-'))
  const sim = createSim({ keepRequests: 0 })
  try {
    const { url: simUrl } = await sim.listen()
    const built = await buildGateway({
      config: isolatedConfig(config),
      endUserKey,
      vaultKeys,
      simUrl,
      log: SILENT_LOG,
      spoolFolder: folder,
    })
    const front = await loadFront(config.listen.front)
    const { server } = buildServer(built, front.create, {})
    try {
      const { key, record } = createKey({ kind: 'inference', name: 'warm-up', clock: systemClock })
      await built.store.keys.add(record)
      const port = await server.listen(HOST, 0)
      return await sendIn(idlePeriods, requestsMax, port, key)
    } finally {
      server.close()
      await built.close()
    }
  } finally {
    await sim.close()
    await rm(folder, { recursive: true, force: true })
  }
}

/** The configuration without anything shared with others, accessed over a network, or limited. */
function isolatedConfig(config: Config): Config {
  return {
    ...withoutCatalogueSettings(config),
    listen: { ...config.listen, tls: null },
    storage: { url: 'sqlite::memory:' },
    redis: { ...config.redis, url: null },
    providers: [],
    catalogue: { ...config.catalogue, import: null },
    models: SIM_FORMATS.map(format => simModel(MODEL, format)) as Config['models'],
    routers: { classifier: null, rankings: null },
    files: { ...config.files, ocr: null },
    credits: { enforced: false, lowUsd: null },
    limits: { ...config.limits, ...WARM_UP_LIMITS },
    quotas: { ...config.quotas, requestsPerMinute: null, tokensPerMinute: null },
  }
}

interface WarmUpRequest {
  readonly path: string
  readonly body: string
}

/**
 * The usual paths through the gateway: each simulated format, in the three dialects with most traffic, streamed and
 * whole.
 */
function warmUpRequests(): readonly WarmUpRequest[] {
  const text =
    'A request of an ordinary length, so that its text is copied and counted as others are. '.repeat(4)
  return SIM_FORMATS.flatMap(format =>
    [true, false].flatMap(stream => {
      const { id: model } = simModel(MODEL, format)
      const messages = [{ role: 'user', content: text }]
      return [
        { path: '/v1/responses', body: JSON.stringify({ model, stream, input: text }) },
        { path: '/v1/chat/completions', body: JSON.stringify({ model, stream, messages }) },
        { path: '/v1/messages', body: JSON.stringify({ model, stream, messages, max_tokens: 1000 }) },
      ]
    }),
  )
}

/** Returns the number of requests. */
async function sendIn(
  idlePeriods: IdlePeriods,
  maxRequests: number,
  port: number,
  key: string,
): Promise<number> {
  const agent = new Agent({ keepAlive: true, maxSockets: CONCURRENT_REQUESTS })
  const requests = warmUpRequests()
  let next = 0
  const client = async (): Promise<void> => {
    while (next < maxRequests && (await idlePeriods.next())) {
      const request = requests[next++ % requests.length]
      if (request !== undefined) await send(agent, port, key, request)
    }
  }
  try {
    await Promise.all(Array.from({ length: CONCURRENT_REQUESTS }, client))
    return next
  } finally {
    agent.destroy()
  }
}

/** Resolves at the end of the answer. @throws Error if it is not a success */
function send(agent: Agent, port: number, key: string, { path, body }: WarmUpRequest): Promise<void> {
  const headers = {
    authorization: `Bearer ${key}`,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
  }
  return new Promise((resolve, reject) => {
    const clientRequest = request({ agent, host: HOST, port, path, method: 'POST', headers }, response => {
      response.resume()
      response.once('error', reject)
      response.once('end', () => {
        if (response.statusCode === 200) resolve()
        else reject(new Error(`status ${response.statusCode}`))
      })
    })
    clientRequest.once('error', reject)
    clientRequest.end(body)
  })
}

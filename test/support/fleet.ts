/**
 * A scripted fleet of endpoints behind real routing: real ranking, breakers, retry budget and model calls; scripted
 * replies, clock and random numbers, no sockets.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { type GatewayError, toGatewayError } from '../../src/base/errors.ts'
import { createLog } from '../../src/base/log/log.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import type { AttemptRecord, Finish } from '../../src/exchange/exchange.ts'
import type { Usage } from '../../src/formats/format.ts'
import { TEXT_ESTIMATES } from '../../src/pipeline/accounting/usage-check.ts'
import { VisibleStreams } from '../../src/pipeline/accounting/visible-streams.ts'
import { RoutedExchange } from '../../src/pipeline/exchange-stages.ts'
import { rankCandidates } from '../../src/pipeline/routing/rank.ts'
import { Routing } from '../../src/pipeline/routing/rank-input.ts'
import { Stickiness } from '../../src/pipeline/routing/sticky.ts'
import { AbandonedReplies } from '../../src/pipeline/turn/abandoned-replies.ts'
import type { Attempt } from '../../src/pipeline/turn/attempt.ts'
import type { AttemptTarget } from '../../src/pipeline/turn/attempt-target.ts'
import { RetryBudget } from '../../src/pipeline/turn/failover.ts'
import { type CallSubject, callModel } from '../../src/pipeline/turn/model-call.ts'
import { ProviderRequests } from '../../src/pipeline/turn/provider-request.ts'
import { ReplyFigures } from '../../src/pipeline/turn/reply-reading.ts'
import { createCatalog } from '../../src/providers/catalog.ts'
import { NO_CREDENTIALS } from '../../src/providers/credentials/catalog.ts'
import { EndpointHealth } from '../../src/providers/health/health.ts'
import { createPins } from '../../src/storage/session-affinity/session-affinity.ts'
import { parseResponsesRequest } from './dialects.ts'
import { ScriptedClient, scriptedContext, scriptedExchange } from './scripted-attempt.ts'
import { TestClock } from './test-clock.ts'

/** How an endpoint answers one request. */
export interface Reply {
  readonly afterMs: number
  /** Absent: it answers. */
  readonly error?: GatewayError
  readonly status?: number
}

export interface FleetEndpoint {
  readonly slug: string
  /** USD per million tokens, for prompt and completion together; absent: unknown. */
  readonly price?: number
  /** @param nowMs since the fleet began  @param open requests that run at the endpoint */
  answer(nowMs: number, open: number): Reply
}

/** One request that reached an endpoint. */
interface Arrival {
  readonly slug: string
  readonly atMs: number
  /** The breaker of the endpoint was open: it is a probe. */
  readonly isProbe: boolean
}

/** One request of a caller. */
interface Outcome {
  readonly atMs: number
  /** The endpoint that answered; null: none. */
  readonly slug: string | null
  readonly attempts: number
  readonly error: GatewayError | null
}

/** Numbers from 0 to 1 that are the same in each run (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

const USAGE: Usage = {
  inputTokens: 10,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  outputTokens: 20,
  reasoningTokens: 0,
  webSearchRequests: 0,
}
const FINISH: Finish = { reason: 'stop', native: 'stop', serviceTier: null }

export class Fleet {
  readonly clock = new TestClock()
  readonly health = new EndpointHealth({ clock: this.clock })
  readonly arrivals: Arrival[] = []
  readonly outcomes: Outcome[] = []
  readonly #endpoints: ReadonlyMap<string, FleetEndpoint>
  readonly #open = new Map<string, number>()
  readonly #deps
  #running = 0

  constructor(endpoints: readonly FleetEndpoint[], random: () => number) {
    const { clock, health } = this
    this.#endpoints = new Map(endpoints.map(endpoint => [endpoint.slug, endpoint]))
    const catalog = createCatalog({
      providers: endpoints.map(({ slug }) => ({
        slug,
        format: 'openai-chat' as const,
        baseUrl: 'http://127.0.0.1:1',
      })),
      models: [
        {
          id: 'fleet/model',
          endpoints: endpoints.map(({ slug, price }) => ({
            provider: slug,
            ...(price === undefined ? {} : { pricing: { prompt: (price / 1e6).toFixed(12) } }),
          })),
        },
      ],
    })
    this.#deps = {
      catalog,
      clock,
      log: createLog('silent', { write: () => undefined }),
      metrics: createMetrics(),
      requests: new ProviderRequests({
        timeouts: { upstreamHeadersMs: 60_000, upstreamIdleMs: 60_000 },
        hashEndUser: () => 'u',
        hashCacheKey: () => 'k',
      }),
      client: new ScriptedClient(),
      abandoned: new AbandonedReplies(),
      providerKeys: {
        own: () => Promise.reject(new Error('there are no own keys')),
        shared: () => null,
      },
      routing: new Routing({ clock, health, random, balances: true, inputTokens: () => 0 }),
      retries: new RetryBudget(),
      visibleStreams: new VisibleStreams(),
      stickiness: new Stickiness(createPins(clock)),
      credentials: { of: () => NO_CREDENTIALS },
      quota: { limitsMoney: () => false },
    }
  }

  /** Sends requests, one each `everyMs`, until all have ended. */
  async run(count: number, everyMs: number, body: Readonly<Record<string, unknown>> = {}): Promise<void> {
    for (let request = 0; request < count; request++) {
      void this.ask(body)
      await nextTurn()
      this.clock.advance(everyMs)
      await nextTurn()
    }
    while (this.#running > 0) {
      this.clock.advance(everyMs)
      await nextTurn()
    }
  }

  /** Sends one request. Never rejects. */
  async ask(body: Readonly<Record<string, unknown>> = {}, signal?: AbortSignal): Promise<void> {
    const request = parseResponsesRequest({ model: 'fleet/model', input: 'hi', ...body })
    const exchange = new RoutedExchange(
      {
        ...scriptedExchange().asked,
        request,
        context: scriptedContext(signal === undefined ? {} : { signal }),
      },
      1,
    )
    const atMs = this.clock.monotonicMs()
    let slug: string | null = null
    let error: GatewayError | null = null
    this.#running++
    try {
      const ranking = await rankCandidates(this.#deps, exchange)
      const { candidates } = ranking
      exchange.candidates = candidates
      exchange.ranking = ranking
      const reply = await callModel(this.#deps, exchange, scriptedCall(this), candidates[0], one => one)
      slug = reply?.candidate.endpoint.provider.slug ?? null
    } catch (thrown) {
      error = toGatewayError(thrown)
    }
    this.#running--
    this.outcomes.push({ atMs, slug, attempts: exchange.attempts.length, error })
  }

  /** The share of answered requests that each endpoint had, of those that began in this time. */
  shares(fromMs: number, toMs: number): ReadonlyMap<string, number> {
    const answered = this.outcomes.filter(({ atMs, slug }) => slug !== null && atMs >= fromMs && atMs < toMs)
    const shares = new Map<string, number>()
    for (const { slug } of answered)
      shares.set(slug ?? '', (shares.get(slug ?? '') ?? 0) + 1 / answered.length)
    return shares
  }

  /** Requests that reached an endpoint in this time. */
  arrivedAt(slug: string, fromMs: number, toMs = Number.POSITIVE_INFINITY): readonly Arrival[] {
    return this.arrivals.filter(each => each.slug === slug && each.atMs >= fromMs && each.atMs < toMs)
  }

  /** The attempt at an endpoint, as its script has it. */
  attemptAt(record: AttemptRecord): Attempt {
    const { slug } = record.endpoint.provider
    const { clock, health } = this
    const run = () => {
      const open = this.#open.get(slug) ?? 0
      const atMs = clock.monotonicMs()
      this.arrivals.push({ slug, atMs, isProbe: health.of(record.endpoint, null).isOpen })
      this.#open.set(slug, open + 1)
      record.isStarted = true
      const { afterMs, error, status } = this.#endpoints.get(slug)?.answer(atMs, open) ?? { afterMs: 0 }
      return new Promise<Finish>((resolve, reject) => {
        clock.after(afterMs, () => {
          this.#open.set(slug, (this.#open.get(slug) ?? 1) - 1)
          record.status = status ?? (error === undefined ? 200 : null)
          if (error === undefined) resolve(FINISH)
          else reject(error)
        })
      })
    }
    const figures = Object.assign(new ReplyFigures(), { usage: USAGE, sentBytes: 10 })
    return { figures, run } as Partial<Attempt> as Attempt
  }
}

/** A call whose attempts are scripted. */
function scriptedCall(fleet: Fleet): CallSubject<'asks'> {
  return {
    draft: { turnSeen: false, dropTurn: () => undefined },
    mayHedge: false,
    estimates: TEXT_ESTIMATES,
    prepare: () => 'asks',
    encode: () => ({ path: '/', body: {} }),
    open: record => fleet.attemptAt(record),
    receive: () => ({}) as AttemptTarget,
    mostTokens: () => 0,
  }
}

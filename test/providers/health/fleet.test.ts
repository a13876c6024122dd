/** Ten thousand requests over a scripted fleet: shares by price, outages, rate limits, recovery. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { GatewayError, toGatewayError } from '../../../src/base/errors.ts'
import { createLog } from '../../../src/base/log/log.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import type { AttemptRecord, Finish } from '../../../src/exchange/exchange.ts'
import type { Usage } from '../../../src/formats/format.ts'
import { TEXT_ESTIMATES } from '../../../src/pipeline/accounting/usage-check.ts'
import { VisibleStreams } from '../../../src/pipeline/accounting/visible-streams.ts'
import { RoutedExchange } from '../../../src/pipeline/exchange-stages.ts'
import { rankCandidates } from '../../../src/pipeline/routing/rank.ts'
import { Routing } from '../../../src/pipeline/routing/rank-input.ts'
import { Stickiness } from '../../../src/pipeline/routing/sticky.ts'
import { AbandonedReplies } from '../../../src/pipeline/turn/abandoned-replies.ts'
import type { Attempt } from '../../../src/pipeline/turn/attempt.ts'
import type { AttemptTarget } from '../../../src/pipeline/turn/attempt-target.ts'
import { RetryBudget } from '../../../src/pipeline/turn/failover.ts'
import { type CallSubject, callModel } from '../../../src/pipeline/turn/model-call.ts'
import { ProviderRequests } from '../../../src/pipeline/turn/provider-request.ts'
import { ReplyFigures } from '../../../src/pipeline/turn/reply-reading.ts'
import { createCatalog } from '../../../src/providers/catalog.ts'
import { NO_CREDENTIALS } from '../../../src/providers/credentials/catalog.ts'
import { EndpointHealth } from '../../../src/providers/health/health.ts'
import { createPins } from '../../../src/storage/session-affinity/session-affinity.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { ScriptedClient, scriptedContext, scriptedExchange } from '../../support/scripted-attempt.ts'
import { TestClock } from '../../support/test-clock.ts'

// A scripted fleet of endpoints behind real routing: real ranking, breakers, retry budget and model calls;
// scripted replies, clock and random numbers, no sockets.

/** How an endpoint answers one request. */
interface Reply {
  readonly afterMs: number
  /** Absent: it answers. */
  readonly error?: GatewayError
  readonly status?: number
}

interface FleetEndpoint {
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
function seeded(seed: number): () => number {
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

class Fleet {
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
        ownKey: () => Promise.reject(new Error('there are no own keys')),
        sharedKey: () => null,
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
        ...scriptedExchange().clientRequest,
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

const broken = (): GatewayError => new GatewayError('provider_unavailable', 'broken')
const steady = (afterMs: number) => (): Reply => ({ afterMs })

/** Shares by the inverse square of the price. */
function weights(prices: Readonly<Record<string, number>>): ReadonlyMap<string, number> {
  const entries = Object.entries(prices).map(([slug, price]): [string, number] => [slug, price ** -2])
  const total = entries.reduce((sum, [, weight]) => sum + weight, 0)
  return new Map(entries.map(([slug, weight]) => [slug, weight / total]))
}

const TOLERANCE = 0.02

function deviation(shares: ReadonlyMap<string, number>, wanted: ReadonlyMap<string, number>): number {
  const slugs = [...new Set([...shares.keys(), ...wanted.keys()])]
  return Math.max(...slugs.map(slug => Math.abs((shares.get(slug) ?? 0) - (wanted.get(slug) ?? 0))))
}

const PRICES = { cheap: 1, middle: 2, dear: 3 }
const EVERY_MS = 20
const [DOWN_MS, UP_MS, END_MS] = [60_000, 120_000, 200_000]

t.test('shares follow the prices, an outage costs little, and its end is found at once', async t => {
  const endpoints: readonly FleetEndpoint[] = [
    { slug: 'dim', answer: steady(100) },
    { slug: 'dear', price: PRICES.dear, answer: steady(900) },
    {
      slug: 'cheap',
      price: PRICES.cheap,
      answer: nowMs =>
        nowMs >= DOWN_MS && nowMs < UP_MS ? { afterMs: 50, error: broken() } : { afterMs: 400 },
    },
    { slug: 'middle', price: PRICES.middle, answer: steady(1_500) },
  ]
  const fleet = new Fleet(endpoints, seeded(1))
  await fleet.run(END_MS / EVERY_MS, EVERY_MS)
  t.equal(fleet.outcomes.length, 10_000)

  t.ok(deviation(fleet.shares(0, DOWN_MS), weights(PRICES)) < TOLERANCE, 'shares before')
  t.same(fleet.arrivedAt('dim', 0), [], 'an unknown price is last')

  const inOutage = fleet.outcomes.filter(({ atMs }) => atMs >= DOWN_MS && atMs < UP_MS)
  const attempts = inOutage.reduce((sum, each) => sum + each.attempts, 0)
  t.ok(attempts <= inOutage.length * 1.2, `${attempts} attempts for ${inOutage.length} requests`)
  const failed = inOutage.filter(({ error }) => error !== null)
  t.ok(failed.length <= 30, `${failed.length} of 3,000 failed, since the retry budget was used up`)
  t.ok(
    failed.every(({ atMs }) => atMs < DOWN_MS + 2_000),
    'all of them before the breaker opened',
  )
  const left = weights({ middle: PRICES.middle, dear: PRICES.dear })
  t.ok(deviation(fleet.shares(DOWN_MS + 1_000, UP_MS), left) < TOLERANCE, 'shares in the outage')

  const opened = fleet.arrivals.findIndex(({ slug, isProbe }) => slug === 'cheap' && isProbe)
  const probes = fleet.arrivals.slice(opened).filter(({ slug, atMs }) => slug === 'cheap' && atMs < UP_MS)
  t.ok(probes.length >= 7 && probes.length <= 12, `${probes.length} probes in a minute`)
  t.ok(
    probes.every(({ isProbe }) => isProbe),
    'nothing else reached the open breaker',
  )
  const gaps = probes.slice(1).map(({ atMs }, at) => atMs - (probes[at]?.atMs ?? 0))
  t.ok(Math.min(...gaps) >= 1_000, 'one probe at a time')

  const first = fleet.arrivedAt('cheap', UP_MS)[0]
  t.ok(
    first !== undefined && first.atMs - UP_MS <= 10_000,
    `asked again after ${(first?.atMs ?? 0) - UP_MS} ms`,
  )
  t.ok(deviation(fleet.shares(UP_MS + 40_000, END_MS), weights(PRICES)) < TOLERANCE, 'shares after')
})

t.test('an outage in silence: budget and breaker hold the attempts down', async t => {
  const fleet = new Fleet(
    [
      {
        slug: 'cheap',
        price: 1,
        answer: nowMs =>
          nowMs >= 20_000 && nowMs < 80_000
            ? { afterMs: 10_000, error: new GatewayError('upstream_timeout', 'silent') }
            : { afterMs: 300 },
      },
      { slug: 'dear', price: 3, answer: steady(300) },
    ],
    seeded(2),
  )
  await fleet.run(6_000, EVERY_MS)
  const attempts = fleet.outcomes.reduce((sum, each) => sum + each.attempts, 0)
  t.ok(attempts <= 6_000 * 1.2, `${attempts} attempts`)
  const late = fleet.outcomes.filter(({ atMs, error }) => atMs > 40_000 && error !== null)
  t.same(late, [], 'once the breaker is open, all are answered')
  const first = fleet.arrivedAt('cheap', 80_000)[0]
  t.ok(first !== undefined && first.atMs <= 90_000, 'recovery within ten seconds')
})

t.test('a rate limit is waited for as long as the provider asks', async t => {
  const refusedAt: number[] = []
  const fleet = new Fleet(
    [
      {
        slug: 'cheap',
        price: 1,
        answer(nowMs, open) {
          if (open < 10) return { afterMs: 1_000 }
          refusedAt.push(nowMs)
          return {
            afterMs: 5,
            status: 429,
            error: new GatewayError('rate_limit_exceeded', 'busy', { retryAfterSeconds: 4 }),
          }
        },
      },
      { slug: 'dear', price: 2, answer: steady(200) },
    ],
    seeded(3),
  )
  await fleet.run(3_000, EVERY_MS)
  t.ok(refusedAt.length > 3)
  t.same(
    fleet.outcomes.filter(({ error }) => error !== null),
    [],
    'all were answered elsewhere',
  )
  for (const atMs of refusedAt) {
    // What was on its way when the refusal came is not held against it.
    const early = fleet.arrivedAt('cheap', atMs + EVERY_MS, atMs + 4_000)
    t.same(early, [], `nothing after the refusal at ${atMs}`)
  }
  const attempts = fleet.outcomes.reduce((sum, each) => sum + each.attempts, 0)
  t.ok(attempts <= 3_000 * 1.2, `${attempts} attempts`)
})

t.test('a rate limit without a hint opens the breaker like an outage, and the answer is 429', async t => {
  const fleet = new Fleet(
    [
      {
        slug: 'only',
        price: 1,
        answer: () => ({ afterMs: 5, status: 429, error: new GatewayError('rate_limit_exceeded', 'busy') }),
      },
    ],
    seeded(4),
  )
  await fleet.run(100, EVERY_MS)
  t.ok(fleet.arrivals.length <= 8, `${fleet.arrivals.length} of 100 requests reached it`)
  t.match(fleet.outcomes.at(-1)?.error, { code: 'rate_limit_exceeded' })
  t.match(fleet.outcomes.at(-1)?.error?.metadata, {
    availability: { code: 'capacity_exhausted', retryable: true },
  })
})

t.test('where all fail, few requests reach anybody, and the answer says when to come back', async t => {
  const down = (): Reply => ({ afterMs: 20, error: broken() })
  const fleet = new Fleet(
    ['a', 'b', 'c', 'd'].map(slug => ({ slug, price: 1, answer: down })),
    seeded(5),
  )
  await fleet.run(1_000, EVERY_MS)
  t.ok(fleet.arrivals.length < 100, `${fleet.arrivals.length} attempts for 1,000 requests`)
  t.match(fleet.outcomes.at(-1)?.error, { status: 503, code: 'service_unavailable' })
  t.ok((fleet.outcomes.at(-1)?.error?.retryAfterSeconds ?? 0) >= 1)
  t.ok(Math.max(...fleet.outcomes.map(each => each.attempts)) <= 3, 'three shared endpoints at most')
})

t.test('an endpoint that fails now and then comes after the others, and stays a fallback', async t => {
  let asked = 0
  const fleet = new Fleet(
    [
      {
        slug: 'shaky',
        price: 1,
        answer: () => (++asked % 4 === 0 ? { afterMs: 10, error: broken() } : { afterMs: 10 }),
      },
      { slug: 'steady', price: 2, answer: steady(10) },
    ],
    seeded(6),
  )
  await fleet.run(2_000, EVERY_MS)
  const shares = fleet.shares(10_000, 40_000)
  t.ok((shares.get('shaky') ?? 0) < 0.3, `${shares.get('shaky')} of the requests, 0.8 by price alone`)
  t.same(
    fleet.outcomes.filter(({ error }) => error !== null),
    [],
    'all were answered',
  )
})

t.test('equal prices share alike, free ones alone, and unknown ones keep their order', async t => {
  const equal = new Fleet(
    ['a', 'b', 'c', 'd'].map(slug => ({ slug, price: 2, answer: steady(10) })),
    seeded(7),
  )
  await equal.run(4_000, EVERY_MS)
  t.ok(deviation(equal.shares(0, 80_000), weights({ a: 2, b: 2, c: 2, d: 2 })) < TOLERANCE)
  const free = new Fleet(
    [
      { slug: 'a', price: 1, answer: steady(10) },
      { slug: 'b', price: 0, answer: steady(10) },
      { slug: 'c', price: 0, answer: steady(10) },
    ],
    seeded(8),
  )
  await free.run(1_000, EVERY_MS)
  t.ok(
    deviation(
      free.shares(0, 20_000),
      new Map([
        ['b', 0.5],
        ['c', 0.5],
      ]),
    ) <
      2 * TOLERANCE,
  )
  const unknown = new Fleet(
    ['a', 'b'].map(slug => ({ slug, answer: steady(10) })),
    seeded(9),
  )
  await unknown.run(100, EVERY_MS)
  t.same(
    [...unknown.shares(0, 2_000)].map(([slug]) => slug),
    ['a'],
  )
})

t.test('requests that the gateway ends itself say nothing about their endpoint', async t => {
  const draining = new GatewayError('service_unavailable', 'The gateway is being stopped')
  const fleet = new Fleet(
    [{ slug: 'a', price: 1, answer: () => ({ afterMs: 10, error: draining }) }],
    seeded(10),
  )
  for (let request = 0; request < 40; request++) {
    const stop = new AbortController()
    const asked = fleet.ask({}, stop.signal)
    await nextTurn()
    stop.abort(draining)
    fleet.clock.advance(EVERY_MS)
    await asked
  }
  t.equal(fleet.arrivals.length, 40, 'its breaker stays closed')
})

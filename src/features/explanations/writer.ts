/**
 * Writer of explanations: receives finished requests, and sends their explanations to the main thread once a second.
 * Serve threads. Hot path: a plain request costs two calls, or one when the rate of stored requests is exceeded. The
 * number is bounded by API key, organization and address, so that a flood from one caller does not displace others.
 */
import { type Clock, isoInstant } from '../../base/clock.ts'
import type { ExchangeLine } from '../../base/log/log.ts'
import type { EndpointChoice } from '../../base/metrics/table.ts'
import { type ReportedChange, reportedChanges } from '../../exchange/changes.ts'
import type { RequestEnd } from '../../exchange/exchange.ts'
import type { NewExplanation } from '../../storage/ledger.ts'
import { type ExplainedRequest, explanationOf } from './noted-request.ts'

const SEND_INTERVAL_MS = 1_000
/** Maximum plain requests of one thread that are stored per second, and of one organization among them. */
const MAX_PLAIN_REQUESTS = 32
const MAX_PLAIN_PER_ORGANIZATION = 8
const PLAIN_CHOICES: ReadonlySet<EndpointChoice | null> = new Set(['only', 'price', 'order'])
/** A longer request is stored like a failed one, because people ask why it was slow. */
const MIN_SLOW_MS = 30_000
/** Maximum keys, organizations and addresses whose rates are tracked. */
const MAX_BUCKETS = 4_000
/** A document with full lists is shorter. A longer one would be an error of the gateway. */
const MAX_DOCUMENT_CHARS = 32_768

/** The requests that are stored at once, and then per second. */
interface Rate {
  readonly burst: number
  readonly perSecond: number
}

/** For refused requests of a key or, without a key, of an address. */
const REFUSED_RATE_OF_KEY: Rate = { burst: 30, perSecond: 0.2 }
const REFUSED_RATE_OF_ADDRESS: Rate = { burst: 10, perSecond: 0.1 }
/** For refused requests of an organization; all requests without a key share one bucket. */
const REFUSED_RATE_OF_ORGANIZATION: Rate = { burst: 100, perSecond: 1 }
/** For requests of an organization that called a model and are not plain. */
const SERVED_RATE_OF_ORGANIZATION: Rate = { burst: 100, perSecond: 5 }

const NO_CHANGES: readonly ReportedChange[] = []

interface Bucket {
  remaining: number
  atMs: number
  dropped: number
}

interface ExplanationWriterDeps {
  readonly clock: Clock
  readonly send: (explanations: readonly NewExplanation[]) => void
  /** Called with the outcome of each explanation, except those of plain requests. */
  readonly count: (outcome: 'kept' | 'dropped') => void
}

export class ExplanationWriter {
  readonly #deps: ExplanationWriterDeps
  /** Separate from the buckets of organizations, so that a flood of addresses does not displace those. */
  readonly #bucketsOfCallers = new Map<string, Bucket>()
  readonly #bucketsOfOrganizations = new Map<string, Bucket>()
  #requests: ExplainedRequest[] = []
  #remainingPlain = MAX_PLAIN_REQUESTS
  /** Plain requests of the current second, by organization. */
  readonly #plainPerOrganization = new Map<string, number>()
  #isSendScheduled = false

  constructor(deps: ExplanationWriterDeps) {
    this.#deps = deps
  }

  /** Records a request that has ended. */
  write({ line, watch, endedMs, spentMs, keyHash, error, exchange }: RequestEnd): void {
    let unkeptBefore = 0
    const isPlain =
      exchange !== undefined &&
      line.outcome === 'completed' &&
      exchange.attempts.length < 2 &&
      exchange.pipeline.length === 0 &&
      exchange.passedOver.length === 0 &&
      exchange.lossy.length === 0 &&
      exchange.ranking.exclusions.length === 0 &&
      exchange.ranking.skipped.length === 0 &&
      PLAIN_CHOICES.has(exchange.ranking.choice) &&
      line.durationMs < MIN_SLOW_MS &&
      !watch.hasWaited
    if (isPlain) {
      const organization = line.organization ?? ''
      const storedPlain = this.#plainPerOrganization.get(organization) ?? 0
      // A plain request without room is dropped and not counted: its usage record explains it.
      if (storedPlain === MAX_PLAIN_PER_ORGANIZATION || this.#remainingPlain === 0) return
      this.#plainPerOrganization.set(organization, storedPlain + 1)
      this.#remainingPlain--
    } else {
      // A request without a model call is explained only if it was refused.
      if (exchange === undefined && line.outcome === 'completed') return
      unkeptBefore = this.#admit(line, endedMs, keyHash)
      if (unkeptBefore < 0) return
    }
    if (!this.#isSendScheduled) {
      this.#isSendScheduled = true
      this.#deps.clock.after(SEND_INTERVAL_MS, this.#send)
    }
    const changes = exchange?.attempts[exchange.attempts.length - 1]?.changes
    this.#requests.push({
      line,
      startedMs: watch.startedMs,
      spentMs: spentMs.slice(),
      keyHash,
      error,
      // The copy lacks prompt and answer. It is made field by field, because a spread looks up each field by name.
      exchange:
        exchange === undefined
          ? null
          : {
              strategy: exchange.strategy,
              rollout: exchange.rollout,
              router: exchange.router,
              dataRegion: exchange.dataRegion,
              candidates: exchange.candidates,
              attempts: exchange.attempts,
              // The copy lacks the pins, whose notes refer to the whole exchange.
              ranking: {
                skipped: exchange.ranking.skipped,
                choice: exchange.ranking.choice,
                rather: exchange.ranking.rather,
                exclusions: exchange.ranking.exclusions,
              },
              passedOver: exchange.passedOver,
              lossy: exchange.lossy,
              changes: changes === undefined ? NO_CHANGES : reportedChanges(changes, exchange.clientRequest),
              toolCalls: exchange.toolCalls,
              innerCalls: exchange.innerCalls,
              pipeline: exchange.pipeline,
              streamed: exchange.request.stream === true,
              preferences: exchange.request.provider,
              priceFactor: exchange.bill.priceFactor,
            },
      isPlain,
      unkeptBefore,
    })
  }

  /** Sends the explanations so far. */
  flush(): void {
    const requests = this.#requests
    this.#requests = []
    this.#plainPerOrganization.clear()
    this.#remainingPlain = MAX_PLAIN_REQUESTS
    if (requests.length === 0) return
    const { clock, send } = this.#deps
    const epochMs = clock.nowMs() - clock.monotonicMs()
    const documents: NewExplanation[] = []
    for (const request of requests) {
      const { line, startedMs, isPlain } = request
      const createdAt = isoInstant(epochMs + startedMs)
      const document = JSON.stringify(explanationOf(request, createdAt))
      if (document.length > MAX_DOCUMENT_CHARS) continue
      documents.push({
        id: line.id,
        organizationId: line.organization ?? '',
        requestId: line.requestId ?? null,
        createdAt,
        isPlain,
        document,
      })
    }
    send(documents)
  }

  readonly #send = (): void => {
    this.#isSendScheduled = false
    this.flush()
  }

  /**
   * Returns the number of requests of the same source that were dropped just before this one; -1 if this one is dropped
   * too.
   */
  #admit(
    { organization = '', client = '', attempts = 0 }: ExchangeLine,
    nowMs: number,
    keyHash: string | null,
  ): number {
    const organizations = this.#bucketsOfOrganizations
    let droppedBefore: number
    if (attempts > 0)
      droppedBefore = takeToken(organizations, `served ${organization}`, SERVED_RATE_OF_ORGANIZATION, nowMs)
    else {
      droppedBefore =
        keyHash === null
          ? takeToken(this.#bucketsOfCallers, `address ${client}`, REFUSED_RATE_OF_ADDRESS, nowMs)
          : takeToken(this.#bucketsOfCallers, `key ${keyHash}`, REFUSED_RATE_OF_KEY, nowMs)
      const isKept =
        droppedBefore >= 0 &&
        takeToken(organizations, `refused ${organization}`, REFUSED_RATE_OF_ORGANIZATION, nowMs) >= 0
      if (!isKept) droppedBefore = -1
    }
    this.#deps.count(droppedBefore < 0 ? 'dropped' : 'kept')
    return droppedBefore
  }
}

/** Takes a token. Returns the number of requests that got none just before; -1 if this one gets none either. */
function takeToken(
  buckets: Map<string, Bucket>,
  name: string,
  { burst, perSecond }: Rate,
  nowMs: number,
): number {
  const bucket = buckets.get(name) ?? { remaining: burst, atMs: nowMs, dropped: 0 }
  // Moves the bucket to the end of the map, because it was used last.
  buckets.delete(name)
  if (buckets.size === MAX_BUCKETS) {
    const [oldest] = buckets.keys()
    if (oldest !== undefined) buckets.delete(oldest)
  }
  buckets.set(name, bucket)
  bucket.remaining = Math.min(burst, bucket.remaining + ((nowMs - bucket.atMs) / 1000) * perSecond)
  bucket.atMs = nowMs
  if (bucket.remaining < 1) {
    bucket.dropped++
    return -1
  }
  bucket.remaining--
  const { dropped } = bucket
  bucket.dropped = 0
  return dropped
}

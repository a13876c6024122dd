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

const SEND_MS = 1_000
/** Maximum plain requests of one thread that are stored per second, and of one organization among them. */
const PLAIN_MAX = 32
const PLAIN_OF_ONE_MAX = 8
const PLAIN_CHOICES: ReadonlySet<EndpointChoice | null> = new Set(['only', 'price', 'order'])
/** A longer request is stored like a failed one, because people ask why it was slow. */
const SLOW_MS = 30_000
/** Maximum keys, organizations and addresses whose rates are tracked. */
const RATES_MAX = 4_000
/** A document with full lists is shorter. A longer one would be an error of the gateway. */
const DOCUMENT_MAX_CHARS = 32_768

/** Number that is stored at once, and then per second. */
interface Rate {
  readonly burst: number
  readonly perSecond: number
}

/** Refused requests of a key or, without a key, of an address. */
const REFUSED_OF_KEY: Rate = { burst: 30, perSecond: 0.2 }
const REFUSED_OF_ADDRESS: Rate = { burst: 10, perSecond: 0.1 }
/** Refused requests of an organization; all without a key count as one. */
const REFUSED_OF_ORGANIZATION: Rate = { burst: 100, perSecond: 1 }
/** Model requests that are not plain. */
const SERVED_OF_ORGANIZATION: Rate = { burst: 100, perSecond: 5 }

const UNCHANGED: readonly ReportedChange[] = []

interface Bucket {
  remaining: number
  atMs: number
  dropped: number
}

interface ExplanationWriterDeps {
  readonly clock: Clock
  readonly send: (explanations: readonly NewExplanation[]) => void
  /** Called for each explanation with its outcome. */
  readonly count: (outcome: 'kept' | 'dropped') => void
}

export class ExplanationWriter {
  readonly #deps: ExplanationWriterDeps
  /** Separate from organizations, which cannot be invented: many addresses displace none of them. */
  readonly #ofCallers = new Map<string, Bucket>()
  readonly #ofOrganizations = new Map<string, Bucket>()
  #requests: ExplainedRequest[] = []
  #plainLeft = PLAIN_MAX
  /** Keyed by organization: plain requests of the current second. */
  readonly #plainOf = new Map<string, number>()
  #isDue = false

  constructor(deps: ExplanationWriterDeps) {
    this.#deps = deps
  }

  /** Takes a request that is over. */
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
      line.durationMs < SLOW_MS &&
      !watch.hasWaited
    if (isPlain) {
      const organization = line.organization ?? ''
      const storedPlain = this.#plainOf.get(organization) ?? 0
      // A plain request without room is dropped and not counted: its usage record explains it.
      if (storedPlain === PLAIN_OF_ONE_MAX || this.#plainLeft === 0) return
      this.#plainOf.set(organization, storedPlain + 1)
      this.#plainLeft--
    } else {
      // A request without a model call is explained only if it was refused.
      if (exchange === undefined && line.outcome === 'completed') return
      unkeptBefore = this.#room(line, endedMs, keyHash)
      if (unkeptBefore < 0) return
    }
    if (!this.#isDue) {
      this.#isDue = true
      this.#deps.clock.after(SEND_MS, this.#onDue)
    }
    const changes = exchange?.attempts[exchange.attempts.length - 1]?.changes
    this.#requests.push({
      line,
      startedMs: watch.startedMs,
      spentMs: spentMs.slice(),
      keyHash,
      error,
      // Without its prompt and its answer. Field by field, because a spread looks up each field by name.
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
              // Without the pins, whose notes refer to the whole exchange.
              ranking: {
                skipped: exchange.ranking.skipped,
                choice: exchange.ranking.choice,
                rather: exchange.ranking.rather,
                exclusions: exchange.ranking.exclusions,
              },
              passedOver: exchange.passedOver,
              lossy: exchange.lossy,
              changes: changes === undefined ? UNCHANGED : reportedChanges(changes, exchange.clientRequest),
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
    this.#plainOf.clear()
    this.#plainLeft = PLAIN_MAX
    if (requests.length === 0) return
    const { clock, send } = this.#deps
    const epochMs = clock.nowMs() - clock.monotonicMs()
    const documents: NewExplanation[] = []
    for (const each of requests) {
      const { line, startedMs, isPlain } = each
      const createdAt = isoInstant(epochMs + startedMs)
      const document = JSON.stringify(explanationOf(each, createdAt))
      if (document.length > DOCUMENT_MAX_CHARS) continue
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

  readonly #onDue = (): void => {
    this.#isDue = false
    this.flush()
  }

  /**
   * Number of requests of the same source that were dropped just before this one, which is stored; -1: it is dropped
   * too.
   */
  #room(
    { organization = '', client = '', attempts = 0 }: ExchangeLine,
    nowMs: number,
    keyHash: string | null,
  ): number {
    const all = this.#ofOrganizations
    let dropped: number
    if (attempts > 0) dropped = takeToken(all, `served ${organization}`, SERVED_OF_ORGANIZATION, nowMs)
    else {
      dropped =
        keyHash === null
          ? takeToken(this.#ofCallers, `address ${client}`, REFUSED_OF_ADDRESS, nowMs)
          : takeToken(this.#ofCallers, `key ${keyHash}`, REFUSED_OF_KEY, nowMs)
      const isKept =
        dropped >= 0 && takeToken(all, `refused ${organization}`, REFUSED_OF_ORGANIZATION, nowMs) >= 0
      if (!isKept) dropped = -1
    }
    this.#deps.count(dropped < 0 ? 'dropped' : 'kept')
    return dropped
  }
}

/** Takes a place in a bucket. Returns the number of earlier requests without a place; -1: this one gets none either. */
function takeToken(
  buckets: Map<string, Bucket>,
  name: string,
  { burst, perSecond }: Rate,
  nowMs: number,
): number {
  const bucket = buckets.get(name) ?? { remaining: burst, atMs: nowMs, dropped: 0 }
  // Moves the bucket to the end of the map, because it was used last.
  buckets.delete(name)
  if (buckets.size === RATES_MAX) {
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

/**
 * Sends invalidations to other instances through Redis or PostgreSQL, and receives theirs. Main thread. Requests never
 * wait for it. After an outage, every cache reads its records again, because messages may have been lost. If sending
 * fails, an invalidation of everything follows as soon as the connection works again.
 */
import { randomBytes } from 'node:crypto'
import type { Clock, Timer } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import type { RedisSettings, StorageSettings } from '../settings.ts'
import type { Carrier, CarrierOptions, Invalidation, InvalidationBus } from './bus.ts'
import { openPostgresCarrier } from './postgres.ts'
import { openRedisCarrier } from './redis.ts'

export interface InvalidationFeedOptions {
  readonly config: { readonly redis: RedisSettings; readonly storage: StorageSettings }
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  /** See CarrierOptions. */
  readonly silenceMs?: number
  /** Called with each invalidation that another instance published. */
  readonly onInvalidation: (invalidation: Invalidation) => void
}

export interface InvalidationFeed extends InvalidationBus {
  close(): Promise<void>
}

const EVERYTHING: Invalidation = { kind: 'all' }
/** PostgreSQL accepts 7,999 bytes. A longer message is sent as an invalidation of everything. */
const MESSAGE_MAX_CHARS = 2_000
/** Interval at which a failed message is sent again. A server may accept connections and refuse commands. */
const RESEND_INTERVAL_MS = 1_000

/** Null if there are no other instances: without Redis, and with a database that only this instance uses. */
export function startInvalidationFeed(options: InvalidationFeedOptions): InvalidationFeed | null {
  const { redis, storage } = options.config
  const redisUrl = redis.url
  if (redisUrl !== null) {
    return new CarriedFeed(options, carrier =>
      openRedisCarrier({ ...carrier, url: redisUrl, channel: `${redis.prefix}changes` }),
    )
  }
  if (/^postgres(?:ql)?:/i.test(storage.url)) {
    return new CarriedFeed(options, carrier =>
      openPostgresCarrier({ ...carrier, url: storage.url, channel: 'sluice_changes' }),
    )
  }
  return null
}

class CarriedFeed implements InvalidationFeed {
  readonly #carrier: Carrier
  readonly #onInvalidation: (invalidation: Invalidation) => void
  readonly #instanceId = randomBytes(8).toString('hex')
  readonly #clock: Clock
  /** Messages sent so far, successful or not. */
  #sentCount = 0
  /** The number of the last message that failed, until everything was invalidated after it; 0: none. */
  #lastFailed = 0
  /** Monotonic: the last resend that a restored connection caused. */
  #resentMs = Number.NEGATIVE_INFINITY
  #retry: Timer | null = null
  #isClosed = false

  constructor(
    { clock, log, silenceMs, onInvalidation }: InvalidationFeedOptions,
    open: (options: Omit<CarrierOptions, 'url' | 'channel'>) => Carrier,
  ) {
    this.#onInvalidation = onInvalidation
    this.#clock = clock
    this.#carrier = open({
      clock,
      log,
      ...(silenceMs === undefined ? {} : { silenceMs }),
      onMessage: text => this.#receive(text),
      onReceiving: () => onInvalidation(EVERYTHING),
      onSending: () => this.#reconnect(),
    })
  }

  publish(invalidation: Invalidation): void {
    const message = this.#lastFailed === 0 ? this.#encode(invalidation) : ''
    const isEverything = message === '' || message.length > MESSAGE_MAX_CHARS
    const number = ++this.#sentCount
    this.#carrier.send(isEverything ? this.#encode(EVERYTHING) : message).then(
      () => {
        // A message that was sent before the failed one does not make up for it.
        if (isEverything && number > this.#lastFailed) this.#lastFailed = 0
      },
      () => this.#fail(number),
    )
  }

  close(): Promise<void> {
    this.#isClosed = true
    this.#retry?.cancel()
    return this.#carrier.close()
  }

  /** Notes the failure: the next publish, the next connection or this timer then invalidates everything. */
  #fail(number: number): void {
    this.#lastFailed = Math.max(this.#lastFailed, number)
    if (this.#isClosed) return
    this.#retry ??= this.#clock.after(RESEND_INTERVAL_MS, () => {
      this.#retry = null
      this.#resend()
    })
  }

  #reconnect(): void {
    const nowMs = this.#clock.monotonicMs()
    if (this.#lastFailed === 0 || nowMs - this.#resentMs < RESEND_INTERVAL_MS) return
    this.#resentMs = nowMs
    this.#resend()
  }

  #resend(): void {
    if (this.#lastFailed !== 0) this.publish(EVERYTHING)
  }

  #encode(invalidation: Invalidation): string {
    return JSON.stringify({ from: this.#instanceId, change: invalidation })
  }

  #receive(text: string): void {
    const message = parse(text)
    // An unreadable message comes from a newer version. Something changed, so everything is read again.
    if (message?.from !== this.#instanceId) this.#onInvalidation(message?.invalidation ?? EVERYTHING)
  }
}

function parse(text: string): { readonly from: string; readonly invalidation: Invalidation | null } | null {
  let message: unknown
  try {
    message = JSON.parse(text)
  } catch {
    return null
  }
  if (!isRecord(message) || typeof message['from'] !== 'string') return null
  return { from: message['from'], invalidation: parseInvalidation(message['change']) }
}

function parseInvalidation(value: unknown): Invalidation | null {
  if (!isRecord(value)) return null
  const { kind, hash, organizationId, workspaceId, ids, user } = value
  if (kind === 'all') return EVERYTHING
  if (kind === 'batches' || kind === 'captures' || kind === 'rollouts' || kind === 'pauses') return { kind }
  if (kind === 'key') return typeof hash === 'string' ? { kind, hash } : null
  if (typeof organizationId !== 'string') return null
  if (kind === 'guardrails' || kind === 'workspaces' || kind === 'rates') return { kind, organizationId }
  if (kind === 'end-user') return typeof user === 'string' ? { kind, organizationId, user } : null
  if (kind !== 'credentials' || typeof workspaceId !== 'string') return null
  if (!Array.isArray(ids) || !ids.every(id => typeof id === 'string')) return null
  return { kind, organizationId, workspaceId, ids }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}

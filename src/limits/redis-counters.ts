/**
 * Counters in Redis, for several instances. Main thread. While Redis is unavailable, and until a counter is aligned
 * with the ledger after an outage, requests take from this instance's local share without waiting.
 */
import { createHash, randomBytes } from 'node:crypto'
import type { Clock, Timer } from '../clock.ts'
import { SingleFlight } from '../invalidation/single-flight.ts'
import type { Log } from '../log/log.ts'
import { openRedis, type Redis } from '../storage/redis.ts'
import { ALIGN, GIVE, TAKE } from './counter-scripts.ts'
import type { CounterEntry, Counters, LimitExceeded, Spending } from './counters.ts'
import { IDLE_MS, type LocalCounters } from './local-counters.ts'

export interface RedisCountersOptions {
  readonly url: string
  /** Prefix of every Redis key. */
  readonly prefix: string
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  readonly spending: Pick<Spending, 'spent'>
  /** The counters of this instance, used alone while Redis is unavailable. */
  readonly local: LocalCounters
  /** How long after its last heartbeat an instance counts as dead. Default 30 s. */
  readonly aliveMs?: number
  readonly silenceMs?: number
}

const ALIVE_MS = 30_000
/** A counter is kept this much longer than its period, because clocks differ. */
const AFTER_END_MS = 60_000
/** A counter may need an alignment, and again if a node dies meanwhile; more tries gain nothing. */
const TRIES = 3

const sha1 = (script: string): string => createHash('sha1').update(script).digest('hex')
const [TAKE_SHA, GIVE_SHA, ALIGN_SHA] = [sha1(TAKE), sha1(GIVE), sha1(ALIGN)]

export class RedisCounters implements Counters {
  readonly #options: RedisCountersOptions
  readonly #redis: Redis
  readonly #node = randomBytes(8).toString('hex')
  readonly #aliveMs: number
  /** Counters that were changed here but not in Redis, so that its totals are incomplete. */
  readonly #diverged = new Set<string>()
  readonly #alignments = new SingleFlight<void>()
  #heartbeat: Timer | null = null

  constructor(options: RedisCountersOptions) {
    this.#options = options
    this.#aliveMs = options.aliveMs ?? ALIVE_MS
    const { url, clock, log, silenceMs } = options
    this.#redis = openRedis({
      url,
      clock,
      log,
      ...(silenceMs === undefined ? {} : { silenceMs }),
      // Redis may return without the reservations of this instance.
      onLost: () => {
        for (const entry of this.#options.local.inUse()) {
          if (this.#options.local.reserved(entry.id) > 0) this.#diverged.add(entry.id)
        }
      },
      prepare: [...[TAKE, GIVE, ALIGN].map(script => ['SCRIPT', 'LOAD', script]), this.#heartbeatCommand()],
    })
    this.#scheduleHeartbeat()
  }

  /** True while limits are enforced by local shares. */
  get degraded(): boolean {
    return !this.#redis.isReady
  }

  take(entries: readonly CounterEntry[]): LimitExceeded | null | Promise<LimitExceeded | null> {
    if (!this.#redis.isReady) return this.#takeLocally(entries)
    const diverged = entries.filter(entry => this.#diverged.has(entry.id))
    if (diverged.length === 0) return this.#ask(entries, TRIES)
    // The local share is good enough; the request does not wait for the ledger.
    for (const entry of diverged) this.#align(entry).catch(() => undefined)
    return this.#takeLocally(entries)
  }

  give(entries: readonly CounterEntry[], used: readonly number[]): void {
    const { local, prefix } = this.#options
    local.give(entries, used)
    const keys: string[] = []
    const amounts: string[] = []
    for (const [index, { id, amount }] of entries.entries()) {
      if (this.#diverged.has(id)) continue
      keys.push(prefix + id)
      amounts.push(String(amount), String(used[index] ?? 0))
    }
    if (keys.length === 0) return
    this.#run(GIVE_SHA, keys, amounts, false).catch(() => this.#markDiverged(entries))
  }

  /** Raises a counter to at least the spending in the ledger, to count what a dead instance spent. */
  async reconcile(entry: CounterEntry): Promise<void> {
    if (this.#redis.isReady) await this.#align(entry).catch(() => undefined)
  }

  /** Waits until returned amounts are in Redis, if it answers; no reservation of this instance stays. */
  async close(): Promise<void> {
    this.#heartbeat?.cancel()
    await this.#redis.send(['DEL', this.#heartbeatPrefix + this.#node]).catch(() => undefined)
    this.#redis.close()
  }

  async #ask(entries: readonly CounterEntry[], tries: number): Promise<LimitExceeded | null> {
    const { local, prefix, clock } = this.#options
    const nowMs = clock.nowMs()
    let reply: readonly number[]
    try {
      reply = (await this.#run(
        TAKE_SHA,
        entries.map(entry => prefix + entry.id),
        entries.flatMap(entry => [
          String(entry.amount),
          String(entry.ceiling ?? 0),
          String(keepMs(entry, nowMs)),
          entry.origin === null ? '0' : '1',
        ]),
        true,
      )) as readonly number[]
    } catch {
      return this.#takeLocally(entries)
    }
    const [code = -1, ...totals] = reply
    for (const [index, entry] of entries.entries()) {
      const total = totals[index] ?? -1
      if (total >= 0) local.observe(entry, total, code === 0 ? entry.amount : 0)
    }
    if (code === 0) return null
    if (code > 0) {
      const index = code - 1
      return { index, total: totals[index] ?? 0, ceiling: entries[index]?.ceiling ?? 0 }
    }
    if (tries === 0) return this.#takeLocally(entries)
    const unsure = entries.filter((_, index) => totals[index] === -1)
    await Promise.all(unsure.map(entry => this.#align(entry)))
    return this.#redis.isReady ? this.#ask(entries, tries - 1) : this.#takeLocally(entries)
  }

  #takeLocally(entries: readonly CounterEntry[]): LimitExceeded | null | Promise<LimitExceeded | null> {
    this.#markDiverged(entries)
    return this.#options.local.take(entries)
  }

  #markDiverged(entries: readonly CounterEntry[]): void {
    // Counters of a minute end before they could be aligned.
    for (const { id, origin } of entries) if (origin !== null) this.#diverged.add(id)
  }

  /** Rejects when the ledger cannot be read. When Redis cannot be written, the counter stays diverged. */
  #align(entry: CounterEntry): Promise<void> {
    return this.#alignments.run(entry.id, () => this.#alignNow(entry))
  }

  async #alignNow(entry: CounterEntry): Promise<void> {
    const { id, origin } = entry
    if (origin === null) return
    const { local, spending, prefix, clock } = this.#options
    const spent = await spending.spent(origin)
    // Redis runs commands in the order of sending, so from here on it can be asked for the counter.
    // Unless the counter diverged, Redis has the better figure of reservations: replies may be under way.
    const own = this.#diverged.delete(id) ? Math.max(0, local.reserved(id)) : -1
    try {
      const total = await this.#run(
        ALIGN_SHA,
        [prefix + id],
        [String(spent), String(own), String(keepMs(entry, clock.nowMs()))],
        true,
      )
      local.observe(entry, Number(total), 0)
    } catch {
      this.#markDiverged([entry])
    }
  }

  #run(
    sha: string,
    keys: readonly string[],
    values: readonly string[],
    withPrefix: boolean,
  ): Promise<unknown> {
    const head = withPrefix ? [this.#node, this.#heartbeatPrefix] : [this.#node]
    return this.#redis.send(['EVALSHA', sha, String(keys.length), ...keys, ...head, ...values])
  }

  get #heartbeatPrefix(): string {
    return `${this.#options.prefix}alive/`
  }

  #heartbeatCommand(): readonly string[] {
    return ['SET', this.#heartbeatPrefix + this.#node, '1', 'PX', String(this.#aliveMs)]
  }

  #scheduleHeartbeat(): void {
    this.#heartbeat = this.#options.clock.after(this.#aliveMs / 6, () => {
      if (this.#redis.isReady) this.#redis.send(this.#heartbeatCommand()).catch(() => undefined)
      this.#scheduleHeartbeat()
    })
  }
}

/** Milliseconds until Redis may drop the counter when it is no longer used. */
function keepMs(entry: CounterEntry, nowMs: number): number {
  return Math.max(1, Math.ceil(Math.min(IDLE_MS, entry.endsMs - nowMs + AFTER_END_MS)))
}

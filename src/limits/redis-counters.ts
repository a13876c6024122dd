/**
 * Counters in Redis, for several instances. Main thread. While Redis does not answer, and as long as a counter has not
 * been brought in line with the ledger after that, requests take from this instance's share instead and nobody waits.
 */
import { createHash, randomBytes } from 'node:crypto'
import type { Clock, Timer } from '../clock.ts'
import type { Log } from '../log/log.ts'
import { openRedis, type Redis } from '../storage/redis.ts'
import { ALIGN, GIVE, TAKE } from './counter-scripts.ts'
import type { CounterEntry, Counters, Refusal, Spending } from './counters.ts'
import { IDLE_MS, type LocalCounters } from './local-counters.ts'

export interface RedisCounterSettings {
  readonly url: string
  /** What every key begins with. */
  readonly prefix: string
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  readonly spending: Pick<Spending, 'spent'>
  /** What this instance knows; used alone while Redis is away. */
  readonly local: LocalCounters
  /** How long after its last sign of life an instance counts as dead. Default 30 s. */
  readonly aliveMs?: number
  readonly silenceMs?: number
}

const ALIVE_MS = 30_000
/** A counter of a minute is kept this much longer, for clocks that differ. */
const AFTER_END_MS = 60_000
/** A counter may have to be aligned, and a node may die meanwhile; more often nothing is gained. */
const TRIES = 3

const sha1 = (script: string): string => createHash('sha1').update(script).digest('hex')
const [TAKE_SHA, GIVE_SHA, ALIGN_SHA] = [sha1(TAKE), sha1(GIVE), sha1(ALIGN)]

export class RedisCounters implements Counters {
  readonly #settings: RedisCounterSettings
  readonly #redis: Redis
  readonly #node = randomBytes(8).toString('hex')
  readonly #aliveMs: number
  /** Counters that went on here alone: what Redis knows of them is not the whole. */
  readonly #apart = new Set<string>()
  readonly #alignments = new Map<string, Promise<void>>()
  #sign: Timer | null = null

  constructor(settings: RedisCounterSettings) {
    this.#settings = settings
    this.#aliveMs = settings.aliveMs ?? ALIVE_MS
    const { url, clock, log, silenceMs } = settings
    this.#redis = openRedis({
      url,
      clock,
      log,
      ...(silenceMs === undefined ? {} : { silenceMs }),
      // Redis may come back without what runs here.
      onLost: () => {
        for (const entry of this.#settings.local.inUse()) {
          if (this.#settings.local.reserved(entry.id) > 0) this.#apart.add(entry.id)
        }
      },
      prepare: [...[TAKE, GIVE, ALIGN].map(script => ['SCRIPT', 'LOAD', script]), this.#signOfLife()],
    })
    this.#live()
  }

  /** Whether limits go on by local shares. */
  get degraded(): boolean {
    return !this.#redis.isReady
  }

  take(entries: readonly CounterEntry[]): Refusal | null | Promise<Refusal | null> {
    if (!this.#redis.isReady) return this.#takeHere(entries)
    const apart = entries.filter(entry => this.#apart.has(entry.id))
    if (apart.length === 0) return this.#ask(entries, TRIES)
    // Known well enough to go on with: nobody waits for the ledger.
    for (const entry of apart) this.#align(entry).catch(() => undefined)
    return this.#takeHere(entries)
  }

  give(entries: readonly CounterEntry[], used: readonly number[]): void {
    const { local, prefix } = this.#settings
    local.give(entries, used)
    const keys: string[] = []
    const amounts: string[] = []
    for (const [index, { id, amount }] of entries.entries()) {
      if (this.#apart.has(id)) continue
      keys.push(prefix + id)
      amounts.push(String(amount), String(used[index] ?? 0))
    }
    if (keys.length === 0) return
    this.#run(GIVE_SHA, keys, amounts, false).catch(() => this.#goApart(entries))
  }

  /** Brings a counter to at least what the ledger says; for what got lost when an instance died. */
  async reconcile(entry: CounterEntry): Promise<void> {
    if (this.#redis.isReady) await this.#align(entry).catch(() => undefined)
  }

  /** Waits until what was given back is in Redis, if that answers, and leaves no reservation behind. */
  async close(): Promise<void> {
    this.#sign?.cancel()
    await this.#redis.send(['DEL', this.#signPrefix + this.#node]).catch(() => undefined)
    this.#redis.close()
  }

  async #ask(entries: readonly CounterEntry[], tries: number): Promise<Refusal | null> {
    const { local, prefix, clock } = this.#settings
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
      return this.#takeHere(entries)
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
    if (tries === 0) return this.#takeHere(entries)
    const unsure = entries.filter((_, index) => totals[index] === -1)
    await Promise.all(unsure.map(entry => this.#align(entry)))
    return this.#redis.isReady ? this.#ask(entries, tries - 1) : this.#takeHere(entries)
  }

  #takeHere(entries: readonly CounterEntry[]): Refusal | null | Promise<Refusal | null> {
    this.#goApart(entries)
    return this.#settings.local.take(entries)
  }

  #goApart(entries: readonly CounterEntry[]): void {
    // Those of a minute are over before anything could be brought in line.
    for (const { id, origin } of entries) if (origin !== null) this.#apart.add(id)
  }

  /** Rejects when the ledger cannot be read; when Redis cannot, the counter stays apart. */
  #align(entry: CounterEntry): Promise<void> {
    const running = this.#alignments.get(entry.id)
    if (running !== undefined) return running
    const alignment = this.#alignNow(entry).finally(() => this.#alignments.delete(entry.id))
    this.#alignments.set(entry.id, alignment)
    return alignment
  }

  async #alignNow(entry: CounterEntry): Promise<void> {
    const { id, origin } = entry
    if (origin === null) return
    const { local, spending, prefix, clock } = this.#settings
    const spent = await spending.spent(origin)
    // Commands run in the order in which they are sent, so from here on the counter can be asked for.
    // Unless it was apart, Redis knows better what is reserved: answers may be under way.
    const own = this.#apart.delete(id) ? Math.max(0, local.reserved(id)) : -1
    try {
      const total = await this.#run(
        ALIGN_SHA,
        [prefix + id],
        [String(spent), String(own), String(keepMs(entry, clock.nowMs()))],
        true,
      )
      local.observe(entry, Number(total), 0)
    } catch {
      this.#goApart([entry])
    }
  }

  #run(sha: string, keys: readonly string[], values: readonly string[], signs: boolean): Promise<unknown> {
    const head = signs ? [this.#node, this.#signPrefix] : [this.#node]
    return this.#redis.send(['EVALSHA', sha, String(keys.length), ...keys, ...head, ...values])
  }

  get #signPrefix(): string {
    return `${this.#settings.prefix}alive/`
  }

  #signOfLife(): readonly string[] {
    return ['SET', this.#signPrefix + this.#node, '1', 'PX', String(this.#aliveMs)]
  }

  #live(): void {
    this.#sign = this.#settings.clock.after(this.#aliveMs / 6, () => {
      if (this.#redis.isReady) this.#redis.send(this.#signOfLife()).catch(() => undefined)
      this.#live()
    })
  }
}

/** Milliseconds until Redis may forget the counter when nobody asks for it any more. */
function keepMs(entry: CounterEntry, nowMs: number): number {
  return Math.max(1, Math.ceil(Math.min(IDLE_MS, entry.endsMs - nowMs + AFTER_END_MS)))
}

/**
 * Counters in Redis, for several instances. Main thread. While Redis is unavailable, and until a counter is aligned
 * with the ledger after an outage, requests take from this instance's local share without waiting.
 *
 * Each operation is a Lua script, because it has to be atomic. A counter is a hash: field `s` is the used amount, and
 * one field per node is the amount that the node has reserved. A node whose heartbeat has expired is dead; its
 * reservations are dropped, and the ledger has its spending. One Redis server, not a cluster, because an operation
 * touches several keys.
 */
import { createHash, randomBytes } from 'node:crypto'
import type { Clock, Timer } from '../clock.ts'
import { SingleFlight } from '../invalidation/single-flight.ts'
import type { Log } from '../log/log.ts'
import { openRedis, type Redis } from '../storage/redis.ts'
import type { CounterEntry, Counters, Spending, Taking } from './counters.ts'
import { IDLE_MS, type LocalCounters } from './local-counters.ts'

/** Reads a counter into `used`, `reserved` (by others) and `own`; drops the reservations of dead nodes. */
const READ = `
local function read(key, node, alive)
  local fields = redis.call('HGETALL', key)
  local used, reserved, own, died = nil, 0, 0, false
  for at = 1, #fields, 2 do
    local name, amount = fields[at], tonumber(fields[at + 1])
    if name == 's' then used = amount
    elseif name == node then own = amount
    elseif redis.call('EXISTS', alive .. name) == 1 then reserved = reserved + amount
    else redis.call('HDEL', key, name); died = true end
  end
  return used, reserved, own, died
end
local function whole(number) return string.format('%.0f', number) end
`

/**
 * KEYS counters; ARGV node, prefix of the heartbeats, then for each counter amount, ceiling, milliseconds to keep it,
 * and 1 when it begins with the ledger. Returns 0 when all was taken, the number of the counter that did not fit, or -1
 * when counters have to be aligned with the ledger first; then for each counter its total before (-1 for those to
 * align), and for each its used amount.
 */
const TAKE = `${READ}
local node, alive = ARGV[1], ARGV[2]
local answer, unsure, refused = {}, false, 0
for i, key in ipairs(KEYS) do
  local at = 2 + (i - 1) * 4
  local amount = tonumber(ARGV[at + 1])
  local used, reserved, own, died = read(key, node, alive)
  local total = (used or 0) + reserved + own
  if ARGV[at + 4] == '1' and (used == nil or died) then
    unsure = true
    total = -1
  elseif refused == 0 and amount > 0 and total + amount > tonumber(ARGV[at + 2]) then refused = i end
  answer[i] = total
  answer[#KEYS + i] = used or 0
end
if unsure then return { -1, unpack(answer) } end
if refused > 0 then return { refused, unpack(answer) } end
for i, key in ipairs(KEYS) do
  local at = 2 + (i - 1) * 4
  redis.call('HINCRBY', key, node, ARGV[at + 1])
  redis.call('PEXPIRE', key, ARGV[at + 3])
end
return { 0, unpack(answer) }`

/** KEYS counters; ARGV node, then for each counter the taken amount and the used part of it. */
const GIVE = `${READ}
for i, key in ipairs(KEYS) do
  if redis.call('EXISTS', key) == 1 then
    local left = tonumber(redis.call('HGET', key, ARGV[1]) or '0') - tonumber(ARGV[i * 2])
    if left > 0 then redis.call('HSET', key, ARGV[1], whole(left)) end
    redis.call('HINCRBY', key, 's', ARGV[i * 2 + 1])
    if left <= 0 then redis.call('HDEL', key, ARGV[1]) end
  end
end
return 0`

/**
 * KEYS one counter; ARGV node, prefix of the heartbeats, spending in the ledger, reserved amount of the node (-1: keep
 * the one in Redis), milliseconds to keep it. Returns the total, which is at least the spending in the ledger; the cost
 * of a record in the ledger may still be reserved as well.
 */
const ALIGN = `${READ}
local key, spent, own = KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local used, reserved, kept = read(key, ARGV[1], ARGV[2])
if own < 0 then own = kept end
if used == nil then used = spent
elseif used + reserved + own < spent then used = spent - reserved - own end
redis.call('HSET', key, 's', whole(used))
if own > 0 then redis.call('HSET', key, ARGV[1], whole(own)) else redis.call('HDEL', key, ARGV[1]) end
redis.call('PEXPIRE', key, ARGV[5])
return used + reserved + own`

interface RedisCountersOptions {
  readonly url: string
  /** Prefix of every Redis key. */
  readonly prefix: string
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  readonly spending: Pick<Spending, 'spent'>
  /** The counters of this instance, the only ones used while Redis is unavailable. */
  readonly local: LocalCounters
  /** Time after its last heartbeat at which an instance counts as dead. Default 30 s. */
  readonly aliveMs?: number
  readonly silenceMs?: number
}

const ALIVE_MS = 30_000
/** A counter is kept this much longer than its period, because clocks differ. */
const AFTER_END_MS = 60_000
/** A counter may need alignment, and again if a node dies meanwhile; further tries are pointless. */
const TRIES = 3

const sha1 = (script: string): string => createHash('sha1').update(script).digest('hex')
const [TAKE_SHA, GIVE_SHA, ALIGN_SHA] = [sha1(TAKE), sha1(GIVE), sha1(ALIGN)]

export class RedisCounters implements Counters {
  readonly #options: RedisCountersOptions
  readonly #redis: Redis
  readonly #node = randomBytes(8).toString('hex')
  readonly #aliveMs: number
  /**
   * Counters that were changed here but not in Redis, so that Redis has incomplete totals; with the ends of their
   * periods.
   */
  readonly #diverged = new Map<string, number>()
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
      // Redis may come back without the reservations of this instance.
      onLost: () => {
        for (const entry of this.#options.local.inUse()) {
          if (this.#options.local.reserved(entry.id) > 0) this.#diverged.set(entry.id, entry.endsMs)
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

  take(entries: readonly CounterEntry[]): Taking | Promise<Taking> {
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

  /** Raises a counter to at least the spending in the ledger, in order to count what a dead instance spent. */
  async reconcile(entry: CounterEntry): Promise<void> {
    if (this.#redis.isReady) await this.#align(entry).catch(() => undefined)
  }

  /** Waits until returned amounts are in Redis, if it answers; no reservation of this instance remains. */
  async close(): Promise<void> {
    this.#heartbeat?.cancel()
    await this.#redis.send(['DEL', this.#heartbeatPrefix + this.#node]).catch(() => undefined)
    this.#redis.close()
  }

  async #ask(entries: readonly CounterEntry[], tries: number): Promise<Taking> {
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
    const [code = -1, ...amounts] = reply
    const rooms = entries.map((entry, index) => ({
      used: amounts[entries.length + index] ?? 0,
      total: amounts[index] ?? -1,
      ceiling: entry.ceiling ?? 0,
    }))
    for (const [index, entry] of entries.entries()) {
      const total = rooms[index]?.total ?? -1
      const taken = code === 0 ? entry.amount : 0
      if (total >= 0) local.observe(entry, total + taken, taken)
    }
    if (code >= 0) return { exceeded: code === 0 ? null : code - 1, rooms }
    if (tries === 0) return this.#takeLocally(entries)
    const unsure = entries.filter((_, index) => rooms[index]?.total === -1)
    await Promise.all(unsure.map(entry => this.#align(entry)))
    return this.#redis.isReady ? this.#ask(entries, tries - 1) : this.#takeLocally(entries)
  }

  #takeLocally(entries: readonly CounterEntry[]): Taking | Promise<Taking> {
    this.#markDiverged(entries)
    return this.#options.local.take(entries)
  }

  #markDiverged(entries: readonly CounterEntry[]): void {
    // Counters of a minute end before they could be aligned.
    for (const { id, origin, endsMs } of entries) if (origin !== null) this.#diverged.set(id, endsMs)
  }

  /** Removes counters of past periods, which are never requested again. */
  #forgetPast(): void {
    const nowMs = this.#options.clock.nowMs()
    for (const [id, endsMs] of this.#diverged) if (endsMs + AFTER_END_MS < nowMs) this.#diverged.delete(id)
  }

  /** Rejects if the ledger cannot be read. If Redis cannot be written, the counter stays diverged. */
  #align(entry: CounterEntry): Promise<void> {
    return this.#alignments.run(entry.id, () => this.#alignNow(entry))
  }

  async #alignNow(entry: CounterEntry): Promise<void> {
    const { id, origin } = entry
    if (origin === null) return
    const { local, spending, prefix, clock } = this.#options
    const spent = await spending.spent(origin)
    // Redis runs commands in the order in which they are sent, so from here on it can be asked for the counter. Unless
    // the counter diverged, Redis has the better figure for reservations: replies may be in progress.
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
      this.#forgetPast()
      this.#scheduleHeartbeat()
    })
  }
}

/** Milliseconds until Redis may drop an unused counter. */
function keepMs(entry: CounterEntry, nowMs: number): number {
  return Math.max(1, Math.ceil(Math.min(IDLE_MS, entry.endsMs - nowMs + AFTER_END_MS)))
}

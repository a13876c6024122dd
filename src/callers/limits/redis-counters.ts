/**
 * Counters in Redis, for several instances. Main thread. While Redis is unavailable, and until a counter is aligned
 * with the ledger after an outage, requests use this instance's local share without waiting.
 *
 * Each operation is a Lua script, because it has to be atomic. A counter is a hash: field `s` is the used amount, and
 * one field per node is the amount that the node has reserved. A node whose heartbeat has expired is dead. Its
 * reservations are dropped, and its spending is in the ledger. It needs one Redis server, not a cluster, because an
 * operation uses several keys.
 *
 * Redis may lose its data while requests run: it is flushed, or a replica without data takes over. A money counter then
 * starts again with readings of the ledger. A reading contains everything that the reading node has spent, as it ships
 * its records first, but only an unknown part of what others have spent, so nothing can be added to it. Until every
 * node has read:
 *
 * - the counter has field `l`, the highest reading, instead of `s`, and nobody reserves money in it;
 * - a node that still has to read is awaited, or has field `?name` instead of `name`; a reply that ends sets it again.
 *
 * Then `l` is exactly the used amount, and becomes `s`. Each connection has its own node name, so commands of a lost
 * connection that Redis reads late change nothing.
 */
import { createHash, randomBytes } from 'node:crypto'
import type { Clock, Timer } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { SingleFlight } from '../../storage/invalidation/single-flight.ts'
import { openRedis, type Redis } from '../../storage/redis.ts'
import type { CounterEntry, Counters, ReserveResult, Spending } from './counters.ts'
import { IDLE_MS, type LocalCounters } from './local-counters.ts'

/** A name is alive until its heartbeat expires or its node gets another name, and awaited until a time of its own. */
const NAMES = `
local function lives(alive, name) return redis.call('GET', alive .. name) == '1' end
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function await(awaited, name, ms)
  redis.call('ZADD', awaited, now() + ms, name)
  redis.call('PEXPIRE', awaited, ms)
end
`

/**
 * Reads a counter into `used`, `reserved` (by others), `own` (nil if the node has to read the ledger), whether the
 * counter has started, and whether reservations of dead nodes were dropped. It starts when no node has to read any
 * more.
 */
const READ = `${NAMES}
local function read(key, node, alive, awaited)
  local fields = redis.call('HGETALL', key)
  local used, reading, reserved, own, isBehind, died = nil, nil, 0, nil, false, false
  for at = 1, #fields, 2 do
    local name, amount = fields[at], tonumber(fields[at + 1])
    local owner = string.match(name, '[^?]+')
    if name == 's' then used = amount
    elseif name == 'l' then reading = amount
    elseif name == node then own = amount
    elseif owner == node then isBehind = true
    elseif lives(alive, owner) then
      reserved = reserved + amount
      isBehind = isBehind or owner ~= name
    else redis.call('HDEL', key, name); died = died or amount > 0 end
  end
  if reading and not isBehind and not died and redis.call('ZCOUNT', awaited, now(), '+inf') == 0 then
    used = reading
    redis.call('HSET', key, 's', redis.call('HGET', key, 'l'))
    redis.call('HDEL', key, 'l')
  end
  return used or reading, reserved, own, used ~= nil, died
end
local function whole(number) return string.format('%.0f', number) end
`

/** Results of scripts that are not the number of a counter. */
const ALIGN_FIRST = -1
const ENTER_FIRST = -2
const AWAITED = -3
const READ_AGAIN = -4

/**
 * KEYS counters; ARGV node, prefix of the heartbeats, key of the awaited nodes, then for each counter amount, ceiling,
 * milliseconds to keep it, and 1 if it starts with the ledger. Returns 0 if all was reserved, the number of the counter
 * that did not fit, -1 if counters have to be aligned with the ledger first, or -3 if other nodes have to read it; then
 * for each counter its total before (-1 for those to align), and for each its used amount. Only -2 if Redis does not
 * know the node.
 */
const RESERVE = `${READ}
local node, alive, awaited = ARGV[1], ARGV[2], ARGV[3]
if not lives(alive, node) then return { -2 } end
local answer, unsure, refused = {}, false, 0
for i, key in ipairs(KEYS) do
  local at = 3 + (i - 1) * 4
  local amount, isMoney = tonumber(ARGV[at + 1]), ARGV[at + 4] == '1'
  local used, reserved, own, begun, died = read(key, node, alive, awaited)
  local total = (used or 0) + reserved + (own or 0)
  if isMoney and (used == nil or own == nil or died) then
    unsure = true
    total = -1
  elseif amount > 0 then
    if refused <= 0 and total + amount > tonumber(ARGV[at + 2]) then refused = i
    elseif refused == 0 and isMoney and not begun then refused = -3 end
  end
  answer[i] = total
  answer[#KEYS + i] = used or 0
end
if unsure then return { -1, unpack(answer) } end
if refused ~= 0 then return { refused, unpack(answer) } end
for i, key in ipairs(KEYS) do
  local at = 3 + (i - 1) * 4
  redis.call('HINCRBY', key, node, ARGV[at + 1])
  redis.call('PEXPIRE', key, ARGV[at + 3])
end
return { 0, unpack(answer) }`

/**
 * KEYS counters; ARGV node, prefix of the heartbeats, key of the awaited nodes, then for each counter the reserved
 * amount, the used part of it, and 1 if it starts with the ledger. Returns the numbers of the counters that did not
 * count the used part, because they have not started or do not know the node: it has to read the ledger.
 */
const SETTLE = `${READ}
local node, alive, awaited = ARGV[1], ARGV[2], ARGV[3]
local uncounted = {}
for i, key in ipairs(KEYS) do
  local own, at = redis.call('HGET', key, node), 3 + (i - 1) * 3
  local rest = whole(math.max(0, tonumber(own or 0) - tonumber(ARGV[at + 1])))
  local isMoney = ARGV[at + 3] == '1'
  if own and (not isMoney or redis.call('HEXISTS', key, 's') == 1 or select(4, read(key, node, alive, awaited))) then
    redis.call('HSET', key, node, rest)
    redis.call('HINCRBY', key, 's', ARGV[at + 2])
  elseif isMoney then
    uncounted[#uncounted + 1] = i
    if redis.call('EXISTS', key) == 1 then
      redis.call('HSETNX', key, '?' .. node, rest)
      redis.call('HDEL', key, node)
    end
  end
end
return uncounted`

/**
 * KEYS one counter, the awaited nodes, the nodes; ARGV node, prefix of the heartbeats, spending in the ledger, 1 if
 * reservations were returned since the ledger was read, reserved amount of the node, 1 if that holds although Redis has
 * another one, milliseconds to keep it, 1 if all nodes have to read the ledger should the counter be missing, and
 * milliseconds to await them. Returns the total, which is at least the spending in the ledger; -2 if Redis does not
 * know the node; -4 if returned amounts may be in neither, so that the ledger has to be read again.
 */
const ALIGN = `${READ}
local key, awaited, node, alive = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if not lives(alive, node) then return -2 end
local used, _, written, begun = read(key, node, alive, awaited)
if ARGV[4] == '1' and not written then return -4 end
if used == nil and ARGV[8] == '1' then
  for _, name in ipairs(redis.call('SMEMBERS', KEYS[3])) do
    if name ~= node and lives(alive, name) then await(awaited, name, ARGV[9]) end
  end
end
redis.call('HSET', key, begun and 's' or 'l', whole(math.max(used or 0, tonumber(ARGV[3]))))
if not written or ARGV[6] == '1' then redis.call('HSET', key, node, ARGV[5]) end
redis.call('HDEL', key, '?' .. node)
redis.call('PEXPIRE', key, ARGV[7])
local total, reserved, own = read(key, node, alive, awaited)
return total + reserved + own`

/**
 * Registers the node with everything that it has reserved. KEYS nodes, awaited nodes, generation of the data, then
 * counters; ARGV node, prefix of the heartbeats, milliseconds of a heartbeat, generation that the node knows, a new
 * one, the number of former names of the node and these, the number of its peers and these, then for each counter the
 * reserved amount, milliseconds to keep it, and 1 if it starts with the ledger. If the data was lost, the node itself is
 * awaited too. A counter that starts with the ledger and has not started gets `?node`: the node has to read the ledger.
 * Returns the generation.
 */
const ENTER = `${NAMES}local node, alive, ms = ARGV[1], ARGV[2], ARGV[3]
local generation = redis.call('GET', KEYS[3])
local lost = ARGV[4] ~= '' and generation ~= ARGV[4]
if not generation then
  generation = ARGV[5]
  redis.call('SET', KEYS[3], generation)
end
local at, former = 6, {}
for n = 1, tonumber(ARGV[at]) do former[n] = ARGV[at + n] end
at = at + #former + 1
for n = 1, tonumber(ARGV[at]) do
  local peer = ARGV[at + n]
  if lost and redis.call('EXISTS', alive .. peer) == 0 then await(KEYS[2], peer, ms) end
end
at = at + tonumber(ARGV[at])
for i = 4, #KEYS do
  local begun = ARGV[at + 3] ~= '1' or redis.call('HEXISTS', KEYS[i], 's') == 1
  for _, name in ipairs(former) do redis.call('HDEL', KEYS[i], name, '?' .. name) end
  redis.call('HDEL', KEYS[i], node, '?' .. node)
  redis.call('HSET', KEYS[i], begun and node or '?' .. node, ARGV[at + 1])
  redis.call('PEXPIRE', KEYS[i], ARGV[at + 2])
  at = at + 3
end
for _, name in ipairs(former) do
  redis.call('SET', alive .. name, '0', 'PX', ms)
  redis.call('SREM', KEYS[1], name)
  redis.call('ZREM', KEYS[2], name)
end
redis.call('SET', alive .. node, '1', 'PX', ms)
redis.call('SADD', KEYS[1], node)
if lost then await(KEYS[2], node, ms) end
return generation`

/**
 * KEYS as for ENTER; ARGV node, prefix of the heartbeats, milliseconds of a heartbeat, generation that the node knows,
 * 1 if the counters are all those in which the node may have spent or reserved, then for each counter milliseconds to
 * keep it. Such a node is not awaited any more if no counter misses it. Returns the number of counters that miss the
 * node, 1 if the node is still awaited, the numbers of those counters, and the nodes that are alive or awaited; only -2
 * if Redis does not know the node, or has lost its data.
 */
const BEAT = `${NAMES}local node, alive = ARGV[1], ARGV[2]
if redis.call('GET', KEYS[3]) ~= ARGV[4] then return { -2 } end
if redis.call('PEXPIRE', alive .. node, ARGV[3]) == 0 then return { -2 } end
local missing, names = {}, {}
for i = 4, #KEYS do
  if redis.call('HEXISTS', KEYS[i], node) == 0 then missing[#missing + 1] = i - 3
  else redis.call('PEXPIRE', KEYS[i], ARGV[i + 2]) end
end
for _, name in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  if lives(alive, name) then names[#names + 1] = name
  else redis.call('SREM', KEYS[1], name) end
end
if #missing == 0 and ARGV[5] == '1' then redis.call('ZREM', KEYS[2], node) end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now())
for _, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do names[#names + 1] = name end
local answer = { #missing, redis.call('ZSCORE', KEYS[2], node) and 1 or 0 }
for _, number in ipairs(missing) do answer[#answer + 1] = number end
for _, name in ipairs(names) do answer[#answer + 1] = name end
return answer`

interface RedisCountersOptions {
  readonly url: string
  /** Prefix of every Redis key. */
  readonly prefix: string
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  readonly spending: Pick<Spending, 'sum'>
  /** The counters of this instance, the only ones used while Redis is unavailable. */
  readonly local: LocalCounters
  /** Time after its last heartbeat at which an instance counts as dead. Default 30 s. */
  readonly aliveMs?: number
  readonly silenceMs?: number
}

const HEARTBEAT_TTL_MS = 30_000
/** Maximum time between heartbeats. A node may need this long to notice that Redis has lost its data. */
const HEARTBEAT_MAX_MS = 1_000
/** A counter is kept for this much longer than its period, because clocks differ. */
const KEEP_AFTER_END_MS = 60_000
/** Spending older than this is in the ledger. */
const RECENT_MS = 60_000
/** Maximum of concurrent ledger reads. Requests read the ledger too, and the Store has four connections. */
const MAX_LEDGER_READS = 3
/** How often the ledger is read at most, if a reply ends during each read. */
const MAX_READ_ATTEMPTS = 3
/**
 * How often a request tries while other nodes have to read the ledger: about as long as its thread waits for the
 * answer. Then the request counts as one that did not fit.
 */
const MAX_RESERVE_ATTEMPTS = 18
const RESERVE_RETRY_MS = 100

interface Script {
  readonly text: string
  readonly sha: string
}

const script = (text: string): Script => ({ text, sha: createHash('sha1').update(text).digest('hex') })
const SCRIPTS = {
  take: script(RESERVE),
  give: script(SETTLE),
  align: script(ALIGN),
  enter: script(ENTER),
  beat: script(BEAT),
}

export class RedisCounters implements Counters {
  readonly #options: RedisCountersOptions
  readonly #redis: Redis
  readonly #aliveMs: number
  /** The name of this instance on the current connection. */
  #node = ''
  /** Names from earlier connections that Redis may still know. */
  #formerNames: string[] = []
  /** Names of the instances that were alive at the last heartbeat. */
  #peers: readonly string[] = []
  /**
   * The generation of the data in Redis; empty before the first contact. Another generation means that Redis has lost
   * its data.
   */
  #generation = ''
  /**
   * Counters with changes that are not in Redis, so that Redis has incomplete totals; with the ends of their periods.
   */
  readonly #diverged = new Map<string, number>()
  /** Counters for which this instance has to read the ledger; other instances wait for it. */
  readonly #behind = new Map<string, CounterEntry>()
  readonly #alignments = new SingleFlight<void>()
  readonly #entering = new SingleFlight<void>()
  readonly #catchingUp = new SingleFlight<void>()
  #heartbeat: Timer | null = null
  #isClosed = false

  constructor(options: RedisCountersOptions) {
    this.#options = options
    this.#aliveMs = options.aliveMs ?? HEARTBEAT_TTL_MS
    const { url, clock, log, silenceMs } = options
    this.#redis = openRedis({
      url,
      clock,
      log,
      ...(silenceMs === undefined ? {} : { silenceMs }),
      prepare: () => {
        if (this.#node !== '') this.#formerNames.push(this.#node)
        this.#node = randomBytes(8).toString('hex')
        return Object.values(SCRIPTS).map(({ text }) => ['SCRIPT', 'LOAD', text])
      },
      // Redis may come back without the reservations of this instance.
      onLost: () => this.#markDiverged(this.#options.local.reservations()),
      onReady: () => void this.#enterAndAlign().catch(() => undefined),
    })
    this.#scheduleHeartbeat()
  }

  /** True while all limits are enforced by local shares. */
  get degraded(): boolean {
    return !this.#redis.isReady
  }

  reserve(entries: readonly CounterEntry[]): ReserveResult | Promise<ReserveResult> {
    if (!this.#redis.isReady) return this.#reserveLocally(entries)
    const diverged = entries.filter(entry => this.#diverged.has(entry.id))
    if (diverged.length === 0) return this.#reserveInRedis(entries, MAX_RESERVE_ATTEMPTS)
    // The local share is good enough, so the request does not wait for the ledger.
    for (const entry of diverged) this.#align(entry).catch(() => undefined)
    return this.#reserveLocally(entries)
  }

  settle(entries: readonly CounterEntry[], usedAmounts: readonly number[]): void {
    const { local, prefix } = this.#options
    local.settle(entries, usedAmounts)
    const toRedis: CounterEntry[] = []
    const amounts: string[] = []
    for (const [index, entry] of entries.entries()) {
      if (this.#diverged.has(entry.id)) continue
      toRedis.push(entry)
      amounts.push(String(entry.amount), String(usedAmounts[index] ?? 0), entry.origin === null ? '0' : '1')
    }
    if (toRedis.length === 0) return
    const keys = toRedis.map(({ id }) => prefix + id)
    this.#run(SCRIPTS.give, keys, [this.#heartbeatPrefix, this.#awaitedKey, ...amounts]).then(
      uncounted => {
        const numbers = uncounted as readonly number[]
        if (numbers.length > 0) this.#catchUp(numbers.flatMap(number => toRedis[number - 1] ?? []))
      },
      () => this.#markDiverged(toRedis),
    )
  }

  /** Raises a counter to at least the spending in the ledger, so that the spending of a dead instance counts. */
  async reconcile(entry: CounterEntry): Promise<void> {
    if (this.#redis.isReady) await this.#align(entry).catch(() => undefined)
  }

  /**
   * Waits until returned amounts are in Redis, if it answers, and removes the heartbeat: no reservation of this
   * instance remains.
   */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#heartbeat?.cancel()
    await this.#redis.send(['DEL', this.#heartbeatPrefix + this.#node]).catch(() => undefined)
    this.#redis.close()
  }

  async #reserveInRedis(entries: readonly CounterEntry[], attemptsLeft: number): Promise<ReserveResult> {
    const { local, prefix, clock } = this.#options
    const nowMs = clock.nowMs()
    let reply: readonly number[]
    try {
      reply = (await this.#run(
        SCRIPTS.take,
        entries.map(entry => prefix + entry.id),
        [
          this.#heartbeatPrefix,
          this.#awaitedKey,
          ...entries.flatMap(entry => [
            String(entry.amount),
            String(entry.ceiling ?? 0),
            String(keepMs(entry, nowMs)),
            entry.origin === null ? '0' : '1',
          ]),
        ],
      )) as readonly number[]
    } catch {
      return this.#reserveLocally(entries)
    }
    const [code = ALIGN_FIRST, ...amounts] = reply
    const rooms = entries.map((entry, index) => ({
      used: amounts[entries.length + index] ?? 0,
      total: amounts[index] ?? -1,
      ceiling: entry.ceiling ?? 0,
    }))
    for (const [index, entry] of entries.entries()) {
      const total = rooms[index]?.total ?? -1
      const reservedNow = code === 0 ? entry.amount : 0
      if (total >= 0) local.observe(entry, total + reservedNow, reservedNow)
    }
    if (code >= 0) return { exceeded: code === 0 ? null : code - 1, rooms }
    if (attemptsLeft === 0) {
      const exceeded = entries.findIndex(({ amount, origin }) => amount > 0 && origin !== null)
      // An amount of zero always fits.
      return exceeded === -1 ? local.reserve(entries) : { exceeded, rooms }
    }
    if (code === AWAITED) await new Promise<void>(resolve => clock.after(RESERVE_RETRY_MS, resolve))
    else if (code === ENTER_FIRST) await this.#enter().catch(() => undefined)
    else {
      const unsure = entries.filter((_, index) => rooms[index]?.total === -1)
      await Promise.all(unsure.map(entry => this.#align(entry)))
    }
    return this.#redis.isReady
      ? this.#reserveInRedis(entries, attemptsLeft - 1)
      : this.#reserveLocally(entries)
  }

  #reserveLocally(entries: readonly CounterEntry[]): ReserveResult | Promise<ReserveResult> {
    this.#markDiverged(entries)
    return this.#options.local.reserve(entries)
  }

  #markDiverged(entries: readonly CounterEntry[]): void {
    // Counters of a minute end before they could be aligned, and requests at once are registered again by `#enter`.
    for (const { id, origin, endsMs } of entries) if (origin !== null) this.#diverged.set(id, endsMs)
  }

  /** Removes counters of past periods, which are never requested again. */
  #forgetPast(): void {
    const nowMs = this.#options.clock.nowMs()
    for (const [id, endsMs] of this.#diverged)
      if (endsMs + KEEP_AFTER_END_MS < nowMs) this.#diverged.delete(id)
  }

  /** Reads the ledger for these counters, until no other instance has to wait for this one. */
  #catchUp(entries: readonly CounterEntry[]): void {
    for (const entry of entries) this.#behind.set(entry.id, { ...entry, amount: 0 })
    if (this.#behind.size === 0) return
    // After a failure, the next heartbeat tries again.
    this.#catchingUp.run('', () => this.#catchUpNow()).catch(() => undefined)
  }

  async #catchUpNow(): Promise<void> {
    while (this.#behind.size > 0) {
      const pending = [...this.#behind.values()]
      while (pending.length > 0)
        await Promise.all(pending.splice(0, MAX_LEDGER_READS).map(entry => this.#align(entry)))
      await this.#beat()
    }
  }

  /** Rejects if the ledger cannot be read. If Redis cannot be written, the counter stays diverged. */
  #align(entry: CounterEntry): Promise<void> {
    return this.#alignments.run(entry.id, () => this.#alignNow(entry))
  }

  async #alignNow(entry: CounterEntry): Promise<void> {
    const { id, origin } = entry
    if (origin === null) return
    const { local, spending } = this.#options
    for (let attempt = 0; attempt < MAX_READ_ATTEMPTS; attempt++) {
      const returns = local.returnsOf(id)
      const spentUnits = await spending.sum(origin)
      // `spentUnits` may miss reservations that were returned during the read. A diverged counter stays diverged until
      // a read has them: its requests use the local share, which has them.
      const isExact = local.returnsOf(id) === returns
      if (!isExact && this.#diverged.has(id)) continue
      if (await this.#alignTo(entry, spentUnits, isExact)) return
    }
  }

  /** Returns false if the ledger has to be read again. */
  async #alignTo(entry: CounterEntry, spentUnits: number, isExact: boolean): Promise<boolean> {
    const { id } = entry
    const { local, prefix, clock } = this.#options
    // Redis runs commands in the order in which they are sent, so from now on it can answer for this counter. Unless
    // the counter diverged, the reservation in Redis is more reliable, because replies may be in progress.
    const hasDiverged = this.#diverged.delete(id)
    try {
      const total = Number(
        await this.#run(
          SCRIPTS.align,
          [prefix + id, this.#awaitedKey, `${prefix}nodes`],
          [
            this.#heartbeatPrefix,
            String(spentUnits),
            isExact ? '0' : '1',
            String(Math.max(0, local.reserved(id))),
            hasDiverged ? '1' : '0',
            String(keepMs(entry, clock.nowMs())),
            // Other instances may have used a counter that existed before.
            local.has(id) ? '1' : '0',
            String(this.#aliveMs),
          ],
        ),
      )
      if (total === READ_AGAIN) return false
      if (total !== ENTER_FIRST) local.observe(entry, total, 0)
      else if (hasDiverged) this.#markDiverged([entry])
    } catch {
      this.#markDiverged([entry])
    }
    return true
  }

  #run({ sha }: Script, keys: readonly string[], values: readonly string[]): Promise<unknown> {
    return this.#redis.send(['EVALSHA', sha, String(keys.length), ...keys, this.#node, ...values])
  }

  /** Registers this instance and its reservations in Redis. */
  #enter(): Promise<void> {
    return this.#entering.run('', () => this.#enterNow())
  }

  async #enterNow(): Promise<void> {
    const { prefix, clock } = this.#options
    const nowMs = clock.nowMs()
    // Each earlier command was answered, or changes nothing any more, so the reservations are known exactly.
    const open = [...this.#openCounters(), ...this.#options.local.parallelEntries()]
    const former = [...this.#formerNames]
    const generation = await this.#run(
      SCRIPTS.enter,
      [...this.#nodeKeys, ...open.map(({ id }) => prefix + id)],
      [
        this.#heartbeatPrefix,
        String(this.#aliveMs),
        this.#generation,
        randomBytes(8).toString('hex'),
        String(former.length),
        ...former,
        String(this.#peers.length),
        ...this.#peers,
        ...open.flatMap(entry => [
          String(entry.amount),
          String(keepMs(entry, nowMs)),
          entry.origin === null ? '0' : '1',
        ]),
      ],
    )
    this.#generation = String(generation)
    this.#formerNames = this.#formerNames.filter(name => !former.includes(name))
    await this.#beat()
  }

  /** Money counters in which this instance has a reservation, or has to read the ledger. */
  #openCounters(): CounterEntry[] {
    return [...this.#behind.values(), ...this.#options.local.reservations()]
  }

  /** After an outage: other instances have to count what this instance spent in the meantime. */
  async #enterAndAlign(): Promise<void> {
    await this.#enter()
    for (const entry of this.#options.local.inUse()) {
      if (!this.#redis.isReady || this.#isClosed) return
      if (this.#diverged.has(entry.id)) await this.#align(entry)
    }
  }

  /** Renews the heartbeat. If other instances await this one, it goes through all its recent counters. */
  async #beat(): Promise<void> {
    const isAwaited = await this.#beatFor(this.#openCounters(), false)
    // Includes counters without reservations, because their latest spending may not be in the ledger yet.
    if (isAwaited)
      await this.#beatFor([...this.#openCounters(), ...this.#options.local.inUse(RECENT_MS)], true)
  }

  /** Returns true if others await this instance. `isAll`: the list contains all counters that others could miss. */
  async #beatFor(counters: readonly CounterEntry[], isAll: boolean): Promise<boolean> {
    const { prefix, clock } = this.#options
    const nowMs = clock.nowMs()
    const reply = (await this.#run(
      SCRIPTS.beat,
      [...this.#nodeKeys, ...counters.map(({ id }) => prefix + id)],
      [
        this.#heartbeatPrefix,
        String(this.#aliveMs),
        this.#generation,
        isAll ? '1' : '0',
        ...counters.map(entry => String(keepMs(entry, nowMs))),
      ],
    )) as readonly (number | string)[]
    const [count = ENTER_FIRST, isAwaited, ...answers] = reply
    if (count === ENTER_FIRST) throw new Error('redis has lost its data')
    this.#peers = answers
      .slice(Number(count))
      .map(String)
      .filter(name => name !== this.#node)
    const missingCounters = answers
      .slice(0, Number(count))
      .flatMap(number => counters[Number(number) - 1] ?? [])
    for (const { id } of counters) this.#behind.delete(id)
    this.#catchUp(missingCounters)
    return isAwaited === 1
  }

  get #heartbeatPrefix(): string {
    return `${this.#options.prefix}alive/`
  }

  get #awaitedKey(): string {
    return `${this.#options.prefix}awaited-until`
  }

  get #nodeKeys(): readonly string[] {
    const { prefix } = this.#options
    return [`${prefix}nodes`, this.#awaitedKey, `${prefix}generation`]
  }

  #scheduleHeartbeat(): void {
    this.#heartbeat = this.#options.clock.after(Math.min(HEARTBEAT_MAX_MS, this.#aliveMs / 6), () => {
      if (this.#redis.isReady)
        this.#beat()
          .catch(() => this.#enter())
          .catch(() => undefined)
      this.#forgetPast()
      this.#scheduleHeartbeat()
    })
  }
}

/** Milliseconds until Redis may drop an unused counter. Requests of a past period may still be running. */
function keepMs(entry: CounterEntry, nowMs: number): number {
  return Math.ceil(Math.min(IDLE_MS, Math.max(0, entry.endsMs - nowMs) + KEEP_AFTER_END_MS))
}

/**
 * Counters in Redis, for several instances. Main thread. While Redis is unavailable, and until a counter is aligned
 * with the ledger after an outage, requests take from this instance's local share without waiting.
 *
 * Each operation is a Lua script, because it has to be atomic. A counter is a hash: field `s` is the used amount, and
 * one field per node is the amount that the node has reserved. A node whose heartbeat has expired is dead; its
 * reservations are dropped, and the ledger has its spending. One Redis server, not a cluster, because an operation
 * touches several keys.
 *
 * Redis may lose its data while requests run: it is flushed, or a replica without data takes over. A node takes from a
 * counter only while its own field is there, so whatever it sent before the loss changes nothing after it. It then
 * writes what it has reserved, as it knows it, and until every node that was alive before the loss has done so, nobody
 * reserves money. Each connection has a node name of its own, so commands of a lost connection that Redis reads late
 * change nothing either.
 */
import { createHash, randomBytes } from 'node:crypto'
import type { Clock, Timer } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { SingleFlight } from '../../storage/invalidation/single-flight.ts'
import { openRedis, type Redis } from '../../storage/redis.ts'
import type { CounterEntry, Counters, Spending, Taking } from './counters.ts'
import { IDLE_MS, type LocalCounters } from './local-counters.ts'

/** Reads a counter into `used`, `reserved` (by others) and `own`; drops the reservations of dead nodes. */
const READ = `
local function read(key, node, alive)
  local fields = redis.call('HGETALL', key)
  local used, reserved, own, died = nil, 0, nil, false
  for at = 1, #fields, 2 do
    local name, amount = fields[at], tonumber(fields[at + 1])
    if name == 's' then used = amount
    elseif name == node then own = amount
    elseif redis.call('EXISTS', alive .. name) == 1 then reserved = reserved + amount
    else redis.call('HDEL', key, name); died = died or amount > 0 end
  end
  return used, reserved, own, died
end
local function whole(number) return string.format('%.0f', number) end
`

/** Answers of scripts that are not the number of a counter. */
const ALIGN_FIRST = -1
const ENTER_FIRST = -2
const AWAITED = -3
const READ_AGAIN = -4

/**
 * KEYS counters; ARGV node, prefix of the heartbeats, key of the awaited nodes, then for each counter amount, ceiling,
 * milliseconds to keep it, and 1 when it begins with the ledger. Returns 0 when all was taken, the number of the
 * counter that did not fit, -1 when counters have to be aligned with the ledger first, or -3 when nodes are awaited;
 * then for each counter its total before (-1 for those to align), and for each its used amount. Only -2 if Redis does
 * not know the node.
 */
const TAKE = `${READ}
local node, alive = ARGV[1], ARGV[2]
if redis.call('EXISTS', alive .. node) == 0 then return { -2 } end
local awaited = redis.call('EXISTS', ARGV[3]) == 1
local answer, unsure, refused = {}, false, 0
for i, key in ipairs(KEYS) do
  local at = 3 + (i - 1) * 4
  local amount, isMoney = tonumber(ARGV[at + 1]), ARGV[at + 4] == '1'
  local used, reserved, own, died = read(key, node, alive)
  local total = (used or 0) + reserved + (own or 0)
  if isMoney and (used == nil or own == nil or died) then
    unsure = true
    total = -1
  elseif amount > 0 then
    if refused <= 0 and total + amount > tonumber(ARGV[at + 2]) then refused = i
    elseif refused == 0 and awaited and isMoney then refused = -3 end
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
 * KEYS counters; ARGV node, then for each counter the taken amount, the used part of it, and 1 when it begins with the
 * ledger. Returns the numbers of the counters whose used amount was not changed, because they do not know the node or
 * have not begun.
 */
const GIVE = `${READ}
local unknown = {}
for i, key in ipairs(KEYS) do
  local own, at = redis.call('HGET', key, ARGV[1]), 1 + (i - 1) * 3
  if own then redis.call('HSET', key, ARGV[1], whole(math.max(0, tonumber(own) - tonumber(ARGV[at + 1])))) end
  if own and (ARGV[at + 3] == '0' or redis.call('HEXISTS', key, 's') == 1) then
    redis.call('HINCRBY', key, 's', ARGV[at + 2])
  else unknown[#unknown + 1] = i end
end
return unknown`

/**
 * KEYS one counter, the awaited nodes; ARGV node, prefix of the heartbeats, spending in the ledger, 1 if reservations
 * were given back since the ledger was read, reserved amount of the node, 1 if that holds although Redis has another
 * one, milliseconds to keep it, milliseconds to await nodes, and the nodes to await if the counter is missing. Returns
 * the total, which is at least the spending in the ledger; -2 if Redis does not know the node; -4 if neither the ledger
 * nor the counter may have what was given back, so that the ledger has to be read again.
 */
const ALIGN = `${READ}
local key, awaited, node, alive = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if redis.call('EXISTS', alive .. node) == 0 then return -2 end
local spent, own = tonumber(ARGV[3]), tonumber(ARGV[5])
local used, reserved, written = read(key, node, alive)
if ARGV[4] == '1' and (used == nil or not written) then return -4 end
if written and ARGV[6] == '0' then own = written end
if used == nil then
  for at = 9, #ARGV do
    if ARGV[at] ~= node then
      redis.call('SADD', awaited, ARGV[at])
      redis.call('PEXPIRE', awaited, ARGV[8])
    end
  end
end
used = math.max(used or 0, spent)
redis.call('HSET', key, 's', whole(used), node, whole(own))
redis.call('PEXPIRE', key, ARGV[7])
return used + reserved + own`

/**
 * Makes the node known, with everything that it has reserved. KEYS nodes, awaited nodes, generation of the data, then
 * counters; ARGV node, prefix of the heartbeats, milliseconds of a heartbeat, generation that the node knows, a new one,
 * the number of former names of the node and these, the number of its peers and these, then for each counter the
 * reserved amount and milliseconds to keep it. If the data was lost, the node itself is awaited too. Returns the
 * generation.
 */
const ENTER = `
local node, alive, ms = ARGV[1], ARGV[2], ARGV[3]
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
  if lost and redis.call('EXISTS', alive .. peer) == 0 then
    redis.call('SADD', KEYS[2], peer)
    redis.call('PEXPIRE', KEYS[2], ms)
  end
end
at = at + tonumber(ARGV[at])
for i = 4, #KEYS do
  redis.call('HSET', KEYS[i], node, ARGV[at + 1])
  for _, name in ipairs(former) do redis.call('HDEL', KEYS[i], name) end
  redis.call('PEXPIRE', KEYS[i], ARGV[at + 2])
  at = at + 2
end
for _, name in ipairs(former) do
  redis.call('DEL', alive .. name)
  redis.call('SREM', KEYS[1], name)
  redis.call('SREM', KEYS[2], name)
end
redis.call('SET', alive .. node, '1', 'PX', ms)
redis.call('SADD', KEYS[1], node)
if lost then
  redis.call('SADD', KEYS[2], node)
  redis.call('PEXPIRE', KEYS[2], ms)
end
return generation`

/**
 * KEYS as for ENTER; ARGV node, prefix of the heartbeats, milliseconds of a heartbeat, generation that the node knows,
 * 1 if the counters are all in which the node may have spent or reserved, then for each counter milliseconds to keep
 * it. Such a node is not awaited any more if no counter misses it. Returns the number of counters that miss the node,
 * 1 if the node is still awaited, the numbers of those counters, and the nodes that are alive or awaited; only -2 if
 * Redis does not know the node, or has lost its data.
 */
const BEAT = `
local node, alive = ARGV[1], ARGV[2]
if redis.call('GET', KEYS[3]) ~= ARGV[4] then return { -2 } end
if redis.call('PEXPIRE', alive .. node, ARGV[3]) == 0 then return { -2 } end
local missing, names = {}, {}
for i = 4, #KEYS do
  if redis.call('HEXISTS', KEYS[i], node) == 0 then missing[#missing + 1] = i - 3
  else redis.call('PEXPIRE', KEYS[i], ARGV[i + 2]) end
end
for _, name in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  if redis.call('EXISTS', alive .. name) == 1 then names[#names + 1] = name
  else redis.call('SREM', KEYS[1], name) end
end
if #missing == 0 and ARGV[5] == '1' then redis.call('SREM', KEYS[2], node) end
for _, name in ipairs(redis.call('SMEMBERS', KEYS[2])) do names[#names + 1] = name end
local answer = { #missing, redis.call('SISMEMBER', KEYS[2], node) }
for _, number in ipairs(missing) do answer[#answer + 1] = number end
for _, name in ipairs(names) do answer[#answer + 1] = name end
return answer`

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
/** The longest time between heartbeats; so long may it take until a node finds out that Redis has lost its data. */
const BEAT_MAX_MS = 1_000
/** A counter is kept this much longer than its period, because clocks differ. */
const AFTER_END_MS = 60_000
/** Older spending is in the ledger. */
const RECENT_MS = 60_000
/**
 * A counter may need alignment, and again if a node dies or a reply ends meanwhile; further tries are left to the next
 * request.
 */
const TRIES = 3
/** A request waits for awaited nodes as long as its thread waits for the answer, and then counts as one that did not fit. */
const AWAIT_AGAIN_MS = 100
const AWAIT_TRIES = 15

interface Script {
  readonly text: string
  readonly sha: string
}

const script = (text: string): Script => ({ text, sha: createHash('sha1').update(text).digest('hex') })
const SCRIPTS = {
  take: script(TAKE),
  give: script(GIVE),
  align: script(ALIGN),
  enter: script(ENTER),
  beat: script(BEAT),
}

export class RedisCounters implements Counters {
  readonly #options: RedisCountersOptions
  readonly #redis: Redis
  readonly #aliveMs: number
  /** The name of this instance on the present connection. */
  #node = ''
  /** Names on earlier connections that Redis may still know. */
  #formerNames: string[] = []
  /** Names of the instances that were alive at the last heartbeat. */
  #peers: readonly string[] = []
  /** Of the data in Redis; empty before the first contact. Other data: Redis has lost what it had. */
  #generation = ''
  /**
   * Counters that were changed here but not in Redis, so that Redis has incomplete totals; with the ends of their
   * periods.
   */
  readonly #diverged = new Map<string, number>()
  readonly #alignments = new SingleFlight<void>()
  readonly #entering = new SingleFlight<void>()
  /** True after a loss, until Redis has everything that is known here. */
  #isReturning = false
  #heartbeat: Timer | null = null
  #closed = false

  constructor(options: RedisCountersOptions) {
    this.#options = options
    this.#aliveMs = options.aliveMs ?? ALIVE_MS
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

  /** True while limits are enforced by local shares. */
  get degraded(): boolean {
    return !this.#redis.isReady
  }

  take(entries: readonly CounterEntry[]): Taking | Promise<Taking> {
    if (!this.#redis.isReady) return this.#takeLocally(entries)
    const diverged = entries.filter(entry => this.#diverged.has(entry.id))
    if (diverged.length === 0) return this.#ask(entries, TRIES, AWAIT_TRIES)
    // The local share is good enough; the request does not wait for the ledger.
    for (const entry of diverged) this.#align(entry).catch(() => undefined)
    return this.#takeLocally(entries)
  }

  give(entries: readonly CounterEntry[], used: readonly number[]): void {
    const { local, prefix } = this.#options
    local.give(entries, used)
    const given: CounterEntry[] = []
    const amounts: string[] = []
    for (const [index, entry] of entries.entries()) {
      if (this.#diverged.has(entry.id)) continue
      given.push(entry)
      amounts.push(String(entry.amount), String(used[index] ?? 0), entry.origin === null ? '0' : '1')
    }
    if (given.length === 0) return
    const keys = given.map(({ id }) => prefix + id)
    this.#run(SCRIPTS.give, keys, amounts).then(
      unknown => {
        const numbers = unknown as readonly number[]
        if (numbers.length === 0) return
        const missing = numbers.flatMap(number => given[number - 1] ?? [])
        this.#alignSoon(missing).catch(() => undefined)
      },
      () => this.#markDiverged(given),
    )
  }

  /** Raises a counter to at least the spending in the ledger, in order to count what a dead instance spent. */
  async reconcile(entry: CounterEntry): Promise<void> {
    if (this.#redis.isReady) await this.#align(entry).catch(() => undefined)
  }

  /** Waits until returned amounts are in Redis, if it answers; no reservation of this instance remains. */
  async close(): Promise<void> {
    this.#closed = true
    this.#heartbeat?.cancel()
    await this.#redis.send(['DEL', this.#heartbeatPrefix + this.#node]).catch(() => undefined)
    this.#redis.close()
  }

  async #ask(entries: readonly CounterEntry[], tries: number, awaitTries: number): Promise<Taking> {
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
      if (reply[0] === ENTER_FIRST) await this.#enter()
    } catch {
      return this.#takeLocally(entries)
    }
    const [code = ALIGN_FIRST, ...amounts] = reply
    if (code === ENTER_FIRST)
      return tries === 0 ? this.#takeLocally(entries) : this.#askAgain(entries, tries - 1, awaitTries)
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
    if (code === AWAITED) {
      if (awaitTries === 0)
        return { exceeded: entries.findIndex(({ amount, origin }) => amount > 0 && origin !== null), rooms }
      await new Promise<void>(resolve => clock.after(AWAIT_AGAIN_MS, resolve))
      return this.#askAgain(entries, tries, awaitTries - 1)
    }
    if (tries === 0) return this.#takeLocally(entries)
    const unsure = entries.filter((_, index) => rooms[index]?.total === -1)
    await Promise.all(unsure.map(entry => this.#align(entry)))
    return this.#askAgain(entries, tries - 1, awaitTries)
  }

  #askAgain(entries: readonly CounterEntry[], tries: number, awaitTries: number): Taking | Promise<Taking> {
    return this.#redis.isReady ? this.#ask(entries, tries, awaitTries) : this.#takeLocally(entries)
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

  /** Aligns counters for which no request waits. */
  async #alignSoon(entries: readonly CounterEntry[]): Promise<void> {
    await Promise.all(entries.map(entry => this.#align(entry)))
    // Others may await this instance.
    await this.#beat()
  }

  /** Rejects if the ledger cannot be read. If Redis cannot be written, the counter stays diverged. */
  #align(entry: CounterEntry): Promise<void> {
    return this.#alignments.run(entry.id, () => this.#alignNow(entry))
  }

  async #alignNow(entry: CounterEntry): Promise<void> {
    const { id, origin } = entry
    if (origin === null) return
    const { local, spending } = this.#options
    for (let tries = 0; tries < TRIES; tries++) {
      const gives = local.gives(id)
      const spent = await spending.spent(origin)
      // Reservations that were given back meanwhile may be missing in `spent`. A diverged counter stays so until they
      // are in it: its requests take from the local share, which has them.
      const isExact = local.gives(id) === gives
      if (!isExact && this.#diverged.has(id)) continue
      if (await this.#alignTo(entry, spent, isExact)) return
    }
  }

  /** False if the ledger has to be read again. */
  async #alignTo(entry: CounterEntry, spent: number, isExact: boolean): Promise<boolean> {
    const { id } = entry
    const { local, prefix, clock } = this.#options
    // Redis runs commands in the order in which they are sent, so from here on it can be asked for the counter. Unless
    // the counter diverged, a reservation in Redis is the better figure: replies may be in progress.
    const diverged = this.#diverged.delete(id)
    try {
      const total = Number(
        await this.#run(
          SCRIPTS.align,
          [prefix + id, this.#awaitedKey],
          [
            this.#heartbeatPrefix,
            String(spent),
            isExact ? '0' : '1',
            String(Math.max(0, local.reserved(id))),
            diverged ? '1' : '0',
            String(keepMs(entry, clock.nowMs())),
            String(this.#aliveMs),
            // Others may have reserved in a counter that was there before.
            ...(local.has(id) ? this.#peers : []),
          ],
        ),
      )
      if (total === READ_AGAIN) return false
      if (total !== ENTER_FIRST) local.observe(entry, total, 0)
      else if (diverged) this.#markDiverged([entry])
    } catch {
      this.#markDiverged([entry])
    }
    return true
  }

  #run({ sha }: Script, keys: readonly string[], values: readonly string[]): Promise<unknown> {
    return this.#redis.send(['EVALSHA', sha, String(keys.length), ...keys, this.#node, ...values])
  }

  /** Makes this instance known to Redis, with what it has reserved. */
  #enter(): Promise<void> {
    return this.#entering.run('', () => this.#enterNow())
  }

  async #enterNow(): Promise<void> {
    const { local, prefix, clock } = this.#options
    const nowMs = clock.nowMs()
    // Each command before this one was answered, or changes nothing any more: what is reserved is known exactly.
    const reservations = local.reservations()
    const former = [...this.#formerNames]
    const generation = await this.#run(
      SCRIPTS.enter,
      [...this.#nodeKeys, ...reservations.map(({ id }) => prefix + id)],
      [
        this.#heartbeatPrefix,
        String(this.#aliveMs),
        this.#generation,
        randomBytes(8).toString('hex'),
        String(former.length),
        ...former,
        String(this.#peers.length),
        ...this.#peers,
        ...reservations.flatMap(entry => [String(entry.amount), String(keepMs(entry, nowMs))]),
      ],
    )
    const wasLost = this.#generation !== '' && this.#generation !== String(generation)
    this.#generation = String(generation)
    this.#formerNames = this.#formerNames.filter(name => !former.includes(name))
    if (wasLost) {
      // The latest spending of this instance may be in no counter, and not in the ledger yet.
      this.#isReturning = true
      const recent = local.inUse(RECENT_MS)
      await Promise.all(recent.map(entry => this.#align(entry))).finally(() => {
        this.#isReturning = false
      })
    }
    await this.#beat()
  }

  /** After an outage: other instances have to count what was spent here meanwhile. */
  async #enterAndAlign(): Promise<void> {
    await this.#enter()
    for (const entry of this.#options.local.inUse()) {
      if (!this.#redis.isReady || this.#closed) return
      if (this.#diverged.has(entry.id)) await this.#align(entry)
    }
  }

  /** Renews the heartbeat. If others await this instance, it looks through all its recent counters. */
  async #beat(): Promise<void> {
    const { local } = this.#options
    const isAwaited = await this.#beatFor(local.reservations(), false)
    // Counters without reservations count too: their latest spending may not be in the ledger yet.
    if (isAwaited && !this.#isReturning)
      await this.#beatFor([...local.reservations(), ...local.inUse(RECENT_MS)], true)
  }

  /** True if others await this instance. `isAll`: there are no counters that others could miss. */
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
    const [count = ENTER_FIRST, isAwaited, ...rest] = reply
    if (count === ENTER_FIRST) throw new Error('redis has lost its data')
    const missing = rest.slice(0, Number(count)).flatMap(number => counters[Number(number) - 1] ?? [])
    this.#peers = rest
      .slice(Number(count))
      .map(String)
      .filter(name => name !== this.#node)
    if (missing.length > 0) this.#alignSoon(missing).catch(() => undefined)
    return isAwaited === 1 && missing.length === 0
  }

  get #heartbeatPrefix(): string {
    return `${this.#options.prefix}alive/`
  }

  get #awaitedKey(): string {
    return `${this.#options.prefix}awaited`
  }

  get #nodeKeys(): readonly string[] {
    const { prefix } = this.#options
    return [`${prefix}nodes`, this.#awaitedKey, `${prefix}generation`]
  }

  #scheduleHeartbeat(): void {
    this.#heartbeat = this.#options.clock.after(Math.min(BEAT_MAX_MS, this.#aliveMs / 6), () => {
      if (this.#redis.isReady)
        this.#beat()
          .catch(() => this.#enter())
          .catch(() => undefined)
      this.#forgetPast()
      this.#scheduleHeartbeat()
    })
  }
}

/** Milliseconds until Redis may drop an unused counter. Requests of a past period may still run. */
function keepMs(entry: CounterEntry, nowMs: number): number {
  return Math.ceil(Math.min(IDLE_MS, Math.max(0, entry.endsMs - nowMs) + AFTER_END_MS))
}

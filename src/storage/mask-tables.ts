/**
 * Placeholders of sessions: which number a masked value has in a session, so that it has the same one in each of its
 * requests. The contract of the stores, and the stores of one process, of several instances (Redis), and of a serve
 * thread. Nothing here can be read: values are named by keyed hashes and kept sealed. A table lives as long as the
 * affinity of its session. A lost table costs the same numbers, but no request.
 */
import { createHash } from 'node:crypto'
import type { Clock } from '../base/clock.ts'
import { SharedCache } from '../base/fairness/shared-cache.ts'
import type { Log } from '../base/log/log.ts'
import type { RemoteService } from '../base/thread-rpc.ts'
import { openRedis, type Redis } from './redis.ts'

/** A value that needs a placeholder. */
export interface MaskValue {
  /** A keyed hash of kind and value. */
  readonly id: string
  readonly kind: string
  /** The placeholder that it should have if no other value has it; empty: any. */
  readonly wish: string
  readonly sealed: string
}

/** All values of a session: id, placeholder, sealed value. */
export type MaskTable = readonly (readonly [id: string, token: string, sealed: string])[]

export interface MaskTables {
  /**
   * Gives the values their placeholders, in order, and returns the table. Values for which it has no room are missing.
   * Null: the table cannot be reached. `owner`: the hash of the API key whose share it uses.
   */
  give(
    session: string,
    values: readonly MaskValue[],
    ttlMs: number,
    owner: string,
  ): MaskTable | null | Promise<MaskTable | null>
}

export const SESSION_VALUES_MAX = 250
/** Longer values have a place in their own request only. */
export const SEALED_MAX_CHARS = 384
const NUMBER_MAX = 9_999
/** With full tables about 100 MB; a usual one has some hundred bytes. */
const SESSIONS_MAX = 1_000

interface SessionTable {
  readonly values: Map<string, readonly [id: string, token: string, sealed: string]>
  readonly tokens: Set<string>
  readonly next: Map<string, number>
  untilMs: number
}

/** The tables of this process. */
export function createMaskTables(clock: Clock, max = SESSIONS_MAX): MaskTables {
  const sessions = new SharedCache<SessionTable>(max)
  return {
    give(session, values, ttlMs, owner) {
      const nowMs = clock.monotonicMs()
      let table = sessions.get(session)
      if (table === undefined || table.untilMs <= nowMs) {
        if (values.length === 0) return []
        table = { values: new Map(), tokens: new Set(), next: new Map(), untilMs: 0 }
        sessions.set(owner, session, table)
      }
      table.untilMs = Math.max(table.untilMs, nowMs + ttlMs)
      for (const value of values) giveOne(table, value)
      return [...table.values.values()]
    },
  }
}

function giveOne({ values, tokens, next }: SessionTable, { id, kind, wish, sealed }: MaskValue): void {
  if (values.has(id) || values.size >= SESSION_VALUES_MAX) return
  let token = wish
  if (token === '' || tokens.has(token)) {
    let n = next.get(kind) ?? 1
    while (n <= NUMBER_MAX && tokens.has(`[${kind}_${n}]`)) n++
    if (n > NUMBER_MAX) return
    next.set(kind, n + 1)
    token = `[${kind}_${n}]`
  }
  tokens.add(token)
  values.set(id, [id, token, sealed])
}

/**
 * KEYS: the session. ARGV: milliseconds until it expires, then id, kind, wish and sealed value of each. Fields: `v` and
 * the id of a value, `t` and a placeholder, `n` and a kind. Returns id, placeholder and sealed value of each.
 */
const GIVE = `
local room = ${2 * SESSION_VALUES_MAX}
for i = 2, #ARGV, 4 do
  local id, kind, wish, sealed = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if redis.call('HEXISTS', KEYS[1], 'v' .. id) == 0 and redis.call('HLEN', KEYS[1]) < room then
    local token = wish
    if wish == '' or redis.call('HEXISTS', KEYS[1], 't' .. wish) == 1 then
      local n
      repeat
        n = redis.call('HINCRBY', KEYS[1], 'n' .. kind, 1)
        token = '[' .. kind .. '_' .. n .. ']'
      until n > ${NUMBER_MAX} or redis.call('HEXISTS', KEYS[1], 't' .. token) == 0
      if n > ${NUMBER_MAX} then token = nil end
    end
    if token then redis.call('HSET', KEYS[1], 'v' .. id, token .. ' ' .. sealed, 't' .. token, '') end
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1], 'NX')
redis.call('PEXPIRE', KEYS[1], ARGV[1], 'GT')
local all = redis.call('HGETALL', KEYS[1])
local found = {}
for i = 1, #all, 2 do
  if string.sub(all[i], 1, 1) == 'v' then
    local at = string.find(all[i + 1], ' ', 1, true)
    found[#found + 1] = string.sub(all[i], 2)
    found[#found + 1] = string.sub(all[i + 1], 1, at - 1)
    found[#found + 1] = string.sub(all[i + 1], at + 1)
  end
end
return found`
const GIVE_SHA = createHash('sha1').update(GIVE).digest('hex')

interface RedisMasksOptions {
  readonly url: string
  /** Prefix of every Redis key. */
  readonly prefix: string
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  readonly silenceMs?: number
}

/** The tables of all instances. While Redis is away, this process's tables are used. */
export class RedisMaskTables implements MaskTables {
  readonly #redis: Redis
  readonly #local: MaskTables
  readonly #prefix: string

  constructor({ url, prefix, clock, log, silenceMs }: RedisMasksOptions) {
    this.#prefix = `${prefix}masks/`
    this.#local = createMaskTables(clock)
    this.#redis = openRedis({
      url,
      clock,
      log,
      ...(silenceMs === undefined ? {} : { silenceMs }),
      prepare: () => [['SCRIPT', 'LOAD', GIVE]],
    })
  }

  async give(
    session: string,
    values: readonly MaskValue[],
    ttlMs: number,
    owner: string,
  ): Promise<MaskTable | null> {
    try {
      const ms = String(Math.max(1, Math.ceil(ttlMs)))
      const list = values.flatMap(({ id, kind, wish, sealed }) => [id, kind, wish, sealed])
      const found = await this.#redis.send(['EVALSHA', GIVE_SHA, '1', this.#prefix + session, ms, ...list])
      return tableOf(found)
    } catch {
      return this.#local.give(session, values, ttlMs, owner)
    }
  }

  close(): void {
    this.#redis.close()
  }
}

function tableOf(found: unknown): MaskTable {
  const texts = Array.isArray(found) ? found.map(String) : []
  const table: [string, string, string][] = []
  for (let at = 0; at + 2 < texts.length; at += 3)
    table.push([texts[at] ?? '', texts[at + 1] ?? '', texts[at + 2] ?? ''])
  return table
}

/** How long a request waits for its table. */
const ANSWER_MS = 500

/** The tables as a serve thread uses them: the main thread has them. */
export class MaskTableClient implements MaskTables {
  readonly #tables: RemoteService<MaskTables>

  constructor(tables: RemoteService<MaskTables>) {
    this.#tables = tables
  }

  async give(
    session: string,
    values: readonly MaskValue[],
    ttlMs: number,
    owner: string,
  ): Promise<MaskTable | null> {
    return (await this.#tables.ask('give', [session, values, ttlMs, owner], ANSWER_MS)) ?? null
  }
}

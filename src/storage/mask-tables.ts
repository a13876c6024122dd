/**
 * Placeholders of masked values in a session: a value has the same placeholder in each of its requests. The contract of
 * the stores, and the stores of one process, of several instances (Redis), and of a serve thread. The stores cannot read
 * the values: they are named by keyed hashes and kept sealed. A table lives as long as the affinity of its session. If a
 * table is lost, values get new placeholders, but no request fails.
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
  /** The preferred placeholder, used if no other value has it; empty: none. */
  readonly preferred: string
  readonly sealed: string
}

/** All values of a session: id, placeholder, sealed value. */
export type MaskTable = readonly (readonly [id: string, token: string, sealed: string])[]

export interface MaskTables {
  /**
   * Assigns placeholders to the values, in order, and returns the table. Values without room are missing in it. Null: the
   * table cannot be reached. `owner`: the hash of the API key whose share of the memory the table uses.
   */
  assign(
    session: string,
    values: readonly MaskValue[],
    ttlMs: number,
    owner: string,
  ): MaskTable | null | Promise<MaskTable | null>
}

export const SESSION_VALUES_MAX = 250
/** Longer values are not stored, so they have a placeholder in one request only. */
export const SEALED_MAX_CHARS = 384
const PLACEHOLDER_NUMBER_MAX = 9_999
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
    assign(session, values, ttlMs, owner) {
      const nowMs = clock.monotonicMs()
      let table = sessions.get(session)
      if (table === undefined || table.untilMs <= nowMs) {
        if (values.length === 0) return []
        table = { values: new Map(), tokens: new Set(), next: new Map(), untilMs: 0 }
        sessions.set(owner, session, table)
      }
      table.untilMs = Math.max(table.untilMs, nowMs + ttlMs)
      for (const value of values) assignPlaceholder(table, value)
      return [...table.values.values()]
    },
  }
}

function assignPlaceholder(
  { values, tokens, next }: SessionTable,
  { id, kind, preferred, sealed }: MaskValue,
): void {
  if (values.has(id) || values.size >= SESSION_VALUES_MAX) return
  let token = preferred
  if (token === '' || tokens.has(token)) {
    let number = next.get(kind) ?? 1
    while (number <= PLACEHOLDER_NUMBER_MAX && tokens.has(`[${kind}_${number}]`)) number++
    if (number > PLACEHOLDER_NUMBER_MAX) return
    next.set(kind, number + 1)
    token = `[${kind}_${number}]`
  }
  tokens.add(token)
  values.set(id, [id, token, sealed])
}

/**
 * KEYS: the session. ARGV: milliseconds until it expires, then id, kind, preferred placeholder and sealed value of each
 * value. Fields: `v` and the id of a value, `t` and a placeholder, `n` and a kind. Returns id, placeholder and sealed
 * value of each value.
 */
const ASSIGN_SCRIPT = `
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
      until n > ${PLACEHOLDER_NUMBER_MAX} or redis.call('HEXISTS', KEYS[1], 't' .. token) == 0
      if n > ${PLACEHOLDER_NUMBER_MAX} then token = nil end
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
const ASSIGN_SHA = createHash('sha1').update(ASSIGN_SCRIPT).digest('hex')

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
      prepare: () => [['SCRIPT', 'LOAD', ASSIGN_SCRIPT]],
    })
  }

  async assign(
    session: string,
    values: readonly MaskValue[],
    ttlMs: number,
    owner: string,
  ): Promise<MaskTable | null> {
    try {
      const ms = String(Math.max(1, Math.ceil(ttlMs)))
      const list = values.flatMap(({ id, kind, preferred, sealed }) => [id, kind, preferred, sealed])
      const reply = await this.#redis.send(['EVALSHA', ASSIGN_SHA, '1', this.#prefix + session, ms, ...list])
      return tableOf(reply)
    } catch {
      return this.#local.assign(session, values, ttlMs, owner)
    }
  }

  close(): void {
    this.#redis.close()
  }
}

function tableOf(reply: unknown): MaskTable {
  const texts = Array.isArray(reply) ? reply.map(String) : []
  const table: [string, string, string][] = []
  for (let index = 0; index + 2 < texts.length; index += 3)
    table.push([texts[index] ?? '', texts[index + 1] ?? '', texts[index + 2] ?? ''])
  return table
}

/** How long a request waits for its table. */
const ANSWER_TIMEOUT_MS = 500

/** The tables as a serve thread uses them: the main thread has them. */
export class MaskTableClient implements MaskTables {
  readonly #tables: RemoteService<MaskTables>

  constructor(tables: RemoteService<MaskTables>) {
    this.#tables = tables
  }

  async assign(
    session: string,
    values: readonly MaskValue[],
    ttlMs: number,
    owner: string,
  ): Promise<MaskTable | null> {
    return (await this.#tables.ask('assign', [session, values, ttlMs, owner], ANSWER_TIMEOUT_MS)) ?? null
  }
}

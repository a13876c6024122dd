/**
 * Pins in Redis, for several instances. Main thread. It also keeps the pins of this instance in memory, and uses them
 * while Redis is unavailable.
 */
import { createHash } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { openRedis, type Redis } from '../redis.ts'
import { createPins, type Pins } from './session-affinity.ts'

/**
 * KEYS: the pin. ARGV: the claimed pin, milliseconds until it expires. Returns the stored pin, which may come from
 * another instance.
 */
const CLAIM = `
local kept = redis.call('GET', KEYS[1])
if kept then return kept end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]`
const CLAIM_SHA = createHash('sha1').update(CLAIM).digest('hex')

interface RedisPinsOptions {
  readonly url: string
  /** Prefix of every Redis key. */
  readonly prefix: string
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  readonly silenceMs?: number
}

export class RedisPins implements Pins {
  readonly #redis: Redis
  readonly #local: Pins
  readonly #prefix: string

  constructor({ url, prefix, clock, log, silenceMs }: RedisPinsOptions) {
    this.#prefix = `${prefix}pin/`
    this.#local = createPins(clock)
    this.#redis = openRedis({
      url,
      clock,
      log,
      ...(silenceMs === undefined ? {} : { silenceMs }),
      prepare: () => [['SCRIPT', 'LOAD', CLAIM]],
    })
  }

  async get(key: string): Promise<string | null> {
    try {
      const pin = await this.#redis.send(['GET', this.#prefix + key])
      return typeof pin === 'string' ? pin : null
    } catch {
      return this.#local.get(key)
    }
  }

  async claim(key: string, pin: string, ttlMs: number, owner: string): Promise<string> {
    try {
      const storedPin = await this.#redis.send([
        'EVALSHA',
        CLAIM_SHA,
        '1',
        this.#prefix + key,
        pin,
        wholeMs(ttlMs),
      ])
      if (typeof storedPin !== 'string') return pin
      this.#local.set(key, storedPin, ttlMs, owner)
      return storedPin
    } catch {
      return this.#local.claim(key, pin, ttlMs, owner)
    }
  }

  set(key: string, pin: string, ttlMs: number, owner: string): void {
    this.#local.set(key, pin, ttlMs, owner)
    this.#redis.send(['SET', this.#prefix + key, pin, 'PX', wholeMs(ttlMs)]).catch(() => undefined)
  }

  close(): void {
    this.#redis.close()
  }
}

function wholeMs(ms: number): string {
  return String(Math.max(1, Math.ceil(ms)))
}

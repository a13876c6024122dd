/**
 * Pins: what a conversation keeps from one request to the next, such as the endpoint that it stays with (session
 * affinity). The contract of their stores, and the store of one process. It is in the main thread, so that all serve
 * threads know the same pins.
 */
import type { Clock } from '../../base/clock.ts'
import { SharedCache } from '../../base/fairness/shared-cache.ts'

/**
 * Store of pins. No method throws or rejects: a lost pin costs a cache miss, but no request. `owner`: the hash of the
 * API key whose share a new pin uses.
 */
export interface Pins {
  /** The stored pin; null: there is none, or it has expired. */
  get(key: string): string | null | Promise<string | null>
  /** Returns the stored pin; if there is none, stores this one and returns it. */
  claim(key: string, pin: string, ttlMs: number, owner: string): string | Promise<string>
  /** Stores a pin for this long, and replaces an earlier one. */
  set(key: string, pin: string, ttlMs: number, owner: string): void
}

/** About 20 MB. */
const PINS_MAX = 50_000
/** Longer pins, such as signatures, have a share of their own, also about 20 MB. */
const SHORT_PIN_MAX_CHARS = 512
const LONG_PINS_MAX = 2_500

/**
 * Creates the store of this process. When it is full, it drops the least recently used pin of the key with the most
 * pins.
 */
export function createPins(clock: Clock, maxPins: number = PINS_MAX): Pins {
  const pins = new SharedCache<{ readonly pin: string; readonly untilMs: number }>(maxPins)
  const longPins = new SharedCache<{ readonly pin: string; readonly untilMs: number }>(LONG_PINS_MAX)
  const get = (key: string): string | null => {
    const entry = pins.get(key) ?? longPins.get(key)
    return entry !== undefined && clock.monotonicMs() < entry.untilMs ? entry.pin : null
  }
  const set = (key: string, pin: string, ttlMs: number, owner: string): void => {
    const [target, otherPins] = pin.length > SHORT_PIN_MAX_CHARS ? [longPins, pins] : [pins, longPins]
    otherPins.delete(key)
    target.set(owner, key, { pin, untilMs: clock.monotonicMs() + ttlMs })
  }
  return {
    get,
    set,
    claim(key, pin, ttlMs, owner) {
      const storedPin = get(key)
      if (storedPin !== null) return storedPin
      set(key, pin, ttlMs, owner)
      return pin
    },
  }
}

/**
 * Pins: the endpoint at which a conversation stays. The contract of their stores, and the store of one process. It is
 * in the main thread, so that all serve threads know the same pins.
 */
import { LRUCache } from 'lru-cache'
import type { Clock } from '../clock.ts'

/** Store of pins. No method throws or rejects: a lost pin costs a cache miss, but no request. */
export interface Pins {
  /** Null: there is none, or it has expired. */
  get(key: string): string | null | Promise<string | null>
  /** Returns the stored pin; if there is none, stores this one and returns it. */
  claim(key: string, pin: string, ttlMs: number): string | Promise<string>
  /** Stores a pin for so long from now, in place of an earlier one. */
  set(key: string, pin: string, ttlMs: number): void
}

/** About 20 MB. */
const PINS_MAX = 50_000

/** Makes the store of this process. When it is full, it drops the least recently used pin. */
export function createPins(clock: Clock, maxPins: number = PINS_MAX): Pins {
  const pins = new LRUCache<string, { readonly pin: string; readonly untilMs: number }>({ max: maxPins })
  const get = (key: string): string | null => {
    const entry = pins.get(key)
    return entry !== undefined && clock.monotonicMs() < entry.untilMs ? entry.pin : null
  }
  const set = (key: string, pin: string, ttlMs: number): void => {
    pins.set(key, { pin, untilMs: clock.monotonicMs() + ttlMs })
  }
  return {
    get,
    set,
    claim(key, pin, ttlMs) {
      const kept = get(key)
      if (kept !== null) return kept
      set(key, pin, ttlMs)
      return pin
    },
  }
}

/**
 * Pins: which endpoint a conversation stays with. The contract of their stores, and the store of one process, which is
 * in the main thread, so that all serve threads know the same pins.
 */
import { LRUCache } from 'lru-cache'
import type { Clock } from '../clock.ts'

/** Store of pins. No verb throws or rejects: a lost pin costs a cache miss, no request. */
export interface Pins {
  /** Null when there is none, or none any more. */
  get(key: string): string | null | Promise<string | null>
  /** The pin that there is, or else this one, which is kept from now on. */
  claim(key: string, pin: string, ttlMs: number): string | Promise<string>
  /** Kept for so long from now; takes the place of another one. */
  set(key: string, pin: string, ttlMs: number): void
}

/** About 20 MB. */
const PINS_MAX = 50_000

/** Pins of this process, the least recently used giving way. */
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

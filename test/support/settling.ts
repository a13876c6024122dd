/** Measures how long threads and nodes take to act on a change. */
import { PATIENCE_MS } from './limited-gateway.ts'

/** New connections each: with two threads, the chance that one of them is not asked is one in 500,000. */
export const SETTLED = 20

/**
 * Asks until it is as it should be many times in a row. Returns how long after the beginning the last request was sent
 * for which it was not; infinity when it does not come to be so.
 */
export async function lastWrongMs(isRight: () => Promise<boolean>): Promise<number> {
  const sinceMs = performance.now()
  let wrongMs = 0
  for (let right = 0; right < SETTLED; ) {
    const sentMs = performance.now() - sinceMs
    if (sentMs > PATIENCE_MS) return Number.POSITIVE_INFINITY
    if (await isRight()) right++
    else {
      wrongMs = sentMs
      right = 0
    }
  }
  return wrongMs
}

/** The clock for commands that wait. */
import { type Clock, systemClock } from '../../base/clock.ts'

/** Its timers keep the process alive, which waits for nothing else. */
export const waitingClock: Clock = {
  ...systemClock,
  after(delayMs, callback) {
    const timer = setTimeout(callback, delayMs)
    return { cancel: () => clearTimeout(timer) }
  },
}

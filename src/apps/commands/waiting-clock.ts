/** The clock for commands that wait. */
import { type Clock, systemClock } from '../../base/clock.ts'

/** Its timers keep the process alive, because nothing else does. */
export const waitingClock: Clock = {
  ...systemClock,
  after(delayMs, callback) {
    const timer = setTimeout(callback, delayMs)
    return { cancel: () => clearTimeout(timer) }
  },
}

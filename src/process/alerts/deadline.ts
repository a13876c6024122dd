/** A deadline for work that cannot be cancelled, such as a query to a database that does not answer. Main thread. */
import type { Clock } from '../../base/clock.ts'

/** Settles like the work, or rejects after `ms`. The work may continue, but its result is ignored. */
export async function within<Result>(clock: Clock, ms: number, work: Promise<Result>): Promise<Result> {
  const late = Promise.withResolvers<never>()
  const timer = clock.after(ms, () => late.reject(new Error('no answer in time')))
  try {
    return await Promise.race([work, late.promise])
  } finally {
    timer.cancel()
  }
}

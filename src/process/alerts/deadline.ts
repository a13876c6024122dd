/** A deadline for work that cannot be cancelled, such as a query to a database that does not answer. Main thread. */
import type { Clock } from '../../base/clock.ts'

/** As the work does, or rejects after `ms`: the work may go on, but nobody waits for it. */
export async function within<Result>(clock: Clock, ms: number, work: Promise<Result>): Promise<Result> {
  const late = Promise.withResolvers<never>()
  const timer = clock.after(ms, () => late.reject(new Error('no answer in time')))
  try {
    return await Promise.race([work, late.promise])
  } finally {
    timer.cancel()
  }
}

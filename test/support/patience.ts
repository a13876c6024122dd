/** Waits with a deadline: a test that would hang fails instead, and reports what it was waiting for. */

/** For what comes in a moment; a busy machine takes its time. */
const PATIENCE_MS = 60_000

const inVain = (what: string): Error => new Error(`waited in vain for ${what}`)

/** After so many turns of the event loop it is another process that is waited for, which needs the processor. */
const BUSY_TURNS = 100

/** Resolves when it holds, which it is asked again and again. @throws Error that names `what` */
export async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const endMs = performance.now() + PATIENCE_MS
  for (let turn = 0; !(await holds()); turn++) {
    if (performance.now() > endMs) throw inVain(what)
    await new Promise<void>(
      resolve => void (turn < BUSY_TURNS ? setImmediate(resolve) : setTimeout(resolve, 2)),
    )
  }
}

/** Settles as the promise does. @throws Error that names `what` */
export async function awaited<T>(what: string, promise: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(() => late.reject(inVain(what)), PATIENCE_MS)
  try {
    return await Promise.race([promise, late.promise])
  } finally {
    clearTimeout(timer)
  }
}

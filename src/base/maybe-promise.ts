/**
 * Values that are available now or through a promise. Code that uses them stays synchronous while nothing must be
 * awaited, because a turn of the event loop costs more than most of the work. Pure. Hot path.
 */

/** Passes the value to `next`: at once if it is available, otherwise when its promise resolves. */
export function whenReady<T, R>(value: T | Promise<T>, next: (value: T) => R | Promise<R>): R | Promise<R> {
  return value instanceof Promise ? value.then(next) : next(value)
}

/** True if the value must be awaited. */
export function isPending<T>(value: T | Promise<T>): value is Promise<T> {
  return value instanceof Promise
}

/** Resolves to true if the work ends within the time, otherwise to false; rejects if the work does. */
export async function endsWithin(limitMs: number, work: Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<false>(resolve => {
    timer = setTimeout(() => resolve(false), limitMs)
  })
  try {
    return await Promise.race([work.then(() => true as const), late])
  } finally {
    clearTimeout(timer)
  }
}

/** The result of `make`, or the error that it throws, as a promise. */
export async function resolved<T>(make: () => T | Promise<T>): Promise<T> {
  return make()
}

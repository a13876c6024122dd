/** Counts work on lists, so that a test can detect quadratic work without measuring time. */

/** Lengths of the arrays and sets that spreads and loops begin to walk over while `work` runs. */
export function walked(work: () => void): number {
  const arrays = Array.prototype[Symbol.iterator]
  const sets = Set.prototype[Symbol.iterator]
  let count = 0
  Array.prototype[Symbol.iterator] = function (this: unknown[]) {
    count += this.length
    return arrays.call(this)
  }
  Set.prototype[Symbol.iterator] = function (this: Set<unknown>) {
    count += this.size
    return sets.call(this)
  }
  try {
    work()
  } finally {
    Array.prototype[Symbol.iterator] = arrays
    Set.prototype[Symbol.iterator] = sets
  }
  return count
}

/** Lengths of the arrays that `find` and `filter` are asked to go through while `work` runs. */
export function lookedAt(work: () => void): number {
  const { find, filter } = Array.prototype
  let count = 0
  const counting = (method: (this: unknown[], ...given: never[]) => unknown) =>
    function (this: unknown[], ...given: never[]): unknown {
      count += this.length
      return method.apply(this, given)
    }
  Object.assign(Array.prototype, { find: counting(find), filter: counting(filter) })
  try {
    work()
  } finally {
    // Assignment leaves them hidden from loops over keys, as they were.
    Object.assign(Array.prototype, { find, filter })
  }
  return count
}

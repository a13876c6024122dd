/** Values that are at hand or on their way. Leaf. Hot path: what is at hand is used at once. */

/** Goes on with the value now when it is at hand, otherwise when it has come. */
export function whenReady<Value, Result>(
  value: Value | Promise<Value>,
  next: (value: Value) => Result | Promise<Result>,
): Result | Promise<Result> {
  return value instanceof Promise ? value.then(next) : next(value)
}

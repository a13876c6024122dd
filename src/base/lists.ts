/** Functions for short lists. Leaf. Pure. */

/** An empty list with space for one entry. The engine gives `[]` space for seventeen with its first one. */
export function shortList<T>(): T[] {
  const list: unknown[] = [undefined]
  list.pop()
  return list as T[]
}

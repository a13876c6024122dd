/** Functions for short lists. Leaf. Pure. */

/** An empty list that takes room for one entry. The engine gives `[]` room for seventeen with its first one. */
export function shortList<T>(): T[] {
  const list: unknown[] = [undefined]
  list.pop()
  return list as T[]
}

/** Holds task workers at the point a test wants: they report that they have begun, and wait until they are released. */

interface Gate {
  readonly memory: SharedArrayBuffer
  /** How many workers have come to it. */
  readonly arrived: number
  /** Resolves once so many have come. */
  arrival(count: number): Promise<void>
  open(): void
}

export function createGate(): Gate {
  const memory = new SharedArrayBuffer(8)
  const flags = new Int32Array(memory)
  return {
    memory,
    get arrived() {
      return Atomics.load(flags, 0)
    },
    async arrival(count) {
      for (;;) {
        const arrived = Atomics.load(flags, 0)
        if (arrived >= count) return
        await Atomics.waitAsync(flags, 0, arrived).value
      }
    },
    open() {
      Atomics.store(flags, 1, 1)
      Atomics.notify(flags, 1)
    },
  }
}

/**
 * Resolves host names from callers' links. The DNS servers of such names may never answer, so no lookup may delay
 * others. `public-addresses.ts` decides which addresses may be reached. Serve threads and main thread.
 */
import { lookup, Resolver } from 'node:dns/promises'

/** An IP address and its family, 4 or 6. */
export interface Address {
  readonly address: string
  readonly family: number
}

/** Resolves to all addresses of a name. Rejects if there are none, and immediately if the signal fires. */
export type ResolveName = (name: string, signal: AbortSignal) => Promise<readonly Address[]>

/** Timeout of one query to one server; a second try waits longer. */
const QUERY_TIMEOUT_MS = 2_000
const QUERY_ATTEMPTS = 2

interface ServerLookupOptions {
  /** `address:port` of DNS servers. Default: the system's. */
  readonly servers?: readonly string[]
}

/**
 * Queries the DNS servers without using a thread of libuv's pool, and stops when the signal fires. It uses neither the
 * hosts file nor search domains, so names that need one of these stay unknown.
 */
export function createServerLookup({ servers }: ServerLookupOptions = {}): ResolveName {
  return async (name, signal) => {
    // A single label is a name in the local network.
    if (!name.replace(/\.$/, '').includes('.')) throw new Error('a name without a dot')
    signal.throwIfAborted()
    // One resolver per lookup, because `cancel` ends all queries of a resolver.
    const resolver = new Resolver({ timeout: QUERY_TIMEOUT_MS, tries: QUERY_ATTEMPTS })
    if (servers !== undefined) resolver.setServers([...servers])
    const cancel = (): void => resolver.cancel()
    signal.addEventListener('abort', cancel, { once: true })
    try {
      const [v4, v6] = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)])
      if (v4.status === 'rejected' && v6.status === 'rejected') throw v4.reason as Error
      return alternate(addressesIn(v4, 4), addressesIn(v6, 6))
    } finally {
      signal.removeEventListener('abort', cancel)
    }
  }
}

function addressesIn(settled: PromiseSettledResult<readonly string[]>, family: number): readonly Address[] {
  return settled.status === 'rejected' ? [] : settled.value.map(address => ({ address, family }))
}

/** Alternates between both families, so that both are among the first few addresses. */
function alternate(v4: readonly Address[], v6: readonly Address[]): readonly Address[] {
  const longer = v4.length > v6.length ? v4 : v6
  return longer.flatMap((_, index) => [...v4.slice(index, index + 1), ...v6.slice(index, index + 1)])
}

/** The error for a lookup whose signal fired while the lookup was queued: it never started. */
export class QueueTimeout extends Error {
  override readonly name = 'QueueTimeout'
}

/**
 * Resolves as other programs on this machine do, with hosts file and search domains. Such a lookup holds one of libuv's
 * threads until it has a result, and cannot be stopped. All lookups share two of these threads, including those for
 * providers. So one runs at a time, even after its caller has left, and the others queue.
 */
export function createSystemLookup(
  lookUp: (name: string) => Promise<readonly Address[]> = lookUpAll,
): ResolveName {
  let isBusy = false
  const queue = new Set<() => void>()
  const waitForTurn = (signal: AbortSignal): Promise<void> =>
    new Promise((resolve, reject) => {
      const giveUp = (): void => {
        queue.delete(begin)
        reject(new QueueTimeout('the lookup waited too long in the queue'))
      }
      const begin = (): void => {
        queue.delete(begin)
        signal.removeEventListener('abort', giveUp)
        resolve()
      }
      queue.add(begin)
      signal.addEventListener('abort', giveUp, { once: true })
    })
  const startNext = (): void => {
    const [next] = queue
    if (next === undefined) isBusy = false
    else next()
  }
  return async (name, signal) => {
    signal.throwIfAborted()
    if (isBusy) await waitForTurn(signal)
    isBusy = true
    const work = (async () => await lookUp(name))()
    work.then(startNext, startNext)
    return await orAborted(work, signal)
  }
}

async function lookUpAll(name: string): Promise<readonly Address[]> {
  return await lookup(name, { all: true, verbatim: true })
}

/** Rejects when the signal fires; the work itself continues. */
function orAborted<Value>(work: Promise<Value>, signal: AbortSignal): Promise<Value> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error)
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}

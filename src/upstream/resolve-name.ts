/**
 * The addresses of names that callers write. Their DNS servers may be anybody's, and may never answer: nothing that is
 * asked here may keep others waiting. Serve threads.
 */
import { lookup, Resolver } from 'node:dns/promises'
import { BlockList, isIPv4, isIPv6 } from 'node:net'

export interface Address {
  readonly address: string
  readonly family: number
}

/** All addresses of a name. Rejects when there are none, and at once when the signal fires. */
export type ResolveName = (name: string, signal: AbortSignal) => Promise<readonly Address[]>

/** Of one question to one server; a second try waits longer. */
const TRY_MS = 2_000
const TRIES = 2

export interface ServerLookupSettings {
  /** `address:port` of DNS servers. Default: the system's. */
  readonly servers?: readonly string[]
}

/**
 * Asks the DNS servers, without a thread of libuv's pool, and stops when nobody waits any more. Knows neither the
 * hosts file nor search domains, and so no name that means something in our own network alone.
 */
export function createServerLookup({ servers }: ServerLookupSettings = {}): ResolveName {
  return async (name, signal) => {
    // One label is a name of the local network, whatever it leads to.
    if (!name.replace(/\.$/, '').includes('.')) throw new Error('a name without a dot')
    signal.throwIfAborted()
    // Of its own: cancelling ends all its questions.
    const resolver = new Resolver({ timeout: TRY_MS, tries: TRIES })
    if (servers !== undefined) resolver.setServers([...servers])
    const cancel = (): void => resolver.cancel()
    signal.addEventListener('abort', cancel, { once: true })
    try {
      const [four, six] = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)])
      if (four.status === 'rejected' && six.status === 'rejected') throw four.reason as Error
      return alternating(addressesIn(four, 4), addressesIn(six, 6))
    } finally {
      signal.removeEventListener('abort', cancel)
    }
  }
}

function addressesIn(settled: PromiseSettledResult<readonly string[]>, family: number): readonly Address[] {
  return settled.status === 'rejected' ? [] : settled.value.map(address => ({ address, family }))
}

/** So that both families are among the first few. */
function alternating(one: readonly Address[], other: readonly Address[]): readonly Address[] {
  const longest = one.length > other.length ? one : other
  return longest.flatMap((_, at) => [...one.slice(at, at + 1), ...other.slice(at, at + 1)])
}

/** The deadline came while others were being looked up: the name was never asked about. */
export class LineError extends Error {
  override readonly name = 'LineError'
}

/**
 * Asks as everything else on this machine does: hosts file, search domains and all. Such a lookup holds one of libuv's
 * threads until it is answered, and cannot be stopped; lookups get two of these threads, those for providers among
 * them. So one runs at a time, even when nobody waits for it any more, and the others stand in line.
 */
export function createSystemLookup(ask: (name: string) => Promise<readonly Address[]> = all): ResolveName {
  let busy = false
  const line = new Set<() => void>()
  const turn = (signal: AbortSignal): Promise<void> =>
    new Promise((resolve, reject) => {
      const leave = (): void => {
        line.delete(go)
        reject(new LineError('waited in vain'))
      }
      const go = (): void => {
        line.delete(go)
        signal.removeEventListener('abort', leave)
        resolve()
      }
      line.add(go)
      signal.addEventListener('abort', leave, { once: true })
    })
  const over = (): void => {
    const [next] = line
    if (next === undefined) busy = false
    else next()
  }
  return async (name, signal) => {
    signal.throwIfAborted()
    if (busy) await turn(signal)
    busy = true
    const asking = (async () => await ask(name))()
    asking.then(over, over)
    return await orAborted(asking, signal)
  }
}

async function all(name: string): Promise<readonly Address[]> {
  return await lookup(name, { all: true, verbatim: true })
}

/** The work goes on when nobody waits for it any more. */
function orAborted<Value>(work: Promise<Value>, signal: AbortSignal): Promise<Value> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error)
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}

const NOT_PUBLIC_V4: readonly (readonly [string, number])[] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  // Shared by the customers of a carrier; one cloud has its metadata service there.
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  // Link-local, where most clouds have their metadata service.
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
  // Public by its number, but answered by the host of the machine in one cloud.
  ['168.63.129.16', 32],
]

/** All that is global; what maps or translates IPv4 lies outside, and so do private, link-local and multicast ones. */
const GLOBAL_V6: readonly [string, number] = ['2000::', 3]
const NOT_PUBLIC_V6: readonly (readonly [string, number])[] = [
  // Protocols, Teredo among them, which carries any IPv4 address.
  ['2001::', 23],
  ['2001:db8::', 32],
  // 6to4, which does the same.
  ['2002::', 16],
  ['3fff::', 20],
]

const refusedV4 = new BlockList()
for (const [network, prefix] of NOT_PUBLIC_V4) refusedV4.addSubnet(network, prefix, 'ipv4')
const globalV6 = new BlockList()
globalV6.addSubnet(...GLOBAL_V6, 'ipv6')
const refusedV6 = new BlockList()
for (const [network, prefix] of NOT_PUBLIC_V6) refusedV6.addSubnet(network, prefix, 'ipv6')

/** Whether an address, in its usual writing and without brackets, is public. False for what is no address. */
export function isPublicAddress(address: string): boolean {
  if (isIPv4(address)) return !refusedV4.check(address, 'ipv4')
  // A zone names an interface of this machine.
  if (!isIPv6(address) || address.includes('%')) return false
  return globalV6.check(address, 'ipv6') && !refusedV6.check(address, 'ipv6')
}

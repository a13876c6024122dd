/**
 * Connections to servers that a model's code names. The rules are the same as for links (fetch-page.ts): a name is
 * resolved once, all of its addresses must be public, and the connection goes to a checked address, even through an
 * egress proxy. Main thread.
 */
import { connect, isIP, type Socket } from 'node:net'
import type { Clock } from '../../../base/clock.ts'
import { throughProxy } from '../proxy-tunnel.ts'
import { addressesOf, checkUrl, type LinkRules, PageError, resolverOf } from './fetch-page.ts'
import type { Address } from './resolve-name.ts'

interface TunnelsDeps extends LinkRules {
  readonly clock: Clock
  /** Time limit for name lookup and connection together. */
  readonly timeoutMs: number
}

/**
 * Opens a connection to a server, with `address` in the form `https://NAME:PORT/`. Rejects with a PageError, whose
 * message may be shown to the code, with a QueueTimeout, or with the reason of the signal.
 */
type OpenCheckedTunnel = (
  address: string,
  admits: (url: URL) => boolean,
  signal: AbortSignal,
) => Promise<Socket>

export function createTunnels(deps: TunnelsDeps): OpenCheckedTunnel {
  const resolve = resolverOf(deps)
  return async (address, admits, signal) => {
    const url = checkUrl(deps, address)
    if (!admits(url))
      throw new PageError('refused', 'the domain is not in allowed_domains of the network policy')
    const deadline = new AbortController()
    const timer = deps.clock.after(deps.timeoutMs, () =>
      deadline.abort(new PageError('timeout', 'the server took too long to answer')),
    )
    const signalOrDeadline = AbortSignal.any([signal, deadline.signal])
    try {
      const addresses = await addressesOf(deps, resolve, url, signalOrDeadline)
      return await connectTo(deps, url, addresses, signalOrDeadline)
    } finally {
      timer.cancel()
    }
  }
}

/** Connects to the first of the addresses that accepts. */
async function connectTo(
  deps: TunnelsDeps,
  url: URL,
  addresses: readonly Address[],
  signal: AbortSignal,
): Promise<Socket> {
  const proxy = deps.proxyOf?.(url) ?? null
  const port = Number(url.port === '' ? (url.protocol === 'http:' ? 80 : 443) : url.port)
  for (const { address, family } of addresses) {
    try {
      return await (proxy === null
        ? connectDirectly(address, port, signal)
        : throughProxy(proxy, `${family === 6 ? `[${address}]` : address}:${port}`, signal))
    } catch {
      signal.throwIfAborted()
    }
  }
  throw new PageError('unreachable', 'the server cannot be reached')
}

function connectDirectly(host: string, port: number, signal: AbortSignal): Promise<Socket> {
  // Only addresses, never names, so that nothing is resolved a second time.
  if (isIP(host) === 0) return Promise.reject(new TypeError('no address'))
  const { promise, resolve, reject } = Promise.withResolvers<Socket>()
  const socket = connect({ host, port, noDelay: true })
  const onAbort = (): void => void socket.destroy(signal.reason as Error)
  signal.addEventListener('abort', onAbort, { once: true })
  socket.once('error', reject)
  socket.once('connect', () => {
    signal.removeEventListener('abort', onAbort)
    socket.off('error', reject)
    // The user of the socket learns of its end by `close`.
    socket.on('error', () => undefined)
    resolve(socket)
  })
  return promise
}

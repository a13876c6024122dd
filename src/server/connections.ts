/**
 * Counts the client connections of one thread, in total and per address, and refuses those above the limits. Trusted
 * proxies have no cap for their address, because they carry many clients.
 */
import { BlockList } from 'node:net'
import type { Clock } from '../base/clock.ts'
import type { Log } from '../base/log/log.ts'
import type { Metrics } from '../base/metrics/metrics.ts'

export interface ClientConnectionLimits {
  /**
   * Maximum number of connections of this thread; any further one is closed immediately. At the process limit of file
   * descriptors, accepting busy-loops, so the sum over all threads has to stay below half of it:
   * process/wiring/operating-system.ts ensures that.
   */
  readonly maxConnections: number
  /** Maximum number of connections from one address in this thread; 0: any number. */
  readonly connectionsPerAddress: number
  /** Addresses and networks (`10.0.0.0/8`) without a limit. */
  readonly trustedProxies: readonly string[]
}

interface ClientConnectionsDeps {
  readonly clock: Clock
  readonly log: Pick<Log, 'notice'>
  readonly metrics: Pick<Metrics, 'openConnections' | 'connectionsRefused'>
}

/** The reason that a connection is refused; a closed set, for metrics. */
type Refusal = 'limit' | 'address'
const REFUSAL_MESSAGES: Readonly<Record<Refusal, string>> = {
  limit: 'connections refused: the thread is at its limit',
  address: 'connections refused: an address is at its limit',
}

/** The library closes a connection after this time without a request. */
const IDLE_MS = 13_000
/** There is at most one log line about refused connections in this time. */
const LOG_INTERVAL_MS = 10_000
/** Addresses that can be forgotten are removed each time this many connections have arrived. */
const CONNECTIONS_PER_SWEEP = 1_000

/** The remote address, as the library returns it: 4 or 16 bytes. */
export interface RemoteEnd {
  getRemoteAddress(): ArrayBuffer
  getRemoteAddressAsText(): ArrayBuffer
  onAborted(callback: () => void): unknown
}

export class ClientConnections {
  /** False if addresses have no limit, so that no request has a peer. */
  readonly isCapped: boolean
  readonly #limits: ClientConnectionLimits
  readonly #deps: ClientConnectionsDeps
  readonly #trusted = new BlockList()
  /** Keyed by address, or by network of an IPv6 address; empty without a limit. */
  readonly #peers = new Map<string, Peer>()
  /** Written only here. */
  open = 0
  #arrivals = 0
  #unloggedRefusals = 0
  #loggedMs = Number.NEGATIVE_INFINITY

  /** @throws Error if a trusted proxy is neither an address nor a network */
  constructor(limits: ClientConnectionLimits, deps: ClientConnectionsDeps) {
    this.#limits = limits
    this.#deps = deps
    this.isCapped = limits.connectionsPerAddress > 0
    for (const proxy of limits.trustedProxies) trust(this.#trusted, proxy)
  }

  /** Counts a new connection. False if it must be closed immediately. */
  countOpened(end: RemoteEnd): boolean {
    this.open++
    this.#deps.metrics.openConnections.inc()
    if (this.open > this.#limits.maxConnections) return this.#refuse('limit', end)
    if (!this.isCapped) return true
    if (++this.#arrivals % CONNECTIONS_PER_SWEEP === 0) this.#sweep()
    const peer = this.#peerOf(end)
    if (!peer.isCapped) return true
    const nowMs = this.#deps.clock.monotonicMs()
    if (peer.connections(nowMs) >= this.#limits.connectionsPerAddress) return this.#refuse('address', end)
    peer.countOpened(nowMs)
    // The first request replaces this callback, so it reports the end of a connection that never had a request.
    end.onAborted(() => peer.countClosed())
    return true
  }

  countClosed(): void {
    this.open--
    this.#deps.metrics.openConnections.dec()
  }

  /** The peer of a request that begins; null if connections are not counted. Call `Peer.countEnd` when it is over. */
  begin(end: RemoteEnd): Peer | null {
    if (!this.isCapped) return null
    const peer = this.#peerOf(end)
    if (!peer.isCapped) return null
    peer.countBegin(this.#deps.clock.monotonicMs())
    return peer
  }

  #peerOf(end: RemoteEnd): Peer {
    const address = Buffer.from(end.getRemoteAddress())
    const name = peerName(address)
    let peer = this.#peers.get(name)
    if (peer === undefined) {
      const [text, family] = [textOf(end), address.length === 4 ? 'ipv4' : 'ipv6'] as const
      peer = new Peer(this.#deps.clock, !this.#trusted.check(text, family))
      this.#peers.set(name, peer)
    }
    return peer
  }

  #sweep(): void {
    const nowMs = this.#deps.clock.monotonicMs()
    for (const [name, peer] of this.#peers) if (peer.connections(nowMs) === 0) this.#peers.delete(name)
  }

  #refuse(reason: Refusal, end: RemoteEnd): false {
    this.#deps.metrics.connectionsRefused.inc({ reason })
    this.#unloggedRefusals++
    const nowMs = this.#deps.clock.monotonicMs()
    if (nowMs - this.#loggedMs < LOG_INTERVAL_MS) return false
    this.#loggedMs = nowMs
    this.#deps.log.notice('server', REFUSAL_MESSAGES[reason], {
      reason,
      address: textOf(end),
      refused: this.#unloggedRefusals,
      open: this.open - 1,
    })
    this.#unloggedRefusals = 0
    return false
  }
}

/**
 * One address. The library reports the end of a connection only while a request runs on it, or before its first one. A
 * connection that its client closes between two requests counts until its idle time would have ended, so the count is
 * never too low and seldom too high.
 */
export class Peer {
  readonly isCapped: boolean
  readonly #clock: Clock
  #busyConnections = 0
  /** The latest closing times of connections without a request; ascending. */
  readonly #closingTimesMs: number[] = []

  constructor(clock: Clock, isCapped: boolean) {
    this.#clock = clock
    this.isCapped = isCapped
  }

  connections(nowMs: number): number {
    let closedCount = 0
    while ((this.#closingTimesMs[closedCount] ?? Number.POSITIVE_INFINITY) <= nowMs) closedCount++
    if (closedCount > 0) this.#closingTimesMs.splice(0, closedCount)
    return this.#busyConnections + this.#closingTimesMs.length
  }

  countOpened(nowMs: number): void {
    this.#closingTimesMs.push(nowMs + IDLE_MS)
  }

  /** Called when a connection was closed before its first request. */
  countClosed(): void {
    this.#closingTimesMs.shift()
  }

  countBegin(nowMs: number): void {
    this.connections(nowMs)
    this.#closingTimesMs.shift()
    this.#busyConnections++
  }

  /** Called when a request is over; its connection is closed, or waits for another request. */
  countEnd(closed: boolean): void {
    this.#busyConnections--
    if (!closed) this.#closingTimesMs.push(this.#clock.monotonicMs() + IDLE_MS)
  }
}

const IPV4_MAPPED_PREFIX = Buffer.from('00000000000000000000ffff', 'hex')
/** An IPv6 client has a network of 64 bits, not a single address. */
const NETWORK_BYTES = 8

function peerName(address: Buffer): string {
  if (address.length !== 16) return address.toString('latin1')
  const isMapped = address.subarray(0, IPV4_MAPPED_PREFIX.length).equals(IPV4_MAPPED_PREFIX)
  return (
    isMapped ? address.subarray(IPV4_MAPPED_PREFIX.length) : address.subarray(0, NETWORK_BYTES)
  ).toString('latin1')
}

function textOf(end: RemoteEnd): string {
  return Buffer.from(end.getRemoteAddressAsText()).toString('latin1')
}

function trust(list: BlockList, proxy: string): void {
  const [address = '', bits] = proxy.split('/')
  const family = address.includes(':') ? 'ipv6' : 'ipv4'
  if (bits === undefined) list.addAddress(address, family)
  else list.addSubnet(address, Number(bits), family)
}

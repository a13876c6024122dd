/**
 * Opens the TCP or TLS socket of a connection to a provider. The caller gets the socket before it is connected, so that
 * an abort can close it at once.
 */
import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { type ConnectionOptions, connect as connectTls } from 'node:tls'

/** The host that a socket connects to. */
export interface SocketTarget {
  readonly isSecure: boolean
  /** Without the brackets of an IPv6 literal. */
  readonly hostname: string
  readonly port: number
}

/** The buffer for received bytes and the callback after each read. The next read overwrites the buffer. */
export interface OnRead {
  readonly buffer: Buffer
  callback(length: number): boolean
}

/** Keeps the TLS session of one origin, which makes the next handshake shorter. */
export interface SessionMemory {
  session: Buffer | undefined
}

/** The kernel probes a silent connection after this time, to detect a dead peer. */
const TCP_KEEP_ALIVE_MS = 60_000

/** The target of a URL's origin. */
export function targetOf(url: URL): SocketTarget {
  const isSecure = url.protocol === 'https:'
  const hostname = url.hostname.startsWith('[') ? url.hostname.slice(1, -1) : url.hostname
  return { isSecure, hostname, port: url.port === '' ? (isSecure ? 443 : 80) : Number(url.port) }
}

/**
 * Begins to connect and calls `done` once: with null when the socket is ready, or with the error. Destroying the
 * returned socket cancels the attempt without a callback.
 * @param ca PEM certificates that replace the system's certificates
 */
export function openSocket(
  target: SocketTarget,
  ca: string | undefined,
  memory: SessionMemory,
  onread: OnRead,
  done: (error: Error | null) => void,
): Socket {
  const socket = target.isSecure
    ? connectTls(secureOptions(target, ca, memory, onread)).on('session', session => {
        memory.session = session
      })
    : connectTcp({ host: target.hostname, port: target.port, onread })
  socket.setNoDelay(true).setKeepAlive(true, TCP_KEEP_ALIVE_MS)
  let isPending = true
  const settle = (error: Error | null): void => {
    if (!isPending) return
    isPending = false
    done(error)
  }
  socket.once(target.isSecure ? 'secureConnect' : 'connect', () => settle(null))
  // This listener stays: an error without a listener would end the process.
  socket.on('error', settle)
  return socket
}

/** Options of a TLS connection. Node's types lack `onread`, which Node passes on to the socket. */
function secureOptions(
  { hostname, port }: SocketTarget,
  ca: string | undefined,
  { session }: SessionMemory,
  onread: OnRead,
): ConnectionOptions & { readonly onread: OnRead } {
  return {
    host: hostname,
    port,
    // A literal address has no server name; the certificate is then checked against the address.
    servername: isIP(hostname) === 0 ? hostname : '',
    ALPNProtocols: ['http/1.1'],
    // NODE_TLS_REJECT_UNAUTHORIZED has no effect, so that a provider's key never goes to anyone else.
    rejectUnauthorized: true,
    onread,
    ...(ca === undefined ? undefined : { ca }),
    ...(session === undefined ? undefined : { session }),
  }
}

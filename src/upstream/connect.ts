/**
 * Opens the TCP or TLS socket under a connection to a provider. It is in our hands before it is connected: only then
 * can an abort close it at once.
 */
import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { type ConnectionOptions, connect as connectTls } from 'node:tls'

export interface Target {
  readonly secure: boolean
  /** Without the brackets of an IPv6 literal. */
  readonly hostname: string
  readonly port: number
}

/** Where received bytes are put, and who is told how many they were. The memory is used again by the next read. */
export interface Reading {
  readonly buffer: Buffer
  callback(length: number): boolean
}

/** Remembers one origin's TLS session, so that the next handshake is the short one. */
export interface SessionMemory {
  session: Buffer | undefined
}

/** A dead peer behind a silent network is noticed by the kernel after this long. */
const TCP_KEEP_ALIVE_MS = 60_000

export function targetOf(url: URL): Target {
  const secure = url.protocol === 'https:'
  const hostname = url.hostname.startsWith('[') ? url.hostname.slice(1, -1) : url.hostname
  return { secure, hostname, port: url.port === '' ? (secure ? 443 : 80) : Number(url.port) }
}

/**
 * Begins to connect and calls back once: with null when the socket can be used, else with the error.
 * Destroying the returned socket cancels the attempt without a call back.
 * @param ca PEM certificates that replace the system's, or undefined
 */
export function openSocket(
  target: Target,
  ca: string | undefined,
  memory: SessionMemory,
  onread: Reading,
  done: (error: Error | null) => void,
): Socket {
  const socket = target.secure
    ? connectTls(secureOptions(target, ca, memory, onread)).on('session', session => {
        memory.session = session
      })
    : connectTcp({ host: target.hostname, port: target.port, onread })
  socket.setNoDelay(true).setKeepAlive(true, TCP_KEEP_ALIVE_MS)
  let pending = true
  const settle = (error: Error | null): void => {
    if (!pending) return
    pending = false
    done(error)
  }
  socket.once(target.secure ? 'secureConnect' : 'connect', () => settle(null))
  // Stays for the socket's life: an error that nobody listens to would end the process.
  socket.on('error', settle)
  return socket
}

/** What `connect` of TLS takes; the types do not know that it hands `onread` on to its socket. */
function secureOptions(
  { hostname, port }: Target,
  ca: string | undefined,
  { session }: SessionMemory,
  onread: Reading,
): ConnectionOptions & { readonly onread: Reading } {
  return {
    host: hostname,
    port,
    // A literal address has no server name; the certificate is then checked against the address.
    servername: isIP(hostname) === 0 ? hostname : '',
    ALPNProtocols: ['http/1.1'],
    onread,
    ...(ca === undefined ? undefined : { ca }),
    ...(session === undefined ? undefined : { session }),
  }
}

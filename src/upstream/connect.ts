/**
 * Opens the TCP or TLS socket under a connection to a provider. Own code instead of undici's connector, because
 * the socket must be in our hands before it is connected: only then can an abort close it at once.
 */
import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'

export interface Target {
  readonly secure: boolean
  /** Without the brackets of an IPv6 literal. */
  readonly hostname: string
  readonly port: number
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
  done: (error: Error | null) => void,
): Socket {
  const socket = target.secure
    ? connectTls({
        host: target.hostname,
        port: target.port,
        // A literal address has no server name; the certificate is then checked against the address.
        servername: isIP(target.hostname) === 0 ? target.hostname : '',
        ALPNProtocols: ['http/1.1'],
        ...(ca === undefined ? undefined : { ca }),
        ...(memory.session === undefined ? undefined : { session: memory.session }),
      }).on('session', session => {
        memory.session = session
      })
    : connectTcp({ host: target.hostname, port: target.port })
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

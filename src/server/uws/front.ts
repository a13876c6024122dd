/**
 * The HTTP front on uWebSockets.js. It owns every callback of the library, together with `socket.ts` for answers and
 * `websockets.ts` for WebSockets, because an exception that escapes a callback ends the process.
 */
import type { HttpResponse, TemplatedApp, us_listen_socket } from 'uWebSockets.js'
import { type CertificateFiles, certificateVersion } from '../certificate.ts'
import {
  CertificateError,
  type Front,
  type FrontHost,
  ListenError,
  REQUEST_HEAD_MAX_BYTES,
} from '../front.ts'
import { SOCKET_PATHS } from '../websocket.ts'
import { copyHead, UwsSocket } from './socket.ts'
import { socketBehavior } from './websockets.ts'

/**
 * The library's own limit of 4 KiB is too low. It reads the limit from the environment of the process once, when it is
 * loaded; from a worker, that works only under SHARE_ENV.
 */
process.env.UWS_HTTP_MAX_HEADERS_SIZE ??= String(REQUEST_HEAD_MAX_BYTES)
const uws = await import('uWebSockets.js')
// Not in the library's types: removes the library's name from the answers.
const configure: unknown = Reflect.get(uws, '_cfg')
if (typeof configure === 'function') configure('silent')

/** The library's value for an exclusive port; any other value lets other sockets share it. */
const EXCLUSIVE = 1
const SHARED = 0

export function createUwsFront(host: FrontHost): Front {
  return new UwsFront(host)
}

/** One app of the library and its listening socket. Each app has one certificate. */
class Listener {
  readonly app: TemplatedApp
  #socket: us_listen_socket | null = null

  /** @throws CertificateError */
  constructor(tls: CertificateFiles | null) {
    this.app = tls === null ? uws.App() : appWith(tls)
  }

  /** @returns the bound port. @throws ListenError */
  listen(host: string, port: number, shared: boolean): Promise<number> {
    return new Promise((resolve, reject) => {
      const onListening = (socket: us_listen_socket | false): void => {
        if (socket === false) {
          reject(new ListenError(host, port))
          return
        }
        this.#socket = socket
        resolve(uws.us_socket_local_port(socket))
      }
      // The library's types lack the form with host and options.
      Reflect.apply(this.app.listen, this.app, [host, port, shared ? SHARED : EXCLUSIVE, onListening])
    })
  }

  /** Accepts no more connections. Later calls do nothing. */
  stop(): void {
    if (this.#socket !== null) uws.us_listen_socket_close(this.#socket)
    this.#socket = null
  }

  /** Drops all its connections. */
  close(): void {
    this.stop()
    this.app.close()
  }
}

/** At least TLS 1.2, which is the library's own minimum. @throws CertificateError */
function appWith({ cert, key }: CertificateFiles): TemplatedApp {
  try {
    return uws.SSLApp({ cert_file_name: cert, key_file_name: key })
  } catch {
    throw new CertificateError()
  }
}

class UwsFront implements Front {
  readonly #host: FrontHost
  /** The last one accepts; the earlier ones keep their connections. The library never frees one (about 30 KB). */
  readonly #listeners: Listener[] = []
  #address: { readonly host: string; readonly port: number } | null = null
  #isStopped = false

  constructor(host: FrontHost) {
    this.#host = host
  }

  async listen(host: string, port: number, shared: boolean): Promise<number> {
    const listener = this.#createListener()
    const boundPort = await listener.listen(host, port, shared)
    this.#listeners.push(listener)
    this.#address = { host, port: boundPort }
    return boundPort
  }

  /** Needs a shared port. */
  async renewCertificate(version: string): Promise<boolean> {
    const { tls, log } = this.#host
    const earlier = this.#listeners.at(-1)
    if (tls === null || earlier === undefined || this.#address === null) return true
    try {
      const listener = this.#createListener()
      // The library itself has read the files, possibly while they were being replaced.
      if (certificateVersion(tls) !== version) return false
      await listener.listen(this.#address.host, this.#address.port, true)
      this.#listeners.push(listener)
    } catch (thrown) {
      log.fault('tls', 'cannot load the certificate', thrown)
      return false
    }
    // A drain or a close may have begun meanwhile.
    if (this.#isStopped) this.stop()
    // Continues in the turn after the poll that accepts: connections made meanwhile are accepted, and not cut off.
    await new Promise(resolve => setImmediate(resolve))
    earlier.stop()
    return true
  }

  stop(): void {
    this.#isStopped = true
    for (const listener of this.#listeners) listener.stop()
  }

  close(): void {
    this.#isStopped = true
    for (const listener of this.#listeners) listener.close()
  }

  /** @throws CertificateError */
  #createListener(): Listener {
    const host = this.#host
    const listener = new Listener(host.tls)
    const { app } = listener
    const behavior = socketBehavior(host)
    for (const path of SOCKET_PATHS) app.ws(path, behavior)
    app.filter((response, change) => this.#countConnection(response, change))
    app.any('/*', (response, request) => {
      host.accept(new UwsSocket(response, host), copyHead(request), null)
    })
    return listener
  }

  #countConnection(response: HttpResponse, change: number): void {
    const { connections, log, closed } = this.#host
    try {
      if (change < 0) closed()
      else if (!connections.countOpened(response)) response.close()
    } catch (thrown) {
      log.fault('server', 'cannot register a connection', thrown)
    }
  }
}

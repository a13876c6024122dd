/**
 * The HTTP front on `node:http`, for systems and Node versions without a build of uWebSockets.js. A separate listener
 * accepts connections, so that they are counted before TLS, and hands each one to the HTTP server. Serve threads.
 */
import { createServer, IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createListener, type Server as Listener, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { createSecureContext, type SecureContext, TLSSocket } from 'node:tls'
import { type CertificateFiles, readPair } from '../certificate.ts'
import {
  CertificateError,
  type Front,
  type FrontHost,
  ListenError,
  REQUEST_HEAD_MAX_BYTES,
} from '../front.ts'
import { NodeConnection } from './connection.ts'
import { headOf, unreadHead } from './head.ts'
import { NodeSocket } from './socket.ts'
import { answerDetached, createSocketServer, isHandshake, NodeHandshake } from './websockets.ts'

export function createNodeFront(host: FrontHost): Front {
  return new NodeFront(host)
}

/**
 * Leaves HTTP only if a socket will open, or for CONNECT: any other request for an upgrade is treated as an ordinary
 * request.
 */
class Incoming extends IncomingMessage {
  #asksToUpgrade = false

  get upgrade(): boolean {
    return this.#asksToUpgrade && (this.method === 'CONNECT' || isHandshake(this))
  }

  /** Node sets null before the fields of this class exist. */
  set upgrade(isUpgrade: boolean | null) {
    if (isUpgrade !== null) this.#asksToUpgrade = isUpgrade
  }
}

class NodeFront implements Front {
  readonly #host: FrontHost
  readonly #http: Server
  readonly #webSockets = createSocketServer()
  readonly #connections = new Map<Duplex, NodeConnection>()
  #listener: Listener | null = null
  /** Null without TLS, and before it listens. */
  #context: SecureContext | null = null

  constructor(host: FrontHost) {
    this.#host = host
    this.#http = createServer({
      IncomingMessage: Incoming,
      maxHeaderSize: REQUEST_HEAD_MAX_BYTES,
      // The gate rejects a request without this header.
      requireHostHeader: false,
      // Connections and bodies have their own deadlines.
      headersTimeout: 0,
      requestTimeout: 0,
      keepAliveTimeout: 0,
      insecureHTTPParser: false,
    })
    // 0: no limit. By default Node silently drops headers after the first 2,000; their bytes are bounded anyway.
    this.#http.maxHeadersCount = 0
    this.#http.on('request', this.#onRequest)
    this.#http.on('checkExpectation', this.#onRequest)
    this.#http.on('connect', (incoming, socket) => this.#answerDetached(incoming, socket))
    this.#http.on('upgrade', (incoming, socket, first) => this.#upgrade(incoming, socket, first))
    this.#http.on('clientError', (error, socket) => this.#refuse(error, socket))
  }

  async listen(host: string, port: number, shared: boolean): Promise<number> {
    const { tls } = this.#host
    if (tls !== null) this.#context = contextOf(tls).context
    const listener = createListener({ noDelay: true }, raw => this.#accept(raw))
    return await new Promise((resolve, reject) => {
      listener.once('error', () => reject(new ListenError(host, port)))
      listener.listen({ host, port, exclusive: true, reusePort: shared }, () => {
        this.#listener = listener
        const address = listener.address()
        resolve(address === null || typeof address === 'string' ? port : address.port)
      })
    })
  }

  async renewCertificate(version: string): Promise<boolean> {
    const { tls, log } = this.#host
    if (tls === null || this.#context === null) return true
    try {
      const next = contextOf(tls)
      if (next.version !== version) return false
      this.#context = next.context
      return true
    } catch (thrown) {
      log.fault('tls', 'cannot load the certificate', thrown)
      return false
    }
  }

  stop(): void {
    this.#listener?.close()
    this.#listener = null
  }

  close(): void {
    this.stop()
    for (const [socket, connection] of this.#connections) {
      connection.drop()
      this.#closed(socket, connection)
    }
  }

  /** Called when a connection has closed. Later calls do nothing. */
  #closed(socket: Duplex, connection: NodeConnection): void {
    if (!this.#connections.delete(socket)) return
    connection.closed()
    this.#host.closed()
  }

  #accept(raw: Socket): void {
    const { connections, log } = this.#host
    // Every error is also reported by the end of the connection.
    raw.on('error', ignore)
    try {
      const connection = new NodeConnection(raw)
      const socket =
        this.#context === null
          ? raw
          : new TLSSocket(raw, {
              isServer: true,
              secureContext: this.#context,
              ALPNProtocols: ['http/1.1'],
            })
      this.#connections.set(socket, connection)
      raw.once('close', () => this.#closed(socket, connection))
      if (!connections.countOpened(connection)) {
        raw.destroy()
        return
      }
      if (socket !== raw) socket.on('error', ignore)
      // A client that stops sending has left: no answer is written into a half-open connection.
      socket.once('end', () => raw.destroy())
      this.#http.emit('connection', socket)
    } catch (thrown) {
      log.fault('server', 'cannot register a connection', thrown)
      raw.destroy()
    }
  }

  /** The connection for another request. Null if it is not free: then it is dropped. */
  #free(socket: Duplex): NodeConnection | null {
    const connection = this.#connections.get(socket)
    if (connection?.isFree === true) return connection
    if (connection === undefined) socket.destroy()
    else connection.drop()
    return null
  }

  readonly #onRequest = (incoming: IncomingMessage, response: ServerResponse): void => {
    this.#guard(incoming.socket, () => {
      const connection = this.#free(incoming.socket)
      if (connection === null) return
      const socket = new NodeSocket(incoming, response, this.#host, connection)
      this.#host.accept(socket, headOf(incoming), null)
    })
  }

  #upgrade(incoming: IncomingMessage, socket: Duplex, first: Buffer): void {
    this.#guard(socket, () => {
      const connection = this.#free(socket)
      if (connection === null) return
      this.#host.sockets.decide(
        new NodeHandshake(this.#host, this.#webSockets, incoming, incoming.socket, first, connection),
      )
    })
  }

  /** Answers CONNECT, which no operation accepts. */
  #answerDetached(incoming: IncomingMessage, socket: Duplex, head = headOf(incoming)): void {
    this.#guard(socket, () => {
      const connection = this.#free(socket)
      if (connection === null) return
      answerDetached(this.#host, incoming, incoming.socket, connection, head, null)
    })
  }

  /** Answers a request that the parser could not read, unless another answer is being sent. */
  #refuse(error: Error, socket: Duplex): void {
    const head = unreadHead(error)
    const connection = this.#connections.get(socket)
    if (head === null || !socket.writable || connection === undefined) {
      socket.destroy()
      return
    }
    if (!connection.isFree) {
      connection.break()
      return
    }
    const incoming = new IncomingMessage(socket as Socket)
    incoming.complete = true
    this.#answerDetached(incoming, socket, head)
  }

  #guard(socket: Duplex, action: () => void): void {
    try {
      action()
    } catch (thrown) {
      this.#host.log.fault('server', 'cannot accept a request', thrown)
      socket.destroy()
    }
  }
}

/** @throws CertificateError */
function contextOf(files: CertificateFiles): { readonly context: SecureContext; readonly version: string } {
  try {
    const { cert, key, version } = readPair(files)
    return { context: createSecureContext({ cert, key, minVersion: 'TLSv1.2' }), version }
  } catch {
    throw new CertificateError()
  }
}

function ignore(): void {
  // Nothing to do.
}

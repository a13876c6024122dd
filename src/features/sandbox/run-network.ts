/**
 * The network of one run: a proxy on a Unix socket, which is the only connection of a namespace without network access.
 * It opens tunnels (CONNECT) to the domains of the container's allow-list and to nothing else, and ends with the run.
 * Its input comes from a model's code and is untrusted. Main thread.
 */
import { chmod, chown, mkdtemp, rm } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { isError } from '../../base/errors.ts'
import type { User } from './folder.ts'

/** Opens a connection to `https://NAME:PORT/` if the domains allow it. Rejects with the reason, for the code. */
export type OpenTunnel = (address: string, domains: readonly string[], signal: AbortSignal) => Promise<Socket>

export interface RunNetwork {
  /** Folder with the socket. */
  readonly folder: string
  /** Closes all connections. */
  close(): Promise<void>
}

/** Name of the socket in its folder. */
const SOCKET_NAME = 'proxy'
/** Limits for the connections of one run, at the same time and in total. */
const MAX_OPEN_CONNECTIONS = 16
const MAX_CONNECTIONS = 512
/** Maximum bytes of one run, in both directions together. */
const MAX_BYTES = 256 * 1024 * 1024
const MAX_HEAD_BYTES = 8 * 1024
const HEAD_END = '\r\n\r\n'
/** The first line of a CONNECT: name or address, and port. */
const CONNECT_LINE = /^CONNECT (\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253}):(\d{1,5}) HTTP\/1\.[01]\r\n/i

/**
 * Opens the proxy of a run. `user` is the user of the code, null if it is the gateway's. `prefix` is the path of the
 * socket's folder without its random end; a path of a socket must be short.
 */
export async function openNetwork(
  open: OpenTunnel,
  domains: readonly string[],
  user: User | null,
  prefix: string,
): Promise<RunNetwork> {
  const folder = await mkdtemp(prefix)
  const closing = new AbortController()
  const sockets = new Set<Socket>()
  let connections = 0
  let openConnections = 0
  let bytes = 0

  const track = (socket: Socket): void => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
    socket.on('error', () => undefined)
    socket.on('data', (piece: Buffer) => {
      bytes += piece.length
      if (bytes > MAX_BYTES) closing.abort(new Error('the run has moved too many bytes'))
    })
  }
  closing.signal.addEventListener('abort', () => {
    for (const socket of sockets) socket.destroy()
  })

  async function tunnel(inner: Socket, head: string, bodyStart: Buffer): Promise<void> {
    const [, host, port] = CONNECT_LINE.exec(head) ?? []
    if (host === undefined) return refuse(inner, 405, 'only HTTPS may leave the sandbox')
    try {
      const outer = await open(`https://${host}:${port}/`, domains, closing.signal)
      if (inner.destroyed || closing.signal.aborted) {
        outer.destroy()
        return
      }
      inner.write(`HTTP/1.1 200 Connection established${HEAD_END}`)
      if (bodyStart.length > 0) outer.write(bodyStart)
      // Closing one end closes the other.
      inner.once('close', () => outer.destroy())
      outer.once('close', () => inner.destroy())
      inner.pipe(outer)
      outer.pipe(inner)
      track(outer)
      inner.resume()
    } catch (thrown) {
      refuse(inner, 403, isError(thrown) ? thrown.message : 'refused')
    }
  }

  const server = createServer(inner => {
    if (
      ++connections > MAX_CONNECTIONS ||
      openConnections >= MAX_OPEN_CONNECTIONS ||
      closing.signal.aborted
    ) {
      inner.destroy()
      return
    }
    openConnections++
    inner.once('close', () => openConnections--)
    let head: Buffer = Buffer.alloc(0)
    const read = (piece: Buffer): void => {
      head = Buffer.concat([head, piece])
      const end = head.indexOf(HEAD_END)
      if (end === -1) {
        if (head.length > MAX_HEAD_BYTES) inner.destroy()
        return
      }
      inner.off('data', read)
      inner.pause()
      const bodyStart = end + HEAD_END.length
      void tunnel(inner, head.toString('latin1', 0, bodyStart), head.subarray(bodyStart))
    }
    inner.on('data', read)
    track(inner)
  })
  try {
    const path = join(folder, SOCKET_NAME)
    await new Promise<void>((resolve, reject) => server.once('error', reject).listen(path, resolve))
    await chmod(path, 0o600)
    if (user !== null) {
      await chown(path, user.uid, user.gid)
      await chmod(folder, 0o711)
    }
  } catch (thrown) {
    server.close()
    await rm(folder, { recursive: true, force: true })
    throw thrown
  }
  return {
    folder,
    async close() {
      closing.abort(new Error('the run has ended'))
      await new Promise(resolve => server.close(resolve))
      await rm(folder, { recursive: true, force: true })
    },
  }
}

function refuse(socket: Socket, status: number, reason: string): void {
  const text = `${reason.replace(/[\r\n]/g, ' ')}\n`
  socket.end(
    `HTTP/1.1 ${status} Refused by the sandbox: ${text.trim()}\r\ncontent-type: text/plain\r\ncontent-length: ${Buffer.byteLength(text)}\r\nconnection: close${HEAD_END}${text}`,
  )
  socket.resume()
}

/** The port inside the namespaces that leads to the socket. */
export const PROXY_PORT = 3128
/** The folder of the socket, as seen by the code. */
export const PROXY_FOLDER = '/run/sluice'

/**
 * Runs inside: connects a port to the socket, for programs that only support proxies by port, and then becomes the
 * program. The code may kill it, and then has no network.
 */
export const RELAY = `
import os, selectors, socket, sys
server = socket.socket()
server.bind(('127.0.0.1', ${PROXY_PORT}))
server.listen(64)
if os.fork():
    server.close()
    os.execvp(sys.argv[1], sys.argv[1:])
null = os.open('/dev/null', os.O_RDWR)
for fd in (0, 1, 2):
    os.dup2(null, fd)
chooser = selectors.DefaultSelector()
chooser.register(server, selectors.EVENT_READ, None)
def close(one):
    for each in one:
        try:
            chooser.unregister(each)
        except (KeyError, ValueError):
            pass
        each.close()
while True:
    for key, _ in chooser.select():
        try:
            if key.data is None:
                inner, _ = server.accept()
                outer = socket.socket(socket.AF_UNIX)
                outer.connect('${PROXY_FOLDER}/${SOCKET_NAME}')
                chooser.register(inner, selectors.EVENT_READ, outer)
                chooser.register(outer, selectors.EVENT_READ, inner)
                continue
            piece = key.fileobj.recv(65536)
            if piece:
                key.data.sendall(piece)
            else:
                close((key.fileobj, key.data))
        except OSError:
            if key.data is not None:
                close((key.fileobj, key.data))
`

/**
 * The upstream over HTTP/2, with as many streams per connection as providers allow, and with lost connections: now and
 * then it drops the connection with the most streams, as a provider's load balancer does.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import {
  createSecureServer,
  type Http2Stream,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2'
import type { AddressInfo } from 'node:net'
import { HTTP2 } from './wire.ts'

/** What the upstream answers through, over HTTP/1.1 as over HTTP/2. */
export interface Reply {
  cork(work: () => void): unknown
  writeStatus(status: string): unknown
  writeHeader(name: string, value: string): unknown
  /** False: the reader is slower. */
  write(text: string): boolean
  end(text: string): unknown
  onWritable(work: () => boolean): unknown
  close(): unknown
}

class Http2Reply implements Reply {
  readonly #stream: ServerHttp2Stream
  readonly #headers: Record<string, string | number> = { ':status': 200 }

  constructor(stream: ServerHttp2Stream) {
    this.#stream = stream
  }

  cork(work: () => void): void {
    work()
  }

  writeStatus(status: string): void {
    this.#headers[':status'] = Number.parseInt(status, 10)
  }

  writeHeader(name: string, value: string): void {
    this.#headers[name] = value
  }

  write(text: string): boolean {
    if (this.#stream.destroyed) return true
    this.#begin()
    return this.#stream.write(text)
  }

  end(text: string): void {
    if (this.#stream.destroyed) return
    this.#begin()
    this.#stream.end(text)
  }

  onWritable(work: () => boolean): void {
    this.#stream.on('drain', work)
  }

  close(): void {
    this.#stream.close()
  }

  #begin(): void {
    if (!this.#stream.headersSent) this.#stream.respond(this.#headers)
  }
}

/** One request: its path, what it is answered through, its body, and its end before the answer's. */
export interface Asked {
  readonly path: string
  readonly reply: Reply
  readonly body: Promise<Buffer>
  onAborted(work: () => void): void
}

/** Serves on a free port, which it resolves to. @param files of the certificate and its key */
export async function serveHttp2(
  files: { readonly cert: string; readonly key: string },
  onAsked: (asked: Asked) => void,
): Promise<number> {
  const open = new Map<ServerHttp2Session, Set<Http2Stream>>()
  const server = createSecureServer({
    cert: readFileSync(files.cert),
    key: readFileSync(files.key),
    settings: { maxConcurrentStreams: HTTP2.streamsPerConnection },
    noDelay: true,
  })
  server.on('session', session => {
    open.set(session, new Set())
    session.on('error', () => undefined).on('close', () => open.delete(session))
  })
  server.on('stream', (stream, headers) => {
    const { session } = stream
    const streams = session === undefined ? undefined : open.get(session as ServerHttp2Session)
    streams?.add(stream)
    stream.on('error', () => undefined).on('close', () => streams?.delete(stream))
    onAsked({
      path: String(headers[':path']),
      reply: new Http2Reply(stream),
      body: bodyOf(stream),
      onAborted: work => stream.on('close', work),
    })
  })
  setInterval(() => dropBusiest(open), HTTP2.lossEveryMs).unref()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

async function bodyOf(stream: ServerHttp2Stream): Promise<Buffer> {
  const pieces: Buffer[] = []
  for await (const piece of stream) pieces.push(piece as Buffer)
  return Buffer.concat(pieces)
}

function dropBusiest(open: ReadonlyMap<ServerHttp2Session, ReadonlySet<Http2Stream>>): void {
  const [busiest] = [...open].sort(([, one], [, other]) => other.size - one.size)
  if (busiest !== undefined && busiest[1].size > 0) busiest[0].destroy()
}

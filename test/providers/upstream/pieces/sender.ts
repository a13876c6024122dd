/**
 * A server in a thread of its own, so that its work is not measured: it answers `/BYTES/NAME/…` with the reply NAME of
 * `replies.ts`, chunked, in pieces of BYTES bytes.
 */
import { createServer, type Socket } from 'node:net'
import { isMainThread, parentPort, Worker } from 'node:worker_threads'
import type { Test } from 'tap'
import { REPLIES } from './replies.ts'

/** Starts the server, which ends with the test. */
export async function startSender(t: Pick<Test, 'teardown'>): Promise<string> {
  const worker = new Worker(new URL(import.meta.url))
  t.teardown(() => worker.terminate())
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  worker.once('error', reject)
  worker.once('message', port => resolve(`http://127.0.0.1:${port}`))
  return await promise
}

/** Bytes of one write to the socket. */
const WRITE_BYTES = 64 * 1024

function answer(socket: Socket): void {
  socket.setNoDelay(true)
  let text = ''
  socket.on('error', () => undefined)
  socket.on('data', bytes => {
    text += bytes.toString('latin1')
    const end = text.indexOf('\r\n\r\n')
    if (end === -1) return
    const length = Number(/^content-length: (\d+)/im.exec(text)?.[1] ?? 0)
    if (text.length < end + 4 + length) return
    const [, , path = ''] = /^(\w+) (\S+)/.exec(text) ?? []
    const body = text.slice(end + 4)
    text = ''
    void send(socket, path, body)
  })
}

async function send(socket: Socket, path: string, asked: string): Promise<void> {
  const [, pieceText = '', name = ''] = path.split('/')
  const reply = REPLIES[name]?.(asked)
  if (reply === undefined || reply === null) {
    socket.write('HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n')
    return
  }
  const { type, body } = reply
  socket.write(`HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ntransfer-encoding: chunked\r\n\r\n`)
  const piece = Number(pieceText)
  let waiting: Buffer[] = []
  let bytes = 0
  for (let at = 0; at < body.length; at += piece) {
    const part = body.subarray(at, at + piece)
    waiting.push(Buffer.from(`${part.length.toString(16)}\r\n`), part, Buffer.from('\r\n'))
    bytes += part.length + 6
    if (bytes < WRITE_BYTES) continue
    const isFull = !socket.write(Buffer.concat(waiting))
    waiting = []
    bytes = 0
    if (socket.destroyed) return
    if (isFull) await new Promise<void>(resolve => void socket.once('drain', resolve).once('close', resolve))
  }
  socket.write(Buffer.concat([...waiting, Buffer.from('0\r\n\r\n')]))
}

if (!isMainThread && parentPort !== null) {
  const port = parentPort
  const server = createServer(answer)
  server.listen(0, '127.0.0.1', () => port.postMessage((server.address() as { port: number }).port))
}

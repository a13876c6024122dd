/** A provider that answers each call in one of several hostile ways, named by the first segment of the path. */
import { createServer, type Socket } from 'node:net'
import type { Test } from 'tap'

type Attack = (socket: Socket) => void

const HEAD = (type: string) =>
  `HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ntransfer-encoding: chunked\r\n\r\n`
const JSON_HEAD = HEAD('application/json')
const SSE_HEAD = HEAD('text/event-stream')
const PIECE = 'x'.repeat(16_000)

const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`
const frame = (delta: string, more = '') =>
  chunk(
    `data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":${delta}}]${more}}\n\n`,
  )
const FINISH =
  chunk(
    'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n',
  ) + chunk('data: [DONE]\n\n')

/** Writes `head`, then `piece` again and again as far as the reader takes it. */
function pour(socket: Socket, head: string, piece: string, maxBytes = Number.POSITIVE_INFINITY): void {
  const bytes = Buffer.from(piece)
  let sent = 0
  const more = (): void => {
    while (!socket.destroyed) {
      if (sent > maxBytes) {
        socket.end('0\r\n\r\n')
        return
      }
      sent += bytes.length
      if (!socket.write(bytes)) {
        socket.once('drain', more)
        return
      }
    }
  }
  socket.write(head)
  more()
}

export const ATTACKS: Readonly<Record<string, Attack>> = {
  silent: () => undefined,
  brackets: socket => pour(socket, JSON_HEAD, chunk('['.repeat(65_536)), 60_000_000),
  objects: socket => pour(socket, JSON_HEAD + chunk('[{}'), chunk(',{}'.repeat(20_000)), 60_000_000),
  strings: socket => pour(socket, JSON_HEAD + chunk('["語'), chunk(PIECE), 60_000_000),
  runaway: socket => pour(socket, SSE_HEAD, frame(`{"content":"${PIECE}"}`)),
  hangul: socket => pour(socket, SSE_HEAD, frame(`{"content":"${'x'.repeat(5_000)}가"}`)),
  reasoning: socket => pour(socket, SSE_HEAD, frame(`{"reasoning_content":"${PIECE}語"}`)),
  arguments: socket =>
    pour(
      socket,
      SSE_HEAD,
      frame(`{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"${PIECE}"}}]}`),
    ),
  deep: socket => pour(socket, SSE_HEAD, frame('{"content":"a"}', `,"x":${'['.repeat(300_000)}`)),
  frame: socket => pour(socket, `${SSE_HEAD}${chunk('data: {"id":"')}`, chunk(PIECE)),
  comments: socket => pour(socket, SSE_HEAD, chunk(`: ${PIECE}\n`), 60_000_000),
  header: socket => pour(socket, 'HTTP/1.1 200 OK\r\nx-long: ', PIECE),
  lines: socket => pour(socket, 'HTTP/1.1 200 OK\r\n', 'x-many: value\r\n'.repeat(500)),
}

/**
 * Reads requests, and answers as the path says: `/NAME/…`. Any other name is answered well. Their bodies are as large as
 * they may be, so none is kept.
 */
export async function startHostileProvider(t: Pick<Test, 'teardown'>): Promise<{ readonly port: number }> {
  const sockets = new Set<Socket>()
  const server = createServer(socket => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    socket.on('close', () => sockets.delete(socket))
    let head = ''
    let leftBytes = -1
    let name = ''
    socket.on('data', data => {
      let bytes = data.length
      if (leftBytes === -1) {
        head += data.toString('latin1')
        const end = head.indexOf('\r\n\r\n')
        if (end === -1) return
        name = /^POST \/(\w+)\//.exec(head)?.[1] ?? ''
        leftBytes = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0)
        bytes = head.length - end - 4
        head = ''
      }
      leftBytes -= bytes
      if (leftBytes > 0) return
      leftBytes = -1
      const attack = ATTACKS[name]
      if (attack !== undefined) attack(socket)
      else socket.write(`${SSE_HEAD}${frame('{"content":"hello"}')}${FINISH}0\r\n\r\n`)
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(async () => {
    for (const socket of sockets) socket.destroy()
    await new Promise(resolve => server.close(resolve))
  })
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  return { port: address.port }
}

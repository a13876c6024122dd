/** A provider that answers each call in one of several hostile ways, named by the first segment of the path. */
import type { Socket } from 'node:net'
import type { Test } from 'tap'
import { chunk, FaultServer, STREAM_HEAD } from './fault-server.ts'

type Attack = (socket: Socket) => void

const JSON_HEAD = STREAM_HEAD.replace('text/event-stream', 'application/json')
const PIECE = 'x'.repeat(16_000)

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
  runaway: socket => pour(socket, STREAM_HEAD, frame(`{"content":"${PIECE}"}`)),
  hangul: socket => pour(socket, STREAM_HEAD, frame(`{"content":"${'x'.repeat(5_000)}가"}`)),
  reasoning: socket => pour(socket, STREAM_HEAD, frame(`{"reasoning_content":"${PIECE}語"}`)),
  arguments: socket =>
    pour(
      socket,
      STREAM_HEAD,
      frame(`{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"${PIECE}"}}]}`),
    ),
  deep: socket => pour(socket, STREAM_HEAD, frame('{"content":"a"}', `,"x":${'['.repeat(300_000)}`)),
  frame: socket => pour(socket, `${STREAM_HEAD}${chunk('data: {"id":"')}`, chunk(PIECE)),
  comments: socket => pour(socket, STREAM_HEAD, chunk(`: ${PIECE}\n`), 60_000_000),
  header: socket => pour(socket, 'HTTP/1.1 200 OK\r\nx-long: ', PIECE),
  lines: socket => pour(socket, 'HTTP/1.1 200 OK\r\n', 'x-many: value\r\n'.repeat(500)),
}

/** Answers as the path says: `/NAME/…`. Any other name is answered well. */
export async function startHostileProvider(t: Pick<Test, 'teardown'>): Promise<{ readonly port: number }> {
  const server = await FaultServer.start(({ request, socket }) => {
    const attack = ATTACKS[/^POST \/(\w+)\//.exec(request.head)?.[1] ?? '']
    if (attack !== undefined) attack(socket)
    else socket.write(`${STREAM_HEAD}${frame('{"content":"hello"}')}${FINISH}0\r\n\r\n`)
  })
  t.teardown(() => server.close())
  return server
}

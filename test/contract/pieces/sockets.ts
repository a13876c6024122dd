/** Frames of a WebSocket: control frames, texts, and the fragments of one text. */
import { connect } from 'node:net'
import { BYTES, type Way } from './way.ts'

const CONTINUATION = 0
const TEXT = 1
const PING = 9
const PONG = 10
const FINAL = 0x80
/** Longer control frames are not valid. */
const CONTROL_MAX_BYTES = 125

/** A frame of a client whose payload has only spaces, with a mask of zeros. */
function frame(first: number, length: number): Buffer {
  const head =
    length < 126 ? Buffer.of(first, 0x80 | length) : Buffer.of(first, 0xfe, length >> 8, length & 0xff)
  return Buffer.concat([head, Buffer.alloc(4), Buffer.alloc(length, ' ')])
}

function frames(code: number, pieceBytes: number): Buffer {
  const length = code === TEXT ? pieceBytes : Math.min(pieceBytes, CONTROL_MAX_BYTES)
  return Buffer.concat(new Array<Buffer>(Math.ceil(BYTES / length)).fill(frame(FINAL | code, length)))
}

/** One text, unfinished until its last frame. */
function fragments(pieceBytes: number): Buffer {
  const count = Math.ceil(BYTES / pieceBytes)
  const middle = new Array<Buffer>(count - 1).fill(frame(CONTINUATION, pieceBytes))
  return Buffer.concat([frame(TEXT, pieceBytes), ...middle, frame(FINAL | CONTINUATION, 0)])
}

/** The payload of a last ping. Its pong shows that everything before it has been handled. */
const LAST = 'last!'
/** The code of a close frame. */
const REFUSED = '\u0003\u00f0'
/** The gateway may drop a client that sends on after the close frame, before the client has read it. */
const DROPPED = 'dropped'

/** Opens a socket, sends these bytes and a last ping; resolves with the end of what came. */
function sendFrames(port: number, key: string, wire: Buffer): Promise<string> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1')
    let isOpen = false
    let tail = ''
    socket.on('error', () => undefined)
    socket.once('close', () => resolve(isOpen ? tail + DROPPED : tail))
    socket.setEncoding('latin1').on('data', text => {
      tail = (tail + text).slice(-4096)
      if (!isOpen && tail.startsWith('HTTP/1.1 101 ')) {
        isOpen = true
        socket.write(wire)
        socket.write(Buffer.concat([frame(FINAL | PING, LAST.length).subarray(0, 6), Buffer.from(LAST)]))
      }
      if (!isOpen || tail.includes(LAST) || tail.includes(REFUSED)) {
        resolve(tail)
        socket.destroy()
      }
    })
    socket.write(
      'GET /v1/responses HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n' +
        `Authorization: Bearer ${key}\r\nSec-WebSocket-Version: 13\r\n` +
        'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
    )
  })
}

/**
 * Frames that are more than 200 in a second must be refused; the fragments of one text may be. The longest control
 * frames are more than that too.
 */
export const SOCKET_WAYS: readonly Way[] = (
  [
    ['ping', length => frames(PING, length), [REFUSED, DROPPED]],
    ['pong', length => frames(PONG, length), [REFUSED, DROPPED]],
    ['text', length => frames(TEXT, length), [REFUSED, DROPPED]],
    ['fragments of a text', fragments, [LAST, REFUSED, DROPPED]],
  ] as const satisfies readonly (readonly [string, (pieceBytes: number) => Buffer, readonly string[]])[]
).map(([name, wireOf, endings]) => ({
  name: `WebSocket, ${name}`,
  send: ({ gateway }, pieceBytes) => sendFrames(gateway.port, gateway.apiKey, wireOf(pieceBytes)),
  isExpected: (answer, pieceBytes) =>
    (pieceBytes === 1 ? endings : [LAST, ...endings]).some(ending => answer.includes(ending)),
}))

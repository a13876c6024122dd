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

/** Opens a socket and sends these bytes, then a text that is refused; resolves with its refusal, or at the close. */
function sendFrames(port: number, key: string, wire: Buffer): Promise<void> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1')
    socket.on('error', () => undefined)
    socket.once('close', () => resolve())
    let isOpen = false
    let tail = ''
    socket.setEncoding('latin1').on('data', text => {
      if (!isOpen) {
        isOpen = true
        socket.write(wire)
        socket.write(frame(FINAL | TEXT, 1))
      }
      tail = (tail + text).slice(-4096)
      if (tail.includes('"type":"error"') && socket.writableLength === 0) socket.destroy()
    })
    socket.write(
      'GET /v1/responses HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n' +
        `Authorization: Bearer ${key}\r\nSec-WebSocket-Version: 13\r\n` +
        'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
    )
  })
}

export const SOCKET_WAYS: readonly Way[] = (
  [
    ['ping', length => frames(PING, length)],
    ['pong', length => frames(PONG, length)],
    ['text', length => frames(TEXT, length)],
    ['fragments of a text', fragments],
  ] as const satisfies readonly (readonly [string, (pieceBytes: number) => Buffer])[]
).map(([name, wireOf]) => ({
  name: `WebSocket, ${name}`,
  send: ({ gateway }, pieceBytes) => sendFrames(gateway.port, gateway.apiKey, wireOf(pieceBytes)),
}))

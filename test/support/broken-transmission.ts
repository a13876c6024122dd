/** Ways in which a fault breaks a reply of the simulated provider: partial output, silence, and closed connections. */
import { once } from 'node:events'
import type { Frame } from '../../src/apps/simulator/reply.ts'
import type { Transmission } from '../../src/apps/simulator/transmission.ts'

/** The reply in frames; a document comes as its two halves, so that faults can strike in its middle. */
export function* framesOf({ stream, speaker, speech }: Transmission): Generator<Frame> {
  if (stream) {
    yield* speaker.frames(speech)
    return
  }
  const whole = JSON.stringify(speaker.whole(speech))
  const middle = Math.floor(whole.length / 2)
  yield { kind: 'token', text: whole.slice(0, middle) }
  yield { kind: 'finish', text: whole.slice(middle) }
}

/** The whole reply as bytes of its body. */
export function bodyOf(reply: Transmission): Buffer {
  return Buffer.from(textOf(framesOf(reply)))
}

/** Waits for the client to give up. */
export async function hang({ over, response }: Transmission): Promise<void> {
  if (!over) await once(response, 'close')
}

/** Ends the connection with a reset, after all that was written has left. */
export async function reset(reply: Transmission): Promise<void> {
  reply.endedHere = true
  await flushed(reply)
  reply.response.socket?.resetAndDestroy()
}

/** Ends the connection properly, wherever the reply stands. */
export async function close(reply: Transmission): Promise<void> {
  reply.endedHere = true
  await flushed(reply)
  reply.response.socket?.end()
  reply.response.socket?.destroySoon()
}

/** Writes bytes past the HTTP layer and ends the connection. */
export async function raw(reply: Transmission, bytes: string): Promise<void> {
  reply.endedHere = true
  reply.response.socket?.write(bytes)
  await close(reply)
}

/** Resolves when the socket has handed everything to the system. */
function flushed({ response: { socket } }: Transmission): Promise<void> {
  if (socket === null || socket.destroyed) return Promise.resolve()
  return new Promise(done => socket.write('', () => done()))
}

export function textOf(frames: Iterable<Frame>): string {
  return Array.from(frames, frame => frame.text).join('')
}

/**
 * One reply on its way to the client: bytes with back-pressure and pace, and whatever a fault wants to do to
 * the socket. Runs in the loop of whoever created the simulated provider.
 */
import type { ServerResponse } from 'node:http'
import type { Clock } from '../clock.ts'
import type { Frame, Speaker, Speech } from './speaker.ts'

/** Unpaced frames are joined up to this size: a socket write for each would measure the simulation instead. */
const BATCH_CHARACTERS = 16 * 1024

export class Transmission {
  readonly speaker: Speaker
  readonly speech: Speech
  readonly response: ServerResponse
  readonly clock: Clock
  /** The client has gone, or the connection was ended by a fault. */
  over = false
  /** Set by faults that end the connection themselves, so that it does not count as the client's doing. */
  endedHere = false
  #wake: (() => void) | null = null

  constructor(speaker: Speaker, speech: Speech, response: ServerResponse, clock: Clock) {
    this.speaker = speaker
    this.speech = speech
    this.response = response
    this.clock = clock
    response.on('drain', () => this.#wakeUp())
    response.on('close', () => {
      this.over = true
      this.#wakeUp()
    })
  }

  get stream(): boolean {
    return this.speech.ask.stream
  }

  /** The reply in frames; a document comes as its two halves, so that faults can strike in its middle. */
  *frames(): Generator<Frame> {
    if (this.stream) {
      yield* this.speaker.frames(this.speech)
      return
    }
    const text = JSON.stringify(this.speaker.whole(this.speech))
    const middle = Math.floor(text.length / 2)
    yield { kind: 'token', text: text.slice(0, middle) }
    yield { kind: 'finish', text: text.slice(middle) }
  }

  /** The whole reply as bytes of its body. */
  body(): Buffer {
    return Buffer.from(Array.from(this.frames(), frame => frame.text).join(''))
  }

  /** Sends the response headers of a proper reply now. */
  head(headers: Readonly<Record<string, string | number>> = {}): void {
    const kind = this.stream
      ? { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' }
      : { 'content-type': 'application/json' }
    this.response.writeHead(200, { ...kind, 'x-request-id': this.speech.id, ...headers })
    this.response.flushHeaders()
  }

  /** Sends the proper reply to its end. */
  async send(): Promise<void> {
    const { paceMs } = this.speech.reply
    if (!this.stream) {
      await this.pause(paceMs * this.speech.tally.output)
      if (!this.over) this.json(200, this.speaker.whole(this.speech))
      return
    }
    this.head()
    await this.pour(this.frames(), paceMs)
    this.response.end()
  }

  /** Writes frames: paced ones as they are due, others as fast as the reader takes them. */
  async pour(frames: Iterable<Frame>, paceMs: number): Promise<void> {
    let batch = ''
    for (const frame of frames) {
      if (this.over) return
      if (paceMs > 0 && frame.kind === 'token') {
        await this.write(batch)
        batch = ''
        await this.pause(paceMs)
      }
      batch += frame.text
      if (batch.length >= BATCH_CHARACTERS) {
        await this.write(batch)
        batch = ''
      }
    }
    await this.write(batch)
  }

  /** Writes and waits until the reader has room. */
  async write(bytes: string | Uint8Array): Promise<void> {
    if (this.over || bytes.length === 0) return
    if (!this.response.write(bytes)) await this.#sleep()
  }

  /** Waits, at most until the client has gone. */
  async pause(ms: number): Promise<void> {
    if (ms <= 0 || this.over) return
    const timer = this.clock.after(ms, () => this.#wakeUp())
    await this.#sleep()
    timer.cancel()
  }

  /** Waits for the client to give up. */
  async hang(): Promise<void> {
    while (!this.over) await this.#sleep()
  }

  /** Answers with a JSON document. */
  json(status: number, document: unknown, headers: Readonly<Record<string, string>> = {}): void {
    const body = Buffer.from(JSON.stringify(document))
    this.response.writeHead(status, {
      'content-type': 'application/json',
      'content-length': body.length,
      'x-request-id': this.speech.id,
      ...headers,
    })
    this.response.end(body)
  }

  /** Ends the connection with a reset, after what was written has left. */
  async reset(): Promise<void> {
    this.endedHere = true
    await this.#flushed()
    this.response.socket?.resetAndDestroy()
  }

  /** Ends the connection properly, wherever the reply stands. */
  async close(): Promise<void> {
    this.endedHere = true
    await this.#flushed()
    this.response.socket?.end()
    this.response.socket?.destroySoon()
  }

  /** Writes bytes past the HTTP layer and, unless told to keep it, ends the connection. */
  async raw(bytes: string, after: 'close' | 'keep' = 'close'): Promise<void> {
    this.endedHere = true
    this.response.socket?.write(bytes)
    if (after === 'close') await this.close()
  }

  /** Resolves when the socket has handed everything to the system. */
  #flushed(): Promise<void> {
    const { socket } = this.response
    if (socket === null || socket.destroyed) return Promise.resolve()
    return new Promise(done => socket.write('', () => done()))
  }

  #sleep(): Promise<void> {
    if (this.over) return Promise.resolve()
    return new Promise(done => {
      this.#wake = done
    })
  }

  #wakeUp(): void {
    const wake = this.#wake
    this.#wake = null
    wake?.()
  }
}

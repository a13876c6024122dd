/** Sends one reply of the simulated provider, paced and with back-pressure. Runs in the provider's own event loop. */
import type { ServerResponse } from 'node:http'
import type { Clock } from '../../base/clock.ts'
import type { Frame, Speaker, Speech } from './reply.ts'

/** Joins unpaced frames up to this size: a socket write for each would distort measurements. */
const BATCH_CHARACTERS = 16 * 1024

export class Transmission {
  readonly speaker: Speaker
  readonly speech: Speech
  readonly response: ServerResponse
  readonly clock: Clock
  /** True after the connection has ended. */
  over = false
  /** True if a fault ended the connection, so that it does not count as a disconnect of the client. */
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

  /** Sends the response headers of a correct reply at once. */
  head(headers: Readonly<Record<string, string | number>> = {}): void {
    const kind = this.stream
      ? { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' }
      : { 'content-type': 'application/json' }
    this.response.writeHead(200, { ...kind, 'x-request-id': this.speech.id, ...headers })
    this.response.flushHeaders()
  }

  /** Sends the correct reply to its end. */
  async send(): Promise<void> {
    const { paceMs } = this.speech.reply
    if (!this.stream) {
      await this.pause(paceMs * this.speech.tally.output)
      if (!this.over) this.json(200, this.speaker.whole(this.speech))
      return
    }
    this.head()
    await this.pour(this.speaker.frames(this.speech), paceMs)
    this.response.end()
  }

  /** Writes frames: paced ones when they are due, others as fast as the client reads. */
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

  /** Writes, and waits while the client is slow. */
  async write(bytes: string | Uint8Array): Promise<void> {
    if (this.over || bytes.length === 0) return
    if (!this.response.write(bytes)) await this.#sleep()
  }

  /** Waits, but not longer than the connection. */
  async pause(ms: number): Promise<void> {
    if (ms <= 0 || this.over) return
    const timer = this.clock.after(ms, () => this.#wakeUp())
    await this.#sleep()
    timer.cancel()
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

  #sleep(): Promise<void> {
    if (this.over) return Promise.resolve()
    return new Promise(resolve => {
      this.#wake = resolve
    })
  }

  #wakeUp(): void {
    const wake = this.#wake
    this.#wake = null
    wake?.()
  }
}

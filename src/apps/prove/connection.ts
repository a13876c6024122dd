/** One raw connection to a gateway, which sends exactly the given bytes. */
import { connect as connectPlain, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import type { Clock } from '../../base/clock.ts'
import { ReplyReader, type SeenReply } from './raw-reply.ts'

/** No server answers at the address. */
export class NoConnection extends Error {
  override readonly name = 'NoConnection'
}

export interface ReadOptions {
  /** True for a reply to HEAD. */
  readonly isBodiless?: boolean
  /** Called with the body so far; true: enough was read. */
  readonly onText?: (text: string) => boolean | undefined
  /** Called with interim statuses such as 100. */
  readonly onInterim?: (status: number) => void
  /** Maximum time without a byte. */
  readonly silenceMs?: number
}

export interface ConnectionTerms {
  readonly clock: Clock
  /** Maximum time for connecting, and without a byte. */
  readonly silenceMs: number
  /** Remaining time of the whole run. */
  readonly leftMs: () => number
  readonly maxBytes: number
}

export class RawConnection {
  readonly #socket: Socket
  readonly #terms: ConnectionTerms
  readonly #release: () => void
  #pending: Buffer[] = []
  #isClosed = false
  #isReset = false
  #sentMs: number
  #wake: (() => void) | null = null

  private constructor(socket: Socket, terms: ConnectionTerms, release: () => void) {
    this.#socket = socket
    this.#terms = terms
    this.#release = release
    this.#sentMs = terms.clock.monotonicMs()
    socket.on('data', (chunk: Buffer) => {
      this.#pending.push(chunk)
      this.#wakeUp()
    })
    socket.on('error', () => {
      this.#isReset = true
      socket.destroy()
    })
    socket.on('end', () => this.#onClosed())
    socket.on('close', () => this.#onClosed())
  }

  /** @param release called when this side closes the connection, or there is none @throws NoConnection */
  static open(url: URL, terms: ConnectionTerms, release: () => void): Promise<RawConnection> {
    const isSecure = url.protocol === 'https:'
    const host = url.hostname.replace(/^\[|\]$/g, '')
    const port = Number(url.port === '' ? (isSecure ? 443 : 80) : url.port)
    return new Promise((resolve, reject) => {
      const socket = isSecure
        ? connectTls({
            host,
            port,
            ALPNProtocols: ['http/1.1'],
            ...(/^[\d.:]+$/.test(host) ? {} : { servername: host }),
          })
        : connectPlain({ host, port })
      const fail = (why: string): void => {
        timer.cancel()
        socket.destroy()
        release()
        reject(new NoConnection(why))
      }
      const onError = (error: NodeJS.ErrnoException): void => fail(error.code ?? 'no connection')
      const timer = terms.clock.after(Math.min(terms.silenceMs, terms.leftMs()), () =>
        fail('no connection in time'),
      )
      socket.setNoDelay(true)
      socket.once('error', onError)
      socket.once(isSecure ? 'secureConnect' : 'connect', () => {
        timer.cancel()
        socket.off('error', onError)
        resolve(new RawConnection(socket, terms, release))
      })
    })
  }

  get isClosed(): boolean {
    return this.#isClosed && this.#pending.length === 0
  }

  send(bytes: string | Uint8Array): void {
    this.#sentMs = this.#terms.clock.monotonicMs()
    if (!this.#isClosed) this.#socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes)
  }

  /** Stops reading until `resume`. */
  pause(): void {
    this.#socket.pause()
  }

  resume(): void {
    this.#socket.resume()
  }

  /** The next reply; null: the connection was closed or silent before its head. @throws NoHttp */
  async read(options: ReadOptions = {}): Promise<SeenReply | null> {
    const reader = new ReplyReader(options.isBodiless === true, this.#terms.maxBytes)
    let seenBytes = 0
    let interim = 0
    while (reader.end === null) {
      const chunk = this.#pending.shift()
      if (chunk === undefined) {
        if (this.#isClosed) reader.close(this.#isReset ? 'reset' : 'cut')
        else if (!(await this.#waitForBytes(options.silenceMs))) reader.close('silent')
        continue
      }
      reader.push(chunk, this.#sinceMs())
      while (interim < reader.interim.length) options.onInterim?.(reader.interim[interim++] ?? 0)
      if (reader.text.length === seenBytes) continue
      seenBytes = reader.text.length
      if (options.onText?.(reader.text) === true) reader.close('left')
    }
    if (reader.rest.length > 0) this.#pending.unshift(reader.rest)
    return reader.reply(this.#sinceMs())
  }

  /** Waits for bytes or the end. Returns false if nothing came in time. */
  async #waitForBytes(silenceMs = this.#terms.silenceMs): Promise<boolean> {
    let isLate = false
    const timer = this.#terms.clock.after(Math.min(silenceMs, this.#terms.leftMs()), () => {
      isLate = true
      this.#wakeUp()
    })
    await new Promise<void>(resolve => {
      this.#wake = resolve
      if (this.#pending.length > 0 || this.#isClosed) resolve()
    })
    this.#wake = null
    timer.cancel()
    return !isLate
  }

  close(): void {
    this.#socket.destroy()
    this.#release()
    this.#onClosed()
  }

  #sinceMs(): number {
    return this.#terms.clock.monotonicMs() - this.#sentMs
  }

  #onClosed(): void {
    this.#isClosed = true
    this.#wakeUp()
  }

  #wakeUp(): void {
    this.#wake?.()
  }
}

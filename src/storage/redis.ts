/**
 * A connection to Redis that comes back by itself. Nothing waits for it: a command that is not answered in time is
 * given up, and while nothing is answered the connection counts as lost. Main thread. Errors are logged once per
 * outage, by class and code only, since messages may carry the URL with its password.
 */
import { createClient } from '@redis/client'
import type { Clock, Timer } from '../clock.ts'
import type { Log } from '../log/log.ts'

export interface RedisOptions {
  readonly url: string
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  /** What runs on every new connection before it counts as ready, in order. */
  readonly prepare?: readonly (readonly string[])[]
  /** A connection that listens to this channel, and does nothing else. */
  readonly channel?: { readonly name: string; readonly onMessage: (text: string) => void }
  readonly onReady?: () => void
  readonly onLost?: () => void
  /** Silence while commands wait that counts as an outage. Default 50 ms: a good answer takes a hundredth of it. */
  readonly silenceMs?: number
}

export interface Redis {
  /** Whether commands are answered. */
  readonly isReady: boolean
  /** Rejects at once when the connection is lost, and after a short silence; the command may have run then. */
  send(command: readonly string[]): Promise<unknown>
  close(): void
}

export const SILENCE_MS = 50
const RETRY_MS = 50
/** So that an outage is over a second after Redis is back. */
const RETRY_MAX_MS = 1_000
/** How long connecting, or an answer that is overdue, is waited for at least before the connection is given up. */
const GIVE_UP_MS = 1_000

type Client = ReturnType<typeof createClient>

export function openRedis(options: RedisOptions): Redis {
  return new Link(options)
}

class Link implements Redis {
  readonly #options: RedisOptions
  readonly #silenceMs: number
  readonly #giveUpMs: number
  readonly #waiting = new Set<(error: Error) => void>()
  #client: Client | null = null
  #ready = false
  #closed = false
  /** It was told that Redis is away. */
  #told = false
  #tries = 0
  #retry: Timer | null = null
  #watch: Timer | null = null
  /** Monotonic: the last answer, or the first command after all were answered. */
  #heardMs = 0
  /** Commands that have not been answered yet, given up or not. */
  #unanswered = 0

  constructor(options: RedisOptions) {
    this.#options = options
    this.#silenceMs = options.silenceMs ?? SILENCE_MS
    this.#giveUpMs = Math.max(GIVE_UP_MS, this.#silenceMs)
    void this.#connect()
  }

  get isReady(): boolean {
    return this.#ready
  }

  send(command: readonly string[]): Promise<unknown> {
    const client = this.#client
    if (!this.#ready || client === null) return Promise.reject(new Error('redis is away'))
    const { clock } = this.#options
    if (this.#unanswered++ === 0) this.#heardMs = clock.monotonicMs()
    this.#watch ??= clock.after(this.#silenceMs, this.#listen)
    return new Promise((resolve, reject) => {
      this.#waiting.add(reject)
      client.sendCommand([...command]).then(
        reply => {
          this.#waiting.delete(reject)
          if (client === this.#client) this.#heard()
          resolve(reply)
        },
        (error: unknown) => {
          this.#waiting.delete(reject)
          reject(error)
          // Also when Redis refuses, for a lack of memory or of a script: a new connection is made ready anew.
          this.#lose(client, error)
        },
      )
    })
  }

  close(): void {
    this.#closed = true
    this.#retry?.cancel()
    this.#drop()
  }

  async #connect(): Promise<void> {
    const { url, clock, channel, prepare = [] } = this.#options
    let client: Client | null = null
    let limit: Timer | null = null
    try {
      const opened: Client = createClient({
        url,
        disableOfflineQueue: true,
        disableClientInfo: true,
        maintNotifications: 'disabled',
        socket: { connectTimeout: this.#giveUpMs, reconnectStrategy: false },
      })
      client = opened
      this.#client = opened
      opened.on('error', error => this.#lose(opened, error))
      opened.on('end', () => this.#lose(opened, new Error('the connection ended')))
      limit = clock.after(this.#giveUpMs, () => this.#lose(opened, new Error('no connection in time')))
      await opened.connect()
      for (const command of prepare) await opened.sendCommand([...command])
      if (channel !== undefined) await opened.subscribe(channel.name, channel.onMessage)
      if (this.#client === opened) this.#resume()
    } catch (error) {
      this.#lose(client, error)
    } finally {
      limit?.cancel()
    }
  }

  #resume(): void {
    this.#ready = true
    this.#tries = 0
    if (this.#told) this.#options.log.notice('redis answers again')
    this.#told = false
    this.#options.onReady?.()
  }

  #heard(): void {
    this.#unanswered--
    this.#heardMs = this.#options.clock.monotonicMs()
    if (!this.#ready) this.#resume()
  }

  readonly #listen = (): void => {
    this.#watch = null
    if (this.#unanswered === 0 || this.#closed) return
    // Answers may lie in the socket unread, because this thread itself was late: they get a turn to be read in.
    setImmediate(() => {
      if (this.#unanswered === 0 || this.#closed) return
      const { clock } = this.#options
      const silenceMs = this.#silenceMs
      const silentMs = clock.monotonicMs() - this.#heardMs
      if (silentMs >= this.#giveUpMs) return this.#lose(this.#client, new Error('no answer'))
      // The connection may stand: it is used again when something comes.
      if (silentMs >= silenceMs) this.#fail(new Error('no answer in time'))
      this.#watch ??= clock.after(
        Math.max(1, silentMs >= silenceMs ? silenceMs : silenceMs - silentMs),
        this.#listen,
      )
    })
  }

  /** Also called late, by a connection that was given up long ago. */
  #lose(client: Client | null, error: unknown): void {
    if (client !== this.#client || this.#closed) return
    this.#fail(error)
    this.#drop()
    const delayMs = Math.min(RETRY_MS * 2 ** this.#tries++, RETRY_MAX_MS)
    this.#retry = this.#options.clock.after(delayMs, () => void this.#connect())
  }

  /** Nobody waits any longer. */
  #fail(error: unknown): void {
    const wasReady = this.#ready
    this.#ready = false
    if (!this.#told) this.#options.log.fault('redis is away', error)
    this.#told = true
    const waiting = [...this.#waiting]
    this.#waiting.clear()
    for (const reject of waiting) reject(new Error('redis is away'))
    if (wasReady) this.#options.onLost?.()
  }

  #drop(): void {
    const client = this.#client
    this.#client = null
    this.#ready = false
    this.#unanswered = 0
    this.#watch?.cancel()
    this.#watch = null
    try {
      client?.destroy()
    } catch {
      // It had closed itself.
    }
  }
}

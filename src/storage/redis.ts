/**
 * A Redis connection that reconnects automatically. A command that gets no answer in time rejects, and the connection
 * counts as lost until the next answer. Logs one error per outage, by class and code only, because messages may contain
 * the URL with its password. Main thread.
 */
import type { createClient } from '@redis/client'
import type { Clock, Timer } from '../base/clock.ts'
import type { Log } from '../base/log/log.ts'
import { storageLocation } from './data-folder.ts'

interface RedisOptions {
  readonly url: string
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
  /** Called for every new connection: the commands to run before it is ready, in order. */
  readonly prepare?: () => readonly (readonly string[])[]
  /** Subscribes to this channel; such a connection sends no commands but PING. */
  readonly channel?: { readonly name: string; readonly onMessage: (text: string) => void }
  readonly onReady?: () => void
  readonly onLost?: () => void
  /**
   * How long Redis may be silent while commands wait before it counts as an outage. Default 50 ms, a hundred times a
   * normal answer.
   */
  readonly silenceMs?: number
}

/** The connection. */
export interface Redis {
  /** True while commands are answered. */
  readonly isReady: boolean
  /** Rejects at once when the connection is lost, or after a short silence; the command may have run. */
  send(command: readonly string[]): Promise<unknown>
  close(): void
}

const SILENCE_DEFAULT_MS = 50
const RETRY_DELAY_MS = 50
/** Maximum delay before a retry: an outage lasts at most this much longer than Redis is away. */
const RETRY_DELAY_MAX_MS = 1_000
/** Minimum time for connecting, or for an overdue answer, before the connection is closed. */
const GIVE_UP_MIN_MS = 1_000

type Client = ReturnType<typeof createClient>

/** Opens a connection, which connects in the background. */
export function openRedis(options: RedisOptions): Redis {
  return new RedisConnection(options)
}

class RedisConnection implements Redis {
  readonly #options: RedisOptions
  readonly #silenceMs: number
  readonly #giveUpMs: number
  readonly #pendingRejections = new Set<(error: Error) => void>()
  #client: Client | null = null
  /**
   * Copied for the next try, because the library builds a class with all commands for each client that is not a copy.
   */
  #previousClient: Client | null = null
  #ready = false
  #isClosed = false
  /** True if the current outage was logged. */
  #isOutageLogged = false
  #attempts = 0
  #retryTimer: Timer | null = null
  #silenceTimer: Timer | null = null
  /** Monotonic: the last answer, or the first command after a time without pending commands. */
  #lastAnswerMs = 0
  /** Commands without an answer, including rejected ones. */
  #unanswered = 0

  constructor(options: RedisOptions) {
    this.#options = options
    this.#silenceMs = options.silenceMs ?? SILENCE_DEFAULT_MS
    this.#giveUpMs = Math.max(GIVE_UP_MIN_MS, this.#silenceMs)
    void this.#connect()
  }

  get isReady(): boolean {
    return this.#ready
  }

  send(command: readonly string[]): Promise<unknown> {
    const client = this.#client
    if (!this.#ready || client === null) return Promise.reject(new Error('redis is unavailable'))
    const { clock } = this.#options
    if (this.#unanswered++ === 0) this.#lastAnswerMs = clock.monotonicMs()
    this.#silenceTimer ??= clock.after(this.#silenceMs, this.#checkSilence)
    return new Promise((resolve, reject) => {
      this.#pendingRejections.add(reject)
      client.sendCommand([...command]).then(
        reply => {
          this.#pendingRejections.delete(reject)
          if (client === this.#client) this.#noteAnswer()
          resolve(reply)
        },
        (error: unknown) => {
          this.#pendingRejections.delete(reject)
          reject(error)
          // Also if Redis refuses a command, for lack of memory or of a script: a new connection is prepared again.
          this.#lose(client, error)
        },
      )
    })
  }

  close(): void {
    this.#isClosed = true
    this.#retryTimer?.cancel()
    this.#drop()
  }

  async #connect(): Promise<void> {
    const { url, clock, channel, prepare } = this.#options
    let client: Client | null = null
    let timeout: Timer | null = null
    try {
      // Most gateways have no Redis, and the library takes 9 MB.
      const library = await import('@redis/client')
      if (this.#isClosed) return
      const newClient: Client =
        this.#previousClient?.duplicate() ??
        library.createClient({
          url,
          disableOfflineQueue: true,
          disableClientInfo: true,
          maintNotifications: 'disabled',
          socket: { connectTimeout: this.#giveUpMs, reconnectStrategy: false },
        })
      client = newClient
      this.#client = newClient
      this.#previousClient = newClient
      newClient.on('error', error => this.#lose(newClient, error))
      newClient.on('end', () => this.#lose(newClient, new Error('the connection ended')))
      timeout = clock.after(this.#giveUpMs, () => this.#lose(newClient, new Error('no connection in time')))
      await newClient.connect()
      for (const command of prepare?.() ?? []) await newClient.sendCommand([...command])
      if (channel !== undefined) await newClient.subscribe(channel.name, channel.onMessage)
      if (this.#client === newClient) this.#resume()
    } catch (error) {
      this.#lose(client, error)
    } finally {
      timeout?.cancel()
    }
  }

  #resume(): void {
    this.#ready = true
    this.#attempts = 0
    if (this.#isOutageLogged) this.#options.log.notice('redis', 'redis is available again')
    this.#isOutageLogged = false
    this.#options.onReady?.()
  }

  #noteAnswer(): void {
    this.#unanswered--
    this.#lastAnswerMs = this.#options.clock.monotonicMs()
    if (!this.#ready) this.#resume()
  }

  readonly #checkSilence = (): void => {
    this.#silenceTimer = null
    if (this.#unanswered === 0 || this.#isClosed) return
    // Answers may be unread in the socket because this thread was busy. They get one turn to be read.
    setImmediate(() => {
      if (this.#unanswered === 0 || this.#isClosed) return
      const { clock } = this.#options
      const silenceMs = this.#silenceMs
      const silentMs = clock.monotonicMs() - this.#lastAnswerMs
      if (silentMs >= this.#giveUpMs) return this.#lose(this.#client, new Error('no answer'))
      // The connection may be intact. It is used again after the next answer.
      if (silentMs >= silenceMs) this.#fail(new Error('no answer in time'))
      this.#silenceTimer ??= clock.after(
        Math.max(1, silentMs >= silenceMs ? silenceMs : silenceMs - silentMs),
        this.#checkSilence,
      )
    })
  }

  /** Drops a lost connection and schedules the next one. May be called late, by a connection that was replaced. */
  #lose(client: Client | null, error: unknown): void {
    if (client !== this.#client || this.#isClosed) return
    this.#fail(error)
    this.#drop()
    const delayMs = Math.min(RETRY_DELAY_MS * 2 ** this.#attempts++, RETRY_DELAY_MAX_MS)
    this.#retryTimer = this.#options.clock.after(delayMs, () => void this.#connect())
  }

  /** Begins or continues an outage: logs it once, rejects all waiting commands, and calls `onLost`. */
  #fail(error: unknown): void {
    const wasReady = this.#ready
    this.#ready = false
    if (!this.#isOutageLogged)
      this.#options.log.fault('redis', 'redis is unavailable', error, {
        host: storageLocation(this.#options.url),
      })
    this.#isOutageLogged = true
    const rejections = [...this.#pendingRejections]
    this.#pendingRejections.clear()
    for (const reject of rejections) reject(new Error('redis is unavailable'))
    if (wasReady) this.#options.onLost?.()
  }

  #drop(): void {
    const client = this.#client
    this.#client = null
    this.#ready = false
    this.#unanswered = 0
    this.#silenceTimer?.cancel()
    this.#silenceTimer = null
    try {
      client?.destroy()
    } catch {
      // The connection was already closed.
    }
  }
}

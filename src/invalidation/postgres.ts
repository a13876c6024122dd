/** Word between instances by LISTEN and NOTIFY of PostgreSQL, on a connection of its own. Main thread. */
import pg from 'pg'
import { type Timer, within } from '../clock.ts'
import type { Wire, WireOptions } from './carrier.ts'

/** A connection that nobody speaks on may be dead unnoticed. */
const PROBE_MS = 5_000
const ANSWER_MS = 2_000
const RETRY_MS = 100
const RETRY_MAX_MS = 1_000

export function openPostgresWire(options: WireOptions): Wire {
  return new PostgresWire(options)
}

class PostgresWire implements Wire {
  readonly #options: WireOptions
  readonly #silenceMs: number
  /** Null while it is cut. */
  #client: pg.Client | null = null
  #timer: Timer | null = null
  #tries = 0
  #told = false
  #closed = false

  constructor(options: WireOptions) {
    this.#options = options
    this.#silenceMs = options.silenceMs ?? ANSWER_MS
    void this.#connect()
  }

  async say(text: string): Promise<void> {
    const client = this.#client
    if (client === null) throw new Error('postgresql is away')
    try {
      await this.#ask(client, 'SELECT pg_notify($1, $2)', [this.#options.channel, text])
    } catch (error) {
      this.#lose(client, error)
      throw error
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    const client = this.#client
    this.#client = null
    await client?.end().catch(() => undefined)
  }

  async #connect(): Promise<void> {
    const { url, channel, clock, log, onMessage, onReady, onSayable } = this.#options
    const client = new pg.Client({
      connectionString: url,
      keepAlive: true,
      connectionTimeoutMillis: this.#silenceMs,
      application_name: 'sluice changes',
    })
    client.on('error', error => this.#lose(client, error))
    client.on('end', () => this.#lose(client, new Error('the connection ended')))
    client.on('notification', ({ payload }) => onMessage(payload ?? ''))
    try {
      await client.connect()
      // A constant of ours.
      await this.#ask(client, `LISTEN "${channel}"`)
    } catch (error) {
      void client.end().catch(() => undefined)
      return this.#again(error)
    }
    if (this.#closed) return void client.end().catch(() => undefined)
    this.#client = client
    this.#tries = 0
    if (this.#told) log.notice('changes are heard of again')
    this.#told = false
    this.#timer = clock.after(PROBE_MS, () => this.#probe(client))
    onReady()
    onSayable()
  }

  #probe(client: pg.Client): void {
    this.#ask(client, 'SELECT 1').then(
      () => {
        if (client === this.#client) {
          this.#timer = this.#options.clock.after(PROBE_MS, () => this.#probe(client))
        }
      },
      (error: unknown) => this.#lose(client, error),
    )
  }

  #ask(client: pg.Client, query: string, values: string[] = []): Promise<unknown> {
    return within(this.#options.clock, this.#silenceMs, client.query(query, values))
  }

  #lose(client: pg.Client, error: unknown): void {
    if (client !== this.#client || this.#closed) return
    this.#client = null
    this.#timer?.cancel()
    void client.end().catch(() => undefined)
    this.#again(error)
  }

  #again(error: unknown): void {
    if (this.#closed) return
    if (!this.#told) this.#options.log.fault('changes of other instances cannot be heard of', error)
    this.#told = true
    const delayMs = Math.min(RETRY_MS * 2 ** this.#tries++, RETRY_MAX_MS)
    this.#timer = this.#options.clock.after(delayMs, () => void this.#connect())
  }
}

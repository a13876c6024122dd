/** Sends and receives invalidations with PostgreSQL LISTEN and NOTIFY, on a connection of its own. Main thread. */
import type pg from 'pg'
import { type Timer, within } from '../../base/clock.ts'
import type { Carrier, CarrierOptions } from './bus.ts'

/** An idle connection may be dead without an error, so it is probed. */
const PROBE_INTERVAL_MS = 5_000
const ANSWER_TIMEOUT_MS = 2_000
const RETRY_DELAY_MS = 100
const RETRY_DELAY_MAX_MS = 1_000

export function openPostgresCarrier(options: CarrierOptions): Carrier {
  return new PostgresCarrier(options)
}

class PostgresCarrier implements Carrier {
  readonly #options: CarrierOptions
  readonly #silenceMs: number
  /** Null while disconnected. */
  #client: pg.Client | null = null
  #timer: Timer | null = null
  #attempts = 0
  /** True if the current outage was logged. */
  #isOutageLogged = false
  #isClosed = false

  constructor(options: CarrierOptions) {
    this.#options = options
    this.#silenceMs = options.silenceMs ?? ANSWER_TIMEOUT_MS
    void this.#connect()
  }

  async send(text: string): Promise<void> {
    const client = this.#client
    if (client === null) throw new Error('postgresql is unavailable')
    try {
      await this.#query(client, 'SELECT pg_notify($1, $2)', [this.#options.channel, text])
    } catch (error) {
      this.#disconnect(client, error)
      throw error
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#timer?.cancel()
    const client = this.#client
    this.#client = null
    await client?.end().catch(() => undefined)
  }

  async #connect(): Promise<void> {
    const { url, channel, clock, log, onMessage, onReceiving, onSending } = this.#options
    // The library is loaded only by instances that share a database.
    const { default: library } = await import('pg')
    if (this.#isClosed) return
    const client = new library.Client({
      connectionString: url,
      keepAlive: true,
      connectionTimeoutMillis: this.#silenceMs,
      application_name: 'sluice changes',
    })
    client.on('error', error => this.#disconnect(client, error))
    client.on('end', () => this.#disconnect(client, new Error('the connection ended')))
    client.on('notification', ({ payload }) => onMessage(payload ?? ''))
    try {
      await client.connect()
      // The channel is a constant in this folder, so it needs no escaping.
      await this.#query(client, `LISTEN "${channel}"`)
    } catch (error) {
      void client.end().catch(() => undefined)
      return this.#retry(error)
    }
    if (this.#isClosed) return void client.end().catch(() => undefined)
    this.#client = client
    this.#attempts = 0
    if (this.#isOutageLogged) log.notice('invalidation', 'receiving cache invalidations again')
    this.#isOutageLogged = false
    this.#timer = clock.after(PROBE_INTERVAL_MS, () => this.#probe(client))
    onReceiving()
    onSending()
  }

  #probe(client: pg.Client): void {
    this.#query(client, 'SELECT 1').then(
      () => {
        if (client === this.#client) {
          this.#timer = this.#options.clock.after(PROBE_INTERVAL_MS, () => this.#probe(client))
        }
      },
      (error: unknown) => this.#disconnect(client, error),
    )
  }

  #query(client: pg.Client, query: string, values: string[] = []): Promise<unknown> {
    return within(this.#options.clock, this.#silenceMs, client.query(query, values))
  }

  /** Does nothing if the client was already replaced. */
  #disconnect(client: pg.Client, error: unknown): void {
    if (client !== this.#client || this.#isClosed) return
    this.#client = null
    this.#timer?.cancel()
    void client.end().catch(() => undefined)
    this.#retry(error)
  }

  #retry(error: unknown): void {
    if (this.#isClosed) return
    if (!this.#isOutageLogged)
      this.#options.log.fault(
        'invalidation',
        'cannot receive cache invalidations from other instances',
        error,
      )
    this.#isOutageLogged = true
    const delayMs = Math.min(RETRY_DELAY_MS * 2 ** this.#attempts++, RETRY_DELAY_MAX_MS)
    this.#timer = this.#options.clock.after(delayMs, () => void this.#connect())
  }
}

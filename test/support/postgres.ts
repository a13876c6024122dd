/**
 * A real PostgreSQL for tests: each test gets its own schema, which is dropped at the end. `TEST_POSTGRES_URL` names a
 * server other than the local one.
 */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'
import pg from 'pg'
import type { Test } from 'tap'
import { freePort } from './free-port.ts'

export const POSTGRES_SERVER = process.env['TEST_POSTGRES_URL'] ?? 'postgres://root@127.0.0.1:5432/test'

/** For the `skip` of tests: why there is no PostgreSQL. False when there is one, and in CI, where there has to be. */
export async function withoutPostgres(): Promise<string | false> {
  if (process.env['CI'] === 'true') return false
  const client = new pg.Client({ connectionString: POSTGRES_SERVER, connectionTimeoutMillis: 10_000 })
  try {
    await client.connect()
    return false
  } catch {
    return 'no PostgreSQL answers'
  } finally {
    await client.end()
  }
}

export interface PostgresSchema {
  /** For `openStore`. Tables are in an empty schema of this test. */
  readonly url: string
  /** How the server names connections of that URL. */
  readonly application: string
  /** A connection of the test's own, in the same schema. */
  readonly client: pg.Client
  /** Keeps a table from all others until what it returns is called. */
  lock(table: string): Promise<() => Promise<void>>
  /** The URL by another way, e.g. through a link. */
  urlAt(port: number): string
  /** Makes the tables as migrations left them. The first call learns how; later ones are cheaper than a new schema. */
  reset(): Promise<void>
}

/**
 * Make it before what uses it: what is torn down later is dropped first.
 * @param durable whether each commit waits for the disk. The server outlives what is tested, so it need not.
 */
export async function postgresSchema(t: Test, durable = false): Promise<PostgresSchema> {
  const name = `sluice_test_${randomBytes(6).toString('hex')}`
  const connected = async (): Promise<pg.Client> => {
    const client = new pg.Client({ connectionString: POSTGRES_SERVER })
    await client.connect()
    await client.query(`set search_path to ${name}`)
    if (!durable) await client.query('set synchronous_commit to off')
    return client
  }
  const client = await connected()
  await client.query(`create schema ${name}`)
  t.teardown(async () => {
    await client.query(`drop schema ${name} cascade`)
    await client.end()
  })
  const url = new URL(POSTGRES_SERVER)
  url.searchParams.set('options', `-c search_path=${name}${durable ? '' : ' -c synchronous_commit=off'}`)
  url.searchParams.set('application_name', name)
  return {
    url: url.href,
    application: name,
    client,
    async lock(table) {
      const holder = await connected()
      await holder.query('begin')
      await holder.query(`lock table ${table}`)
      return () => holder.end()
    },
    urlAt(port) {
      const other = new URL(url)
      other.hostname = '127.0.0.1'
      other.port = String(port)
      return other.href
    },
    reset: resetter(client, name),
  }
}

/** See `PostgresSchema.reset`. */
function resetter(client: pg.Client, schema: string): () => Promise<void> {
  const kept = new Map<string, readonly Readonly<Record<string, unknown>>[]>()
  return async () => {
    if (kept.size === 0) {
      const { rows } = await client.query<{ name: string }>(
        // A table refers to older ones alone.
        `select relname as name from pg_class where relnamespace = to_regnamespace($1) and relkind = 'r'
         and relname not like 'kysely%' order by oid`,
        [schema],
      )
      for (const { name } of rows) kept.set(name, (await client.query(`select * from ${name}`)).rows)
      return
    }
    await client.query(
      [...kept.keys()]
        .toReversed()
        .map(table => `delete from ${table}`)
        .join(';'),
    )
    for (const [table, rows] of kept) {
      for (const row of rows) {
        const places = Object.keys(row).map((_, at) => `$${at + 1}`)
        await client.query(
          `insert into ${table} (${Object.keys(row).join(', ')}) values (${places.join(', ')})`,
          Object.values(row),
        )
      }
    }
  }
}

/** Resolves when so many statements of the schema wait for a lock. */
export async function untilBlocked(
  { client, application }: PostgresSchema,
  statements: number,
): Promise<void> {
  for (;;) {
    const { rows } = await client.query(
      `select 1 from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'`,
      [application],
    )
    if (rows.length >= statements) return
  }
}

/** A network link to the server that can be cut, be slow, go silent and come back. */
export class PostgresLink {
  readonly #sockets = new Set<Socket>()
  #server: Server | null = null
  #silent = false
  /** How much later everything arrives, each way. */
  lateMs = 0
  /** The same at each start. */
  readonly port: number

  private constructor(port: number) {
    this.port = port
  }

  /** Takes a port while nothing listens there yet. */
  static async down(t: Test): Promise<PostgresLink> {
    const link = new PostgresLink(await freePort())
    t.teardown(() => link.cut())
    return link
  }

  static async up(t: Test): Promise<PostgresLink> {
    const link = await PostgresLink.down(t)
    await link.start()
    return link
  }

  async start(): Promise<void> {
    const server = createServer(socket => this.#join(socket))
    this.#server = server
    server.listen(this.port, '127.0.0.1')
    await once(server, 'listening')
  }

  /** Nothing passes any more, connections stay; or all passes again, on new connections. */
  silence(silent: boolean): void {
    this.#silent = silent
    if (silent) for (const socket of this.#sockets) socket.pause()
  }

  /** Closes all connections; new ones are refused. */
  async cut(): Promise<void> {
    const server = this.#server
    this.#server = null
    for (const socket of this.#sockets) socket.destroy()
    if (server === null) return
    server.close()
    await once(server, 'close')
  }

  #join(socket: Socket): void {
    const { hostname, port } = new URL(POSTGRES_SERVER)
    const upstream = connect(Number(port || '5432'), hostname)
    for (const [one, other] of [
      [socket, upstream],
      [upstream, socket],
    ] as const) {
      this.#sockets.add(one)
      one.on('error', () => other.destroy())
      one.on('close', () => {
        this.#sockets.delete(one)
        other.destroy()
      })
      one.on('data', chunk => {
        if (this.#silent) return
        if (this.lateMs === 0) other.write(chunk)
        else setTimeout(() => other.destroyed || other.write(chunk), this.lateMs)
      })
    }
  }
}

/**
 * PostgreSQL through `pg`. Each thread has a small pool. A database that is away costs a verb a short wait and an
 * error, never the process; when it is back the next verb connects anew.
 */
import {
  PostgresAdapter,
  type PostgresCursor,
  PostgresDialect,
  type PostgresPool,
  type PostgresPoolClient,
  type PostgresQueryResult,
  type QueryExecutorProvider,
  sql,
} from 'kysely'
import pg, { type PoolClient, type PoolConfig } from 'pg'
import type { Engine, Serialize } from './engine.ts'
import { migrate } from './migrations/migrate.ts'
import { codeOf, StoreError } from './store.ts'

/** For each thread. A server takes 100 by default, which is to be enough for a few nodes. */
const POOL_CONNECTIONS = 4
/** Also how long a verb waits for a free connection. */
const CONNECT_MS = 2_000
/** Far above what any query of ours takes; the server gives up then. */
const STATEMENT_MS = 10_000
/** A bit later we do, without the server: the network may be gone. */
const ANSWER_MS = 11_000
/** A process that stopped in the middle of a transaction must not hold its locks for long. */
const IDLE_TRANSACTION_MS = 10_000
/** Migrations wait for those of other processes. Longer than any of ours takes. */
const MIGRATION_MS = 60_000
const IDLE_MS = 30_000
/** How long a pool that is closed waits for what runs. */
const END_MS = 1_000
/** Connections are renewed, so that a database that moved is found where it is now. */
const LIFETIME_SECONDS = 1_800
const KEEPALIVE_MS = 10_000

/** States that the server tells and that stay with the connection: it shuts down, or it became a read-only replica. */
const LOST = /^(?:08|57P0)|^25006$/
/** The server gave a statement up, because it took too long or somebody told it to. The connection goes on. */
const GIVEN_UP = '57014'
const DUPLICATE = '23505'
/** What an operator can do something about, by the server's code. */
const REASONS: Readonly<Record<string, string>> = {
  '28000': 'not allowed to log in',
  '28P01': 'wrong user or password',
  '3D000': 'no such database',
  '42501': 'missing permissions',
  '53300': 'too many connections',
  '57P03': 'it is starting up',
  [GIVEN_UP]: 'a statement was given up',
}

/**
 * The engine of a database that is connected to when it is needed.
 * @throws StoreError when the URL is none that `pg` understands.
 */
export function openPostgres(url: string): Engine {
  const everyday: PoolConfig = {
    ...connecting(url),
    max: POOL_CONNECTIONS,
    idleTimeoutMillis: IDLE_MS,
    maxLifetimeSeconds: LIFETIME_SECONDS,
    statement_timeout: STATEMENT_MS,
    query_timeout: ANSWER_MS,
  }
  const pool = poolOf(everyday)
  const clients = new Set<pg.PoolClient>()
  pool.on('connect', client => void clients.add(client))
  pool.on('remove', client => void clients.delete(client))
  let closing: Promise<void> | null = null
  return {
    name: 'postgres',
    dialect: new PostgresDialect({
      // Asked again with the next verb when it failed.
      async pool() {
        if (closing !== null) throw new StoreError('storage: is closed')
        await bringUp(url)
        return new Leases(pool)
      },
    }),
    serialize,
    isDuplicate: error => codeOf(error) === DUPLICATE,
    // Old versions of rows are the server's: it overwrites them when it vacuums, and secrets in them are sealed.
    purge: async () => undefined,
    close() {
      closing ??= endPool(pool, clients)
      return closing
    },
  }
}

/** Within a transaction, so that it holds behind a connection pooler too. */
const serialize: Serialize = async (transaction, name) => {
  await sql`select pg_advisory_xact_lock(hashtextextended(${name}, 0))`.execute(transaction)
}

/** Runs migrations on a connection of their own, whose statements may take longer. */
async function bringUp(url: string): Promise<void> {
  const pool = poolOf({ ...connecting(url), max: 1, query_timeout: MIGRATION_MS })
  try {
    await migrate(new MigrationDialect({ pool: new Leases(pool) }), serialize, currentSchema)
  } catch (error) {
    throw unreachable(error)
  } finally {
    await pool.end()
  }
}

/** @throws StoreError */
async function currentSchema(transaction: QueryExecutorProvider): Promise<string> {
  const { rows } = await sql<{ name: string | null }>`select current_schema() as name`.execute(transaction)
  const name = rows[0]?.name
  if (typeof name === 'string') return name
  throw new StoreError('storage: PostgreSQL cannot be used (no schema of the search path exists)', 'schema')
}

/** @throws StoreError */
function connecting(url: string): PoolConfig {
  const config: PoolConfig = {
    connectionString: url,
    application_name: 'sluice',
    connectionTimeoutMillis: CONNECT_MS,
    idle_in_transaction_session_timeout: IDLE_TRANSACTION_MS,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEPALIVE_MS,
  }
  try {
    // Reads the URL, and the certificates it names; connects nowhere.
    new pg.Client(config)
  } catch (error) {
    // Without the cause, which may quote the URL.
    const code = codeOf(error)
    throw new StoreError(`storage: the PostgreSQL URL cannot be used (${code ?? 'unknown reason'})`, code)
  }
  return config
}

function poolOf(config: PoolConfig): pg.Pool {
  const pool = new pg.Pool(config)
  // Without a listener a broken connection would end the process. Nothing is to be done: the pool drops it when it is
  // idle, and a query on it fails by itself.
  const ignore = (): void => undefined
  pool.on('error', ignore)
  pool.on('connect', client => void client.on('error', ignore))
  return pool
}

/** Without its causes: they may name parts of the URL, which a password with odd characters can end up in. */
function unreachable(error: unknown): StoreError {
  if (error instanceof StoreError) return error
  const code = codeOf(error)
  const reason = code === null ? 'the connection failed' : (REASONS[code] ?? code)
  return new StoreError(`storage: PostgreSQL cannot be used (${reason})`, code)
}

interface Connection {
  end(): Promise<void>
  /** It does not keep its thread alive any more. */
  unref(): void
}

/** Lets what runs finish. A server that hangs must hold up neither the caller nor the end of its thread. */
async function endPool(pool: pg.Pool, clients: ReadonlySet<pg.PoolClient>): Promise<void> {
  const late = Promise.withResolvers<void>()
  const timer = setTimeout(() => late.resolve(), END_MS)
  await Promise.race([pool.end(), late.promise])
  clearTimeout(timer)
  for (const client of clients) {
    // The types leave out what every client has.
    const connection = client as unknown as Connection
    // With a query still under way it is cut off; otherwise goodbye was said, and nobody waits for an answer.
    connection.end().catch(() => undefined)
    connection.unref()
  }
}

/** A pool that does not get back what is broken. */
class Leases implements PostgresPool {
  readonly options = {}
  readonly #pool: pg.Pool

  constructor(pool: pg.Pool) {
    this.#pool = pool
  }

  async connect(): Promise<PostgresPoolClient> {
    try {
      return new Lease(await this.#pool.connect())
    } catch (error) {
      throw unreachable(error)
    }
  }

  async end(): Promise<void> {
    // The engine ends it.
  }
}

class Lease implements PostgresPoolClient {
  readonly #client: PoolClient
  #broken: StoreError | null = null

  constructor(client: PoolClient) {
    this.#client = client
  }

  query<Row>(text: string, parameters: readonly unknown[]): Promise<PostgresQueryResult<Row>>
  query<Row>(cursor: PostgresCursor<Row>): PostgresCursor<Row>
  query<Row>(
    text: string | PostgresCursor<Row>,
    parameters: readonly unknown[] = [],
  ): Promise<PostgresQueryResult<Row>> | PostgresCursor<Row> {
    if (typeof text !== 'string') throw new TypeError('cursors are not used')
    return this.#query(text, parameters)
  }

  async #query<Row>(text: string, parameters: readonly unknown[]): Promise<PostgresQueryResult<Row>> {
    // A rollback would wait behind the query that gets no answer.
    if (this.#broken !== null) throw this.#broken
    try {
      return (await this.#client.query(text, [...parameters])) as unknown as PostgresQueryResult<Row>
    } catch (error) {
      if (codeOf(error) === GIVEN_UP) throw unreachable(error)
      if (error instanceof pg.DatabaseError && !LOST.test(error.code ?? '')) throw error
      this.#broken = unreachable(error)
      throw this.#broken
    }
  }

  release(discard = false): void {
    this.#client.release(discard || this.#broken !== null)
  }
}

/** Migrations run in one transaction that holds a lock of ours already. */
class MigrationDialect extends PostgresDialect {
  override createAdapter(): PostgresAdapter {
    return new UnlockedAdapter()
  }
}

class UnlockedAdapter extends PostgresAdapter {
  override async acquireMigrationLock(): Promise<void> {
    // The lock of the library would have to be released within the transaction, which hides the error of one that
    // failed.
  }

  override async releaseMigrationLock(): Promise<void> {
    // As above.
  }
}

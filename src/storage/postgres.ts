/**
 * The engine for PostgreSQL, through `pg`. Each thread has a small pool. While the database is unavailable, a method
 * waits briefly and then rejects; the next call connects again.
 */
import {
  type DatabaseIntrospector,
  type Kysely,
  PostgresAdapter,
  type PostgresCursor,
  PostgresDialect,
  type PostgresPool,
  type PostgresPoolClient,
  type PostgresQueryResult,
  type QueryExecutorProvider,
  type SchemaMetadata,
  sql,
  type TableMetadata,
} from 'kysely'
import pg, { type PoolClient, type PoolConfig } from 'pg'
import type { Engine, Serialize } from './engine.ts'
import { migrate } from './migrations/migrate.ts'
import { codeOf, StoreError } from './store-error.ts'

/** Connections of one store. A serve thread has one store, the main thread three; a server allows 100 by default. */
const POOL_CONNECTIONS = 4
/** Timeout of connecting, and of waiting for a free connection. */
const CONNECT_TIMEOUT_MS = 2_000
/** Statement timeout at the server, far above the time of any query. */
const STATEMENT_TIMEOUT_MS = 10_000
/** Timeout of the client, slightly longer, in case the network fails. */
const ANSWER_TIMEOUT_MS = 11_000
/** Ends the transaction of a process that stopped inside it, so that its locks are released. */
const IDLE_TRANSACTION_TIMEOUT_MS = 10_000
/** Migrations wait for migrations of other processes. Longer than any migration takes. */
const MIGRATION_TIMEOUT_MS = 60_000
const IDLE_TIMEOUT_MS = 30_000
/** Time that a closing pool waits for running queries. */
const END_TIMEOUT_MS = 1_000
/** Connections are renewed, so that they follow a database that moved to another address. */
const LIFETIME_SECONDS = 1_800
const KEEPALIVE_DELAY_MS = 10_000

/** SQL states after which a connection is useless: the server shuts down, or became a read-only replica. */
const LOST_STATES = /^(?:08|57P0)|^25006$/
const READ_ONLY_STATE = '25006'
/** The server cancelled a statement, after a timeout or on request. */
const CANCELLED_STATE = '57014'
/**
 * SQL states of temporary faults, which do not depend on the statement: another transaction was in the way (class 40,
 * 55P03), the server has no disk or memory left (53), or its system fails (58). The connection stays usable.
 */
const TEMPORARY_STATES = /^(?:40|53|58)|^55P03$|^57014$/
const DUPLICATE_STATE = '23505'
/** Reasons that an operator can act on, by SQL state. */
const STATE_REASONS: Readonly<Record<string, string>> = {
  '28000': 'the user may not log in; the user is named in DATABASE_URL or storage.url',
  '28P01': 'wrong user or password; they are in DATABASE_URL or storage.url',
  '3D000': 'no such database; create it, or name another in DATABASE_URL or storage.url',
  '42501': 'the user lacks permissions; it must own the schema',
  [READ_ONLY_STATE]: 'it is read-only; a replica may have taken its place',
  '53100': 'its disk is full',
  '53300': 'too many connections',
  '57P03': 'it is starting up',
  [CANCELLED_STATE]: 'a statement was cancelled',
}

/**
 * Creates the engine. It connects when it is first used.
 * @throws StoreError if `pg` does not understand the URL.
 */
export function openPostgres(url: string): Engine {
  const everyday: PoolConfig = {
    ...connectionConfig(url),
    max: POOL_CONNECTIONS,
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
    maxLifetimeSeconds: LIFETIME_SECONDS,
    statement_timeout: STATEMENT_TIMEOUT_MS,
    query_timeout: ANSWER_TIMEOUT_MS,
  }
  const pool = poolOf(everyday)
  const clients = new Set<pg.PoolClient>()
  pool.on('connect', client => void clients.add(client))
  pool.on('remove', client => void clients.delete(client))
  let closing: Promise<void> | null = null
  return {
    name: 'postgres',
    dialect: new PostgresDialect({
      // After a failure, the next method calls this again.
      async pool() {
        if (closing !== null) throw new StoreError('storage: closed')
        await migrateSchema(url)
        return new CheckedPool(pool)
      },
    }),
    serialize,
    relax: async (db, work) =>
      await db.transaction().execute(async transaction => {
        await sql`set local synchronous_commit = off`.execute(transaction)
        return await work(transaction)
      }),
    runEach: null,
    locksRows: true,
    isDuplicate: error => codeOf(error) === DUPLICATE_STATE,
    // The server overwrites old row versions when it vacuums. Secrets in them are encrypted.
    purge: async () => undefined,
    async probe(db) {
      const { rows } = await sql<{ state: string }>`
        select current_setting('transaction_read_only') as state
      `.execute(db)
      if (rows[0]?.state === 'on') throw new StoreError(unusableMessage(READ_ONLY_STATE), READ_ONLY_STATE)
    },
    close() {
      closing ??= endPool(pool, clients)
      return closing
    },
  }
}

/** Takes the lock within the transaction, so that it works behind a connection pooler too. */
const serialize: Serialize = async (transaction, name) => {
  await sql`select pg_advisory_xact_lock(hashtextextended(${name}, 0))`.execute(transaction)
}

/** Runs migrations on a separate connection, whose statements may take longer. */
async function migrateSchema(url: string): Promise<void> {
  const pool = poolOf({ ...connectionConfig(url), max: 1, query_timeout: MIGRATION_TIMEOUT_MS })
  try {
    await migrate(new MigrationDialect({ pool: new CheckedPool(pool) }), serialize, currentSchema)
  } catch (error) {
    throw storeErrorFor(error)
  } finally {
    await pool.end()
  }
}

/** @throws StoreError */
async function currentSchema(transaction: QueryExecutorProvider): Promise<string> {
  const { rows } = await sql<{ name: string | null }>`select current_schema() as name`.execute(transaction)
  const name = rows[0]?.name
  if (typeof name === 'string') return name
  throw new StoreError(
    'storage: PostgreSQL cannot be used (no schema of the search path exists; create one)',
    'schema',
  )
}

/** @throws StoreError */
function connectionConfig(url: string): PoolConfig {
  const config: PoolConfig = {
    connectionString: url,
    application_name: 'sluice',
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    idle_in_transaction_session_timeout: IDLE_TRANSACTION_TIMEOUT_MS,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEPALIVE_DELAY_MS,
  }
  try {
    // Parses the URL and reads the certificates it names, without connecting.
    new pg.Client(config)
  } catch (error) {
    // The cause is left out because it may quote the URL.
    const code = codeOf(error)
    throw new StoreError(`storage: the PostgreSQL URL cannot be used (${code ?? 'unknown reason'})`, code)
  }
  return config
}

function poolOf(config: PoolConfig): pg.Pool {
  const pool = new pg.Pool(config)
  // Without a listener a broken connection would end the process. The pool drops a broken idle connection itself, and a
  // query on one fails.
  const ignore = (): void => undefined
  pool.on('error', ignore)
  pool.on('connect', client => void client.on('error', ignore))
  return pool
}

/** The error without its causes, which may contain parts of the URL and so of a password. */
function storeErrorFor(error: unknown): StoreError {
  if (error instanceof StoreError) return error
  const code = codeOf(error)
  return new StoreError(unusableMessage(code), code)
}

function unusableMessage(code: string | null): string {
  const reason = code === null ? 'the connection failed' : (STATE_REASONS[code] ?? code)
  return `storage: PostgreSQL cannot be used (${reason})`
}

interface Connection {
  end(): Promise<void>
  /** Lets the process exit although the connection is open. */
  unref(): void
}

/** Lets running queries finish, for a limited time, so that a hanging server does not delay the end of the thread. */
async function endPool(pool: pg.Pool, clients: ReadonlySet<pg.PoolClient>): Promise<void> {
  const timeout = Promise.withResolvers<void>()
  const timer = setTimeout(() => timeout.resolve(), END_TIMEOUT_MS)
  await Promise.race([pool.end(), timeout.promise])
  clearTimeout(timer)
  for (const client of clients) {
    // The types lack this property, which every client has.
    const connection = client as unknown as Connection
    // This interrupts a running query. An idle connection was already closed cleanly and expects no answer.
    connection.end().catch(() => undefined)
    connection.unref()
  }
}

/** A pool whose broken connections are discarded. */
class CheckedPool implements PostgresPool {
  readonly options = {}
  readonly #pool: pg.Pool

  constructor(pool: pg.Pool) {
    this.#pool = pool
  }

  async connect(): Promise<PostgresPoolClient> {
    try {
      return new CheckedClient(await this.#pool.connect())
    } catch (error) {
      throw storeErrorFor(error)
    }
  }

  async end(): Promise<void> {
    // The pool is ended by the engine.
  }
}

class CheckedClient implements PostgresPoolClient {
  readonly #client: PoolClient
  #fault: StoreError | null = null

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
    // A rollback would wait for the unanswered query.
    if (this.#fault !== null) throw this.#fault
    try {
      return (await this.#client.query(text, [...parameters])) as unknown as PostgresQueryResult<Row>
    } catch (error) {
      if (TEMPORARY_STATES.test(codeOf(error) ?? '')) throw storeErrorFor(error)
      if (error instanceof pg.DatabaseError && !LOST_STATES.test(error.code ?? '')) throw error
      this.#fault = storeErrorFor(error)
      throw this.#fault
    }
  }

  release(discard = false): void {
    this.#client.release(discard || this.#fault !== null)
  }
}

/** A dialect for migrations, which run in one transaction that already has the gateway's own lock. */
class MigrationDialect extends PostgresDialect {
  override createAdapter(): PostgresAdapter {
    return new UnlockedAdapter()
  }

  override createIntrospector(db: Kysely<unknown>): DatabaseIntrospector {
    return new CurrentSchemaIntrospector(db)
  }
}

/**
 * Looks only at the current schema. Kysely's own introspector reads all schemas of the database, and fails if one of
 * them is dropped meanwhile (3F000).
 */
class CurrentSchemaIntrospector implements DatabaseIntrospector {
  readonly #db: Kysely<unknown>

  constructor(db: Kysely<unknown>) {
    this.#db = db
  }

  async getSchemas(): Promise<SchemaMetadata[]> {
    const { rows } = await sql<SchemaMetadata>`select current_schema() as name`.execute(this.#db)
    return rows
  }

  async getTables(): Promise<TableMetadata[]> {
    const { rows } = await sql<{ name: string; schema: string }>`
      select relname as name, current_schema() as schema from pg_catalog.pg_class
      where relnamespace = to_regnamespace(quote_ident(current_schema())) and relkind in ('r', 'p')
    `.execute(this.#db)
    return rows.map(row => ({ ...row, isView: false, isForeign: false, columns: [] }))
  }

  async getMetadata(): Promise<{ tables: TableMetadata[] }> {
    return { tables: await this.getTables() }
  }
}

class UnlockedAdapter extends PostgresAdapter {
  override async acquireMigrationLock(): Promise<void> {
    // Nothing to do: Kysely would release its lock within the transaction, which hides the error of a failed migration.
  }

  override async releaseMigrationLock(): Promise<void> {
    // Nothing to do, as in `acquireMigrationLock`.
  }
}

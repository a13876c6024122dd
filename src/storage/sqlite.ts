/**
 * The engine for SQLite, through `node:sqlite`. One handle per thread. Statements are synchronous and take
 * microseconds. Waiting for another writer could take long, so a statement on a busy database is retried later and
 * never blocks the thread.
 */
import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite'
import { setTimeout as delay } from 'node:timers/promises'
import {
  CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  type QueryResult,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
  sql,
} from 'kysely'
import { LRUCache } from 'lru-cache'
import { isError } from '../base/errors.ts'
import type { Engine } from './engine.ts'
import { StoreError } from './store-error.ts'

const SQLITE_BUSY = 5
/** Error codes of a violated UNIQUE constraint or primary key. */
const SQLITE_DUPLICATES: readonly unknown[] = [2067, 1555]
/** Limit for retries of a statement while another process writes; far longer than any write. */
const BUSY_LIMIT_MS = 10_000
const BUSY_INTERVAL_MS = 5
/** Busy timeout while opening: at the start of the process, blocking is harmless. */
const OPEN_BUSY_TIMEOUT_MS = 5000
/**
 * The newest migration and the number of migrations, with which a start recognizes that there is nothing to migrate. A
 * test compares both with the table.
 */
export const NEWEST_MIGRATION = { name: '0008-shadows', number: 8 } as const
/**
 * Maximum of cached statements, more than the code has queries. Generated parameter lists may exceed it, which costs
 * time.
 */
const MAX_STATEMENTS = 256

/**
 * Opens or creates the database at the path, or a new one in memory for `:memory:`.
 * @throws the error of `node:sqlite`, with `errcode` if the library reported one.
 */
export function openSqlite(path: string): Engine {
  const database = new DatabaseSync(path, {
    timeout: OPEN_BUSY_TIMEOUT_MS,
    enableForeignKeyConstraints: true,
  })
  try {
    // FULL: a promise of durability must survive a power cut. WAL: readers never wait for a writer. secure_delete
    // overwrites deleted key material with zeros.
    database.exec(
      'PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON; PRAGMA busy_timeout = 0',
    )
  } catch (error) {
    database.close()
    throw error
  }
  const repeatedStatements = new Map<string, StatementSync>()
  return {
    name: 'sqlite',
    dialect: sqliteDialect(database),
    // Nothing to do: every transaction begins as the only writer.
    serialize: async () => undefined,
    relax: async (db, work) =>
      await db.connection().execute(async connection => {
        // Within a transaction it cannot be changed any more.
        await sql`pragma synchronous = normal`.execute(connection)
        try {
          return await connection.transaction().execute(work)
        } finally {
          await sql`pragma synchronous = full`.execute(connection)
        }
      }),
    runEach(sql, rows) {
      try {
        const statement = repeatedStatements.get(sql) ?? database.prepare(sql)
        repeatedStatements.set(sql, statement)
        return rows.map(row => Number(statement.run(...row).changes))
      } catch (error) {
        throw storeErrorFor(error)
      }
    },
    locksRows: false,
    isDuplicate: error => SQLITE_DUPLICATES.includes(errorCode(error)),
    async purge(db) {
      if (path === ':memory:') return
      try {
        // The write-ahead log still contains the old pages. Concurrent readers or writers limit this; then a later run,
        // or closing the last handle, empties it.
        await sql`pragma wal_checkpoint(truncate)`.execute(db)
      } catch {
        // The deletion itself is done. If the disk fails, the next statement reports it.
      }
    },
    async probe(db) {
      await sql`select 1 from api_keys limit 1`.execute(db)
    },
    async close() {
      if (database.isOpen) database.close()
    },
  }
}

/** True if another connection has locked the database. */
export function isBusy(error: unknown): boolean {
  const code = errorCode(error)
  // The low byte of an extended code is its kind.
  return typeof code === 'number' && (code & 0xff) === SQLITE_BUSY
}

/** Names of the errors after which the file cannot be used, by code. */
const UNUSABLE_FILE_ERRORS: Readonly<Record<number, string>> = {
  [SQLITE_BUSY]: 'SQLITE_BUSY',
  8: 'SQLITE_READONLY',
  10: 'SQLITE_IOERR',
  11: 'SQLITE_CORRUPT',
  13: 'SQLITE_FULL',
  14: 'SQLITE_CANTOPEN',
  26: 'SQLITE_NOTADB',
}

/** Converts errors after which the file cannot be used to a StoreError; returns others unchanged. */
function storeErrorFor(error: unknown): unknown {
  const code = errorCode(error)
  const name = typeof code === 'number' ? UNUSABLE_FILE_ERRORS[code & 0xff] : undefined
  if (name === undefined) return error
  // The text is one of a fixed list in the library.
  const reason: unknown = Reflect.get(error as Error, 'errstr')
  return new StoreError(`storage: the database cannot be used (${String(reason)})`, name, { cause: error })
}

function errorCode(error: unknown): unknown {
  return isError(error) ? Reflect.get(error, 'errcode') : undefined
}

/** True if exactly the migrations of this version have run. False also if that is unknown. */
function isNewest(database: DatabaseSync): boolean {
  try {
    const newest = database.prepare('select count(*) as count, max(name) as name from kysely_migration').get()
    return newest?.['name'] === NEWEST_MIGRATION.name && newest['count'] === NEWEST_MIGRATION.number
  } catch {
    // The database is new, or another process has locked it.
    return false
  }
}

/** With `isUpToDate` the driver runs no migrations; the migrations themselves use this. */
function sqliteDialect(database: DatabaseSync, isUpToDate = false): Dialect {
  return {
    createAdapter: () => new TransactionalAdapter(),
    createDriver: () => new SqliteHandleDriver(database, isUpToDate),
    createIntrospector: db => new SqliteIntrospector(db),
    createQueryCompiler: () => new SqliteQueryCompiler(),
  }
}

/** SQLite rolls back schema changes like any other, which makes migrations all or nothing. */
class TransactionalAdapter extends SqliteAdapter {
  override get supportsTransactionalDdl(): boolean {
    return true
  }
}

/** A driver with one connection, which Kysely gives to one caller at a time. */
class SqliteHandleDriver implements Driver {
  readonly #database: DatabaseSync
  readonly #connection: SqliteHandle
  readonly #isUpToDate: boolean

  constructor(database: DatabaseSync, isUpToDate: boolean) {
    this.#database = database
    this.#isUpToDate = isUpToDate
    this.#connection = new SqliteHandle(database)
  }

  async init(): Promise<void> {
    // The database is open already, so that a bad path fails in `openSqlite`.
    if (this.#isUpToDate || isNewest(this.#database)) return
    // Usually the schema is up to date, and the code of the migrations need not be loaded.
    const { migrate } = await import('./migrations/migrate.ts')
    await migrate(sqliteDialect(this.#database, true), async () => undefined)
  }

  async acquireConnection(): Promise<DatabaseConnection> {
    return this.#connection
  }

  async beginTransaction(connection: DatabaseConnection): Promise<void> {
    // An old transaction that was never rolled back would lock all other handles.
    this.#rollback()
    // A transaction that begins as a reader cannot wait to become a writer: it fails at once.
    await connection.executeQuery(CompiledQuery.raw('begin immediate'))
  }

  async commitTransaction(connection: DatabaseConnection): Promise<void> {
    await connection.executeQuery(CompiledQuery.raw('commit'))
  }

  async rollbackTransaction(): Promise<void> {
    this.#rollback()
  }

  async releaseConnection(): Promise<void> {
    // The one connection stays open.
  }

  async destroy(): Promise<void> {
    // Two drivers share the handle, and the engine closes it.
  }

  #rollback(): void {
    // A full disk may already have caused a rollback. A second one would hide the first error.
    if (this.#database.isTransaction) this.#database.exec('rollback')
  }
}

interface PreparedStatement {
  readonly statement: StatementSync
  readonly returnsRows: boolean
}

class SqliteHandle implements DatabaseConnection {
  readonly #database: DatabaseSync
  readonly #prepared = new LRUCache<string, PreparedStatement>({ max: MAX_STATEMENTS })

  constructor(database: DatabaseSync) {
    this.#database = database
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    const giveUpMs = performance.now() + BUSY_LIMIT_MS
    for (;;) {
      try {
        return this.#run<R>(query)
      } catch (error) {
        // Inside a transaction a statement must not be repeated; the transaction holds the lock anyway.
        if (!isBusy(error) || this.#database.isTransaction || performance.now() > giveUpMs) {
          throw storeErrorFor(error)
        }
      }
      await delay(BUSY_INTERVAL_MS)
    }
  }

  async *streamQuery<R>(query: CompiledQuery): AsyncIterableIterator<QueryResult<R>> {
    // Not from the cache: running the same statement again would reset this one.
    const statement = this.#database.prepare(query.sql)
    for (const row of statement.iterate(...parametersOf(query))) yield { rows: [row as R] }
  }

  #run<R>(query: CompiledQuery): QueryResult<R> {
    const { statement, returnsRows } = this.#prepare(query.sql)
    if (returnsRows) return { rows: statement.all(...parametersOf(query)) as R[] }
    const { changes, lastInsertRowid } = statement.run(...parametersOf(query))
    return { rows: [], numAffectedRows: BigInt(changes), insertId: BigInt(lastInsertRowid) }
  }

  #prepare(sql: string): PreparedStatement {
    const cached = this.#prepared.get(sql)
    if (cached !== undefined) return cached
    const statement = this.#database.prepare(sql)
    const prepared = { statement, returnsRows: statement.columns().length > 0 }
    this.#prepared.set(sql, prepared)
    return prepared
  }
}

/** The columns of tables.ts contain only values that SQLite accepts. */
function parametersOf(query: CompiledQuery): SQLInputValue[] {
  return [...query.parameters] as SQLInputValue[]
}

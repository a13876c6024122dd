/** The contract of a database engine: everything that differs between the databases behind the Store. */
import type { Dialect, Kysely, QueryExecutorProvider, Transaction } from 'kysely'

/**
 * Serializes transactions of the same name: each waits here until the earlier one has ended.
 * @throws the error of the database.
 */
export type Serialize = (transaction: QueryExecutorProvider, name: string) => Promise<void>

/**
 * Runs a transaction that need not survive a power cut: its commit does not wait for the disk. A later durable commit
 * makes it durable as well.
 * @throws the error of the database.
 */
type Relax = <Tables, T>(
  db: Kysely<Tables>,
  work: (transaction: Transaction<Tables>) => Promise<T>,
) => Promise<T>

/**
 * Runs a statement once for each list of parameters, in the current transaction. Returns how many rows each run has
 * changed.
 * @throws the error of the database.
 */
type RunEach = (statement: string, rows: readonly (readonly (string | number | null)[])[]) => number[]

/** One open database. */
export interface Engine {
  readonly name: 'sqlite' | 'postgres'
  /** The first use of its driver migrates the schema. If that fails, later uses try again. */
  readonly dialect: Dialect
  readonly serialize: Serialize
  readonly relax: Relax
  /** Null: this engine inserts many rows faster from one JSON text. */
  readonly runEach: RunEach | null
  /** True if transactions lock single rows (`for update`); false if each is the only writer anyway. */
  readonly locksRows: boolean
  /** True if a statement failed because a unique value exists already. */
  isDuplicate(error: unknown): boolean
  /** Removes copies of deleted secrets that the engine can reach. Call it after the commit. Never rejects. */
  purge(db: QueryExecutorProvider): Promise<void>
  /** @throws StoreError if the database does not answer, or is read-only */
  probe(db: QueryExecutorProvider): Promise<void>
  /** Closes the database. More calls do nothing. */
  close(): Promise<void>
}

/** The contract of a database engine: everything that differs between the databases behind the Store. */
import type { Dialect, QueryExecutorProvider } from 'kysely'

/**
 * Serializes transactions of the same name: each waits here until the earlier one has ended.
 * @throws the error of the database.
 */
export type Serialize = (transaction: QueryExecutorProvider, name: string) => Promise<void>

/** One open database. */
export interface Engine {
  readonly name: 'sqlite' | 'postgres'
  /** The first use of its driver migrates the schema; later uses try again until that succeeds. */
  readonly dialect: Dialect
  readonly serialize: Serialize
  /** True if a statement failed because a unique value exists already. */
  isDuplicate(error: unknown): boolean
  /** Removes copies of deleted secrets that the engine can reach. Call after the commit. Never rejects. */
  purge(db: QueryExecutorProvider): Promise<void>
  /** Closes the database. May be called many times. */
  close(): Promise<void>
}

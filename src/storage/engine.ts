/** What differs between the databases behind one Store. */
import type { Dialect, QueryExecutorProvider } from 'kysely'

/**
 * Makes callers of the same name take turns, from here to the end of their transactions.
 * @throws what the database threw.
 */
export type Serialize = (transaction: QueryExecutorProvider, name: string) => Promise<void>

export interface Engine {
  readonly name: 'sqlite' | 'postgres'
  /** Its driver brings the schema up when it is first used, again and again until that succeeds. */
  readonly dialect: Dialect
  readonly serialize: Serialize
  /** Whether a statement was refused because a value that has to be unique exists. */
  isDuplicate(error: unknown): boolean
  /** After secrets were deleted and that was committed: removes what copies the engine can reach. Never rejects. */
  purge(db: QueryExecutorProvider): Promise<void>
  /** Lets go of the database. Any number of times. */
  close(): Promise<void>
}

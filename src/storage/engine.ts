/** What differs between the databases behind one Store. */
import type { Dialect } from 'kysely'

export interface Engine {
  readonly name: 'sqlite'
  /** An open database; closed when the Kysely on top of it is destroyed. */
  readonly dialect: Dialect
}

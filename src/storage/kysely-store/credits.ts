/** Credits in the database. */
import { type Kysely, sql } from 'kysely'
import type { CreditStore } from '../store.ts'
import type { Tables } from '../tables.ts'

export function createCreditStore(db: Kysely<Tables>): CreditStore {
  return {
    async add(entry) {
      const result = await db
        .insertInto('credits')
        .values(entry)
        .onConflict(conflict => conflict.columns(['organizationId', 'id']).doNothing())
        .executeTakeFirst()
      return (result.numInsertedOrUpdatedRows ?? 0n) > 0n
    },
    async find(organizationId, id) {
      const row = await db
        .selectFrom('credits')
        .selectAll()
        .where('organizationId', '=', organizationId)
        .where('id', '=', id)
        .executeTakeFirst()
      return row === undefined ? null : { ...row, amount: Number(row.amount) }
    },
    async total(organizationId) {
      const { total } = await db
        .selectFrom('credits')
        // As text: the driver of SQLite refuses to read a sum that a number cannot hold.
        .select(sql<string>`cast(coalesce(sum(amount), 0) as text)`.as('total'))
        .where('organizationId', '=', organizationId)
        .executeTakeFirstOrThrow()
      return Number(total)
    },
  }
}

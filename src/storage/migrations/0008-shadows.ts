/** Shadows of rollouts: their number, their budget, and what a judge said of answers. */
import type { ColumnDefinitionBuilder, Kysely } from 'kysely'
import type { Migration } from 'kysely/migration'

const defaultZero = (column: ColumnDefinitionBuilder) => column.notNull().defaultTo(0)
const NEW_COLUMNS = {
  rollouts: ['shadows', 'shadow_spent', 'shadow_refused'],
  rollout_sums: ['judged', 'unaccepted'],
} as const

export const shadows: Migration = {
  async up(db: Kysely<unknown>) {
    for (const [table, columns] of Object.entries(NEW_COLUMNS))
      for (const column of columns)
        await db.schema.alterTable(table).addColumn(column, 'bigint', defaultZero).execute()
  },
}

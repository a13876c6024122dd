/** Model lists in the database, one row per source. */
import type { Kysely } from 'kysely'
import type { CatalogueStore } from '../catalogue.ts'
import type { Tables } from '../tables.ts'

const INFO_COLUMNS = ['source', 'version', 'models', 'updatedAt'] as const

export function createCatalogueStore(db: Kysely<Tables>): CatalogueStore {
  return {
    async put({ source, ...content }) {
      await db
        .insertInto('catalogueSources')
        .values({ source, ...content })
        .onConflict(conflict => conflict.column('source').doUpdateSet(content))
        .execute()
    },
    async find(source) {
      const row = await db
        .selectFrom('catalogueSources')
        .select([...INFO_COLUMNS, 'facts'])
        .where('source', '=', source)
        .executeTakeFirst()
      return row ?? null
    },
    list: () => db.selectFrom('catalogueSources').select(INFO_COLUMNS).orderBy('source').execute(),
    async remove(source) {
      const { numDeletedRows } = await db
        .deleteFrom('catalogueSources')
        .where('source', '=', source)
        .executeTakeFirst()
      return numDeletedRows > 0n
    },
  }
}

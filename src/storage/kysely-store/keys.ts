/** API keys in the database. */
import type { Kysely, Selectable } from 'kysely'
import type { KeyRecord, KeyStore } from '../store.ts'
import type { ApiKeysTable, Tables } from '../tables.ts'

export function createKeyStore(db: Kysely<Tables>): KeyStore {
  return {
    async find(hash) {
      const row = await db.selectFrom('apiKeys').selectAll().where('hash', '=', hash).executeTakeFirst()
      return row === undefined ? null : recordOf(row)
    },
    async add(record) {
      const result = await db
        .insertInto('apiKeys')
        .values(rowOf(record))
        .onConflict(conflict => conflict.column('hash').doNothing())
        .executeTakeFirst()
      return (result.numInsertedOrUpdatedRows ?? 0n) > 0n
    },
    async list(organizationId) {
      const rows = await db
        .selectFrom('apiKeys')
        .selectAll()
        .where('organizationId', '=', organizationId)
        .orderBy('createdAt', 'desc')
        // Keys of the same millisecond keep one order, so that pages do not overlap.
        .orderBy('hash')
        .execute()
      return rows.map(recordOf)
    },
    async count() {
      const { count } = await db
        .selectFrom('apiKeys')
        .select(expression => expression.fn.countAll<number | bigint | string>().as('count'))
        .executeTakeFirstOrThrow()
      return Number(count)
    },
  }
}

function rowOf(record: KeyRecord): Selectable<ApiKeysTable> {
  const { hash, kind, name, label, organizationId, workspaceId, disabled, expiresAt, createdAt, updatedAt } =
    record
  return {
    hash,
    kind,
    name,
    label,
    organizationId,
    workspaceId,
    disabled: disabled ? 1 : 0,
    expiresAt,
    createdAt,
    updatedAt,
  }
}

function recordOf(row: Selectable<ApiKeysTable>): KeyRecord {
  return { ...row, disabled: row.disabled !== 0 }
}

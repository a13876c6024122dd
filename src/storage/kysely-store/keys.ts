/** API keys in the database. */
import type { Kysely, Selectable } from 'kysely'
import type { KeyAdministration, KeyRecord, KeyStore } from '../store.ts'
import type { ApiKeysTable, Tables } from '../tables.ts'
import { COUNTED, flag, inTransaction, pageOf } from './rows.ts'

type KeyRow = Selectable<ApiKeysTable>
/** Columns with required values. */
type Matching = Partial<Pick<KeyRow, 'workspaceId' | 'disabled'>>

export function createKeyStore(db: Kysely<Tables>): KeyStore & KeyAdministration {
  const keysOf = (organizationId: string, matching: Matching = {}) =>
    db.selectFrom('apiKeys').where(where => where.and({ organizationId, ...matching }))
  /** Newest first; keys of the same millisecond keep one order, so that pages do not overlap. */
  const listed = (organizationId: string, matching?: Matching) =>
    keysOf(organizationId, matching).selectAll().orderBy('createdAt', 'desc').orderBy('hash')

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
      return (await listed(organizationId).execute()).map(recordOf)
    },
    async count() {
      const { counted } = await db.selectFrom('apiKeys').select(COUNTED).executeTakeFirstOrThrow()
      return Number(counted)
    },
    async wasRemoved(hash) {
      const row = await db
        .selectFrom('removedKeys')
        .select('hash')
        .where('hash', '=', hash)
        .executeTakeFirst()
      return row !== undefined
    },
    async page({ organizationId, workspaceId, includeDisabled }, page) {
      const matching = {
        ...(workspaceId === undefined ? {} : { workspaceId }),
        ...(includeDisabled ? {} : { disabled: 0 }),
      }
      const counting = keysOf(organizationId, matching).select(COUNTED)
      return await pageOf(listed(organizationId, matching), counting, page, recordOf)
    },
    async findIn(organizationId, hash) {
      const row = await keysOf(organizationId).where('hash', '=', hash).selectAll().executeTakeFirst()
      return row === undefined ? null : recordOf(row)
    },
    async change(organizationId, hash, change, updatedAt) {
      const { name, disabled, expiresAt, limit, limitReset, includeByokInLimit } = change
      const row = await db
        .updateTable('apiKeys')
        .set({
          name,
          disabled: flag(disabled),
          expiresAt,
          spendLimit: limit,
          limitReset,
          includeByokInLimit: flag(includeByokInLimit),
          updatedAt,
        })
        .where('organizationId', '=', organizationId)
        .where('hash', '=', hash)
        .returningAll()
        .executeTakeFirst()
      return row === undefined ? null : recordOf(row)
    },
    async remove(organizationId, hash) {
      return await inTransaction(db, async transaction => {
        const { numDeletedRows } = await transaction
          .deleteFrom('apiKeys')
          .where('organizationId', '=', organizationId)
          .where('hash', '=', hash)
          .executeTakeFirst()
        if (numDeletedRows === 0n) return false
        await transaction
          .insertInto('removedKeys')
          .values({ hash })
          .onConflict(conflict => conflict.column('hash').doNothing())
          .execute()
        return true
      })
    },
    async known(organizationId, hashes, workspaceId) {
      if (hashes.length === 0) return new Set()
      const matching = workspaceId === undefined ? {} : { workspaceId }
      const rows = await keysOf(organizationId, matching).where('hash', 'in', hashes).select('hash').execute()
      return new Set(rows.map(row => row.hash))
    },
  }
}

function rowOf({ limit, disabled, includeByokInLimit, ...same }: KeyRecord): KeyRow {
  return {
    ...same,
    spendLimit: limit,
    disabled: flag(disabled),
    includeByokInLimit: flag(includeByokInLimit),
  }
}

function recordOf({ spendLimit, disabled, includeByokInLimit, ...same }: KeyRow): KeyRecord {
  return {
    ...same,
    limit: spendLimit === null ? null : Number(spendLimit),
    disabled: disabled !== 0,
    includeByokInLimit: includeByokInLimit !== 0,
  }
}

/** Organizations' own provider credentials in the database. */
import { type Kysely, type Selectable, sql, type Transaction } from 'kysely'
import type { Engine } from '../engine.ts'
import { ConflictError, type CredentialRecord, type CredentialStore, type SealedSecret } from '../store.ts'
import type { CredentialsTable, Tables } from '../tables.ts'
import { COUNTED, firstOf, flag, inTransaction, pageOf } from './rows.ts'

type CredentialRow = Selectable<CredentialsTable>
/** Columns with required values. */
type Matching = Partial<Pick<CredentialRow, 'id' | 'organizationId' | 'workspaceId' | 'provider'>>

export function createCredentialStore(db: Kysely<Tables>, engine: Engine): CredentialStore {
  const matching = (columns: Matching) => db.selectFrom('credentials').where(where => where.and(columns))
  const listed = (columns: Matching) =>
    matching(columns).selectAll().orderBy('provider').orderBy('sortOrder').orderBy('id')

  return {
    page(filter, page) {
      return pageOf(listed(filter), matching(filter).select(COUNTED), page, recordOf)
    },
    async find(organizationId, id) {
      return await firstOf(matching({ organizationId, id }).selectAll(), recordOf)
    },
    async add(record, most = Number.POSITIVE_INFINITY) {
      const { organizationId, workspaceId, provider } = record
      return await inTransaction(db, async transaction => {
        await engine.serialize(transaction, credentialPlace(organizationId, workspaceId))
        const { counted } = await transaction
          .selectFrom('credentials')
          .select(COUNTED)
          .where(where => where.and({ organizationId, workspaceId }))
          .executeTakeFirstOrThrow()
        if (Number(counted) >= most) throw new ConflictError('workspace_id')
        const { next } = await transaction
          .selectFrom('credentials')
          .select(sql<number>`coalesce(max(sort_order) + 1, 0)`.as('next'))
          .where(where => where.and({ organizationId, workspaceId, provider }))
          .executeTakeFirstOrThrow()
        const added = { ...record, sortOrder: next }
        await transaction.insertInto('credentials').values(rowOf(added)).execute()
        return added
      })
    },
    async change(organizationId, id, change, updatedAt, seen) {
      const { sealed } = change
      const as =
        seen === undefined
          ? {}
          : {
              isRequired: flag(seen.isRequired),
              isFallback: flag(seen.isFallback),
              isByokOnly: flag(seen.isByokOnly),
              declaredRegion: seen.declaredRegion,
              keyRevision: seen.keyRevision,
            }
      const row = await db
        .updateTable('credentials')
        .set({
          name: change.name,
          label: change.label,
          ...(sealed === undefined ? {} : sealColumns(sealed)),
          keyRevision: change.keyRevision,
          disabled: flag(change.disabled),
          isRequired: flag(change.isRequired),
          isFallback: flag(change.isFallback),
          isByokOnly: flag(change.isByokOnly),
          sortOrder: change.sortOrder,
          allowedApiKeyHashes: listColumn(change.allowedApiKeyHashes),
          allowedModels: listColumn(change.allowedModels),
          allowedUserIds: listColumn(change.allowedUserIds),
          declaredRegion: change.declaredRegion,
          declaredZdr: flag(change.declaredZdr),
          updatedAt,
        })
        .where(where => where.and({ organizationId, id, ...as }))
        .returningAll()
        .executeTakeFirst()
      if (row === undefined) return null
      if (sealed !== undefined) await engine.purge(db)
      return recordOf(row)
    },
    async remove(organizationId, id) {
      const wiped = await inTransaction(db, transaction =>
        wipeCredentials(transaction, { organizationId, id }),
      )
      if (wiped.length === 0) return false
      await engine.purge(db)
      return true
    },
    async ofWorkspace(organizationId, workspaceId) {
      return (await listed({ organizationId, workspaceId }).execute()).map(recordOf)
    },
    async countByKeyId() {
      const rows = await db
        .selectFrom('credentials')
        .select(['masterKeyId', COUNTED])
        .groupBy('masterKeyId')
        .execute()
      return new Map(rows.map(({ masterKeyId, counted }) => [masterKeyId, Number(counted)]))
    },
    async notWrappedBy(keyId, limit) {
      const rows = await db
        .selectFrom('credentials')
        .selectAll()
        .where('masterKeyId', '!=', keyId)
        .orderBy('id')
        .limit(limit)
        .execute()
      return rows.map(recordOf)
    },
    async reseal(id, before, after) {
      const { numUpdatedRows } = await db
        .updateTable('credentials')
        .set(sealColumns(after))
        .where(where => where.and({ id, ...sealColumns(before) }))
        .executeTakeFirst()
      if (numUpdatedRows === 0n) return false
      // Whoever has the old master key could open what an old page still wraps with it.
      await engine.purge(db)
      return true
    },
  }
}

/** The lock name within which credentials are added one after the other. */
export function credentialPlace(organizationId: string, workspaceId: string): string {
  return JSON.stringify(['credentials', organizationId, workspaceId])
}

/** Overwrites the key material of the matching credentials, then deletes them. Returns their ids. */
export async function wipeCredentials(
  transaction: Transaction<Tables>,
  columns: { readonly organizationId: string } & ({ readonly id: string } | { readonly workspaceId: string }),
): Promise<readonly string[]> {
  await transaction
    .updateTable('credentials')
    .set({ wrapped: '', box: '', label: '' })
    .where(where => where.and(columns))
    .execute()
  const rows = await transaction
    .deleteFrom('credentials')
    .where(where => where.and(columns))
    .returning('id')
    .execute()
  return rows.map(row => row.id)
}

function sealColumns({ v, keyId, wrapped, box }: SealedSecret) {
  return { sealVersion: v, masterKeyId: keyId, wrapped, box }
}

function listColumn(list: readonly string[] | null): string | null
function listColumn(list: readonly string[] | null | undefined): string | null | undefined
function listColumn(list: readonly string[] | null | undefined): string | null | undefined {
  return list ? JSON.stringify(list) : (list as null | undefined)
}

function listOf(column: string | null): readonly string[] | null {
  return column === null ? null : (JSON.parse(column) as readonly string[])
}

function rowOf({ sealed, ...record }: CredentialRecord): CredentialRow {
  return {
    ...record,
    ...sealColumns(sealed),
    disabled: flag(record.disabled),
    isRequired: flag(record.isRequired),
    isFallback: flag(record.isFallback),
    isByokOnly: flag(record.isByokOnly),
    allowedApiKeyHashes: listColumn(record.allowedApiKeyHashes),
    allowedModels: listColumn(record.allowedModels),
    allowedUserIds: listColumn(record.allowedUserIds),
    declaredZdr: flag(record.declaredZdr),
  }
}

function recordOf({ sealVersion, masterKeyId, wrapped, box, ...row }: CredentialRow): CredentialRecord {
  return {
    ...row,
    sealed: { v: sealVersion, keyId: masterKeyId, wrapped, box },
    disabled: row.disabled !== 0,
    isRequired: row.isRequired !== 0,
    isFallback: row.isFallback !== 0,
    isByokOnly: row.isByokOnly !== 0,
    allowedApiKeyHashes: listOf(row.allowedApiKeyHashes),
    allowedModels: listOf(row.allowedModels),
    allowedUserIds: listOf(row.allowedUserIds),
    declaredZdr: row.declaredZdr === null ? null : row.declaredZdr !== 0,
  }
}

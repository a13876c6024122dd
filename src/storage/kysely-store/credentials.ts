/** Organizations' own provider credentials in the database. */
import { type Kysely, type Selectable, sql, type Transaction } from 'kysely'
import { CREDENTIAL, type Credential } from '../../protocol/management/byok.ts'
import type { Engine } from '../engine.ts'
import { ConflictError, type CredentialRecord, type CredentialStore, type SealedSecret } from '../store.ts'
import type { CredentialsTable, Tables } from '../tables.ts'
import { cellsOf, firstOf, inTransaction, pageOf, ROW_COUNT, recordOf } from './rows.ts'

type CredentialRow = Selectable<CredentialsTable>
type ValidatedFields = Pick<
  Credential,
  'isRequired' | 'isFallback' | 'isByokOnly' | 'declaredRegion' | 'keyRevision'
>
/** Columns and the values they must have. */
type Matching = Partial<Pick<CredentialRow, 'id' | 'organizationId' | 'workspaceId' | 'provider'>>

export function createCredentialStore(db: Kysely<Tables>, engine: Engine): CredentialStore {
  const selectMatching = (columns: Matching) => db.selectFrom('credentials').where(eb => eb.and(columns))
  const selectionOf = (columns: Matching) =>
    selectMatching(columns).selectAll().orderBy('provider').orderBy('sortOrder').orderBy('id')

  return {
    page(filter, page) {
      return pageOf(selectionOf(filter), selectMatching(filter).select(ROW_COUNT), page, credentialOf)
    },
    async find(organizationId, id) {
      return await firstOf(selectMatching({ organizationId, id }).selectAll(), credentialOf)
    },
    async add(record, maxCredentials = Number.POSITIVE_INFINITY) {
      const { organizationId, workspaceId, provider } = record
      return await inTransaction(db, async transaction => {
        await engine.serialize(transaction, credentialLock(organizationId, workspaceId))
        const { counted } = await transaction
          .selectFrom('credentials')
          .select(ROW_COUNT)
          .where(eb => eb.and({ organizationId, workspaceId }))
          .executeTakeFirstOrThrow()
        if (Number(counted) >= maxCredentials) throw new ConflictError('workspace_id')
        const { next } = await transaction
          .selectFrom('credentials')
          .select(sql<number>`coalesce(max(sort_order) + 1, 0)`.as('next'))
          .where(eb => eb.and({ organizationId, workspaceId, provider }))
          .executeTakeFirstOrThrow()
        const credential = { ...record, sortOrder: next }
        await transaction
          .insertInto('credentials')
          .values({ ...cellsOf(CREDENTIAL, credential), ...sealColumns(credential.sealed) })
          .execute()
        return credential
      })
    },
    async change(organizationId, id, change, updatedAt, validated) {
      const { sealed } = change
      const expectedCells = validated === undefined ? {} : cellsOf(CREDENTIAL, validatedFields(validated))
      const row = await db
        .updateTable('credentials')
        .set({
          ...cellsOf(CREDENTIAL, change),
          ...(sealed === undefined ? {} : sealColumns(sealed)),
          updatedAt,
        })
        .where(eb => eb.and({ organizationId, id, ...expectedCells }))
        .returningAll()
        .executeTakeFirst()
      if (row === undefined) return null
      if (sealed !== undefined) await engine.purge(db)
      return credentialOf(row)
    },
    async remove(organizationId, id) {
      const wipedIds = await inTransaction(db, transaction =>
        wipeCredentials(transaction, { organizationId, id }),
      )
      if (wipedIds.length === 0) return false
      await engine.purge(db)
      return true
    },
    async ofWorkspace(organizationId, workspaceId) {
      return (await selectionOf({ organizationId, workspaceId }).execute()).map(credentialOf)
    },
    async countByKeyId() {
      const rows = await db
        .selectFrom('credentials')
        .select(['masterKeyId', ROW_COUNT])
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
      return rows.map(credentialOf)
    },
    async reseal(id, before, after) {
      const { numUpdatedRows } = await db
        .updateTable('credentials')
        .set(sealColumns(after))
        .where(eb => eb.and({ id, ...sealColumns(before) }))
        .executeTakeFirst()
      if (numUpdatedRows === 0n) return false
      // Someone with the old master key could decrypt what an old database page still contains.
      await engine.purge(db)
      return true
    },
  }
}

/** The lock name that makes additions of credentials run one after the other. */
export function credentialLock(organizationId: string, workspaceId: string): string {
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
    .where(eb => eb.and(columns))
    .execute()
  const rows = await transaction
    .deleteFrom('credentials')
    .where(eb => eb.and(columns))
    .returning('id')
    .execute()
  return rows.map(row => row.id)
}

function sealColumns({ v, keyId, wrapped, box }: SealedSecret) {
  return { sealVersion: v, masterKeyId: keyId, wrapped, box }
}

/** The fields that a change was validated against. */
function validatedFields({
  isRequired,
  isFallback,
  isByokOnly,
  declaredRegion,
  keyRevision,
}: ValidatedFields): ValidatedFields {
  return { isRequired, isFallback, isByokOnly, declaredRegion, keyRevision }
}

function credentialOf({ sealVersion, masterKeyId, wrapped, box, ...row }: CredentialRow): CredentialRecord {
  return {
    ...recordOf(CREDENTIAL, row),
    sealed: { v: sealVersion, keyId: masterKeyId, wrapped, box },
  }
}

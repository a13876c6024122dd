/** API keys in the database. */
import type { Kysely, Selectable, Transaction } from 'kysely'
import { KEY, type KeyRecord } from '../../protocol/management/keys.ts'
import type { LoopPolicy } from '../../protocol/management/loops.ts'
import type { KeyRates, RateLimit } from '../../protocol/management/rate-limit.ts'
import type { CachePolicy } from '../../protocol/management/response-cache.ts'
import { ConflictError, DEFAULT_WORKSPACE_ID, type KeyAdministration, type KeyStore } from '../store.ts'
import type { ApiKeysTable, Tables } from '../tables.ts'
import { cellsOf, firstOf, inTransaction, pageOf, ROW_COUNT, recordOf } from './rows.ts'

type KeyRow = Selectable<ApiKeysTable>
/** Columns and the values they must have. */
type Matching = Partial<Pick<KeyRow, 'workspaceId' | 'disabled'>>

export function createKeyStore(db: Kysely<Tables>): KeyStore & KeyAdministration {
  const keysOf = (organizationId: string, matching: Matching = {}) =>
    db.selectFrom('apiKeys').where(eb => eb.and({ organizationId, ...matching }))
  /** Newest first. Keys of the same millisecond have a fixed order, so that pages do not overlap. */
  const selectionOf = (organizationId: string, matching?: Matching) =>
    keysOf(organizationId, matching).selectAll().orderBy('createdAt', 'desc').orderBy('hash')

  return {
    async find(hash) {
      const row = await db
        .selectFrom('apiKeys')
        .leftJoin('keySecrets', join => join.on('keySecrets.hash', '=', hash))
        .leftJoin('workspaces', join =>
          join
            .onRef('workspaces.organizationId', '=', 'apiKeys.organizationId')
            .on('workspaces.id', '=', is =>
              is.fn.coalesce('apiKeys.workspaceId', is.val(DEFAULT_WORKSPACE_ID)),
            ),
        )
        .where('apiKeys.hash', '=', where =>
          where.fn.coalesce(
            where.selectFrom('keySecrets as named').select('named.keyHash').where('named.hash', '=', hash),
            where.val(hash),
          ),
        )
        .selectAll('apiKeys')
        .select(['keySecrets.label as secretLabel', 'keySecrets.expiresAt as secretExpiresAt'])
        .select(['workspaces.rateLimit as workspaceRateLimit', 'workspaces.loops as workspaceLoops'])
        .select(['workspaces.cache as workspaceCache', 'workspaces.updatedAt as workspaceUpdatedAt'])
        .select(eb =>
          eb
            .selectFrom('endUsers')
            .whereRef('endUsers.organizationId', '=', 'apiKeys.organizationId')
            .where('endUsers.rateLimit', 'is not', null)
            .select(eb.lit(1).as('one'))
            .limit(1)
            .as('limitsEndUsers'),
        )
        .executeTakeFirst()
      if (row === undefined) return null
      const { secretLabel, secretExpiresAt, limitsEndUsers, ...columns } = row
      const { workspaceRateLimit, workspaceLoops, workspaceCache, workspaceUpdatedAt, ...key } = columns
      const record = keyOf(key)
      const rates = ratesOf(record, workspaceRateLimit, limitsEndUsers !== null)
      const loopPolicy = record.loops ?? (JSON.parse(workspaceLoops ?? 'null') as LoopPolicy | null)
      const policy = record.cache ?? (JSON.parse(workspaceCache ?? 'null') as CachePolicy | null)
      const caching = policy === null ? null : { policy, generation: workspaceUpdatedAt }
      return { ...record, label: secretLabel ?? key.label, secretExpiresAt, rates, loopPolicy, caching }
    },
    async add(record) {
      const { hash } = record
      const secret = await db
        .selectFrom('keySecrets')
        .select('hash')
        .where('hash', '=', hash)
        .executeTakeFirst()
      if (secret !== undefined) return false
      const result = await db
        .insertInto('apiKeys')
        .values(cellsOf(KEY, record))
        .onConflict(conflict => conflict.column('hash').doNothing())
        .executeTakeFirst()
      return (result.numInsertedOrUpdatedRows ?? 0n) > 0n
    },
    async list(organizationId) {
      return (await selectionOf(organizationId).execute()).map(keyOf)
    },
    async count() {
      const { counted } = await db.selectFrom('apiKeys').select(ROW_COUNT).executeTakeFirstOrThrow()
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
    async removeSessions(oldKey) {
      await db
        .deleteFrom('apiKeys')
        .where('identity', 'is not', null)
        .where('expiresAt', '<', oldKey)
        .execute()
    },
    async page({ organizationId, workspaceId, includeDisabled }, page) {
      const columns = {
        ...(workspaceId === undefined ? {} : { workspaceId }),
        ...(includeDisabled ? {} : { disabled: 0 }),
      }
      const countQuery = keysOf(organizationId, columns).select(ROW_COUNT)
      return await pageOf(selectionOf(organizationId, columns), countQuery, page, keyOf)
    },
    async findIn(organizationId, hash) {
      return await firstOf(keysOf(organizationId).where('hash', '=', hash).selectAll(), keyOf)
    },
    async change(organizationId, hash, change, updatedAt) {
      const query = db
        .updateTable('apiKeys')
        .set({ ...cellsOf(KEY, change), updatedAt })
        .where(eb => eb.and({ organizationId, hash }))
        .returningAll()
      return await firstOf(query, keyOf)
    },
    async remove(organizationId, hash) {
      return await inTransaction(db, async transaction => {
        const { numDeletedRows } = await transaction
          .deleteFrom('apiKeys')
          .where(eb => eb.and({ organizationId, hash }))
          .executeTakeFirst()
        if (numDeletedRows === 0n) return false
        const secrets = await transaction
          .deleteFrom('keySecrets')
          .where('keyHash', '=', hash)
          .returning('hash')
          .execute()
        await rememberRemoved(transaction, [{ hash }, ...secrets])
        return true
      })
    },
    async rotate(organizationId, hash, secret, endsAt, maxSecrets) {
      const { createdAt: now, label } = secret
      return await inTransaction(db, async transaction => {
        const updateKey = (fields: Partial<KeyRow>) =>
          transaction
            .updateTable('apiKeys')
            .set(fields)
            .where(eb => eb.and({ organizationId, hash }))
            .returningAll()
            .executeTakeFirst()
        // The row lock makes rotations run one after the other.
        const oldKey = await updateKey({ rotatedAt: now, updatedAt: now })
        if (oldKey === undefined) return null
        await transaction
          .insertInto('keySecrets')
          .values({ hash, keyHash: hash, label: oldKey.label, createdAt: oldKey.createdAt, expiresAt: null })
          .onConflict(conflict => conflict.column('hash').doNothing())
          .execute()
        await rememberRemoved(transaction, await removeExpired(transaction, hash, now))
        await transaction
          .updateTable('keySecrets')
          .set({ expiresAt: endsAt })
          .where('keyHash', '=', hash)
          .where(eb => eb.or([eb('expiresAt', 'is', null), eb('expiresAt', '>', endsAt)]))
          .execute()
        const { counted } = await transaction
          .selectFrom('keySecrets')
          .where('keyHash', '=', hash)
          .where('expiresAt', '>', now)
          .select(ROW_COUNT)
          .executeTakeFirstOrThrow()
        if (Number(counted) >= maxSecrets) throw new ConflictError('secrets')
        await transaction
          .insertInto('keySecrets')
          .values({ ...secret, keyHash: hash, expiresAt: null })
          .execute()
        const row = await updateKey({ label })
        return row === undefined ? null : keyOf(row)
      })
    },
    async secrets(organizationId, hash, now) {
      const key = await keysOf(organizationId)
        .where('hash', '=', hash)
        .select(['label', 'createdAt', 'rotatedAt'])
        .executeTakeFirst()
      if (key === undefined) return []
      if (key.rotatedAt === null)
        return [{ hash, label: key.label, createdAt: key.createdAt, expiresAt: null }]
      return await db
        .selectFrom('keySecrets')
        .where('keyHash', '=', hash)
        .where(eb => eb.or([eb('expiresAt', 'is', null), eb('expiresAt', '>', now)]))
        .select(['hash', 'label', 'createdAt', 'expiresAt'])
        .orderBy('createdAt', 'desc')
        .orderBy('hash')
        .execute()
    },
    async existing(organizationId, hashes, workspaceId) {
      if (hashes.length === 0) return new Set()
      const columns = workspaceId === undefined ? {} : { workspaceId }
      const rows = await keysOf(organizationId, columns).where('hash', 'in', hashes).select('hash').execute()
      return new Set(rows.map(row => row.hash))
    },
  }
}

/** Deletes expired secrets of a key, except the first one, which is the key's id. */
function removeExpired(transaction: Transaction<Tables>, keyHash: string, now: string) {
  return transaction
    .deleteFrom('keySecrets')
    .where('keyHash', '=', keyHash)
    .where('hash', '!=', keyHash)
    .where('expiresAt', '<=', now)
    .returning('hash')
    .execute()
}

async function rememberRemoved(
  transaction: Transaction<Tables>,
  removedHashes: readonly { readonly hash: string }[],
): Promise<void> {
  if (removedHashes.length === 0) return
  await transaction
    .insertInto('removedKeys')
    .values(removedHashes.map(({ hash }) => ({ hash })))
    .onConflict(conflict => conflict.column('hash').doNothing())
    .execute()
}

function keyOf(row: KeyRow): KeyRecord {
  return { ...recordOf(KEY, row), secretExpiresAt: null, rates: null, loopPolicy: null, caching: null }
}

function ratesOf(
  { rateLimit }: KeyRecord,
  workspaceRateLimit: string | null,
  hasEndUserLimits: boolean,
): KeyRates | null {
  if (rateLimit === null && workspaceRateLimit === null && !hasEndUserLimits) return null
  const workspace = workspaceRateLimit === null ? null : (JSON.parse(workspaceRateLimit) as RateLimit)
  return { key: rateLimit, workspace, hasEndUserLimits }
}

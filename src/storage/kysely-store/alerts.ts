/** Alerts and their deliveries in the database, which all instances share. */
import type { Kysely } from 'kysely'
import type { AlertStore, ClaimedDelivery } from '../alerts.ts'
import type { Tables } from '../tables.ts'

export function createAlertStore(db: Kysely<Tables>): AlertStore {
  return {
    async add({ alertId, receiver, type, object, body, createdAt }, nowMs) {
      const { numInsertedOrUpdatedRows = 0n } = await db
        .insertInto('alertDeliveries')
        .values({ alertId, receiver, type, object, body, createdAt, tries: 0, dueMs: nowMs })
        .onConflict(conflict => conflict.columns(['alertId', 'receiver']).doNothing())
        .executeTakeFirst()
      return numInsertedOrUpdatedRows > 0n
    },
    async claim(receivers, { nowMs, latestMs, leaseMs, limit }) {
      if (receivers.length === 0) return []
      const dueRows = await db
        .selectFrom('alertDeliveries')
        .select(['alertId', 'receiver', 'body', 'tries', 'dueMs'])
        .where('receiver', 'in', receivers)
        .where(eb => eb.or([eb('dueMs', '<=', nowMs), eb('dueMs', '>', latestMs)]))
        .orderBy('dueMs')
        .limit(limit)
        .execute()
      const deliveries: ClaimedDelivery[] = []
      for (const { dueMs, tries, ...row } of dueRows) {
        // If another instance read the same row and changed it first, this update changes nothing.
        const { numUpdatedRows } = await db
          .updateTable('alertDeliveries')
          .set({ dueMs: nowMs + leaseMs, tries: tries + 1 })
          .where(eb => eb.and({ alertId: row.alertId, receiver: row.receiver, tries, dueMs }))
          .executeTakeFirst()
        if (numUpdatedRows > 0n) deliveries.push({ ...row, tries })
      }
      return deliveries
    },
    async settle(alertId, receiver, dueMs) {
      await db
        .updateTable('alertDeliveries')
        .set({ dueMs })
        .where(eb => eb.and({ alertId, receiver }))
        .execute()
    },
    async wasRaised(alertId) {
      const query = db.selectFrom('alertDeliveries').select('alertId').where('alertId', '=', alertId)
      return (await query.limit(1).executeTakeFirst()) !== undefined
    },
    async latest(types, object) {
      const row = await db
        .selectFrom('alertDeliveries')
        .select(['alertId as id', 'type'])
        .where('type', 'in', types)
        .where('object', '=', object)
        .orderBy('createdAt', 'desc')
        .limit(1)
        .executeTakeFirst()
      return row ?? null
    },
    expiringKeys: (from, to, maxPerOrganization, limit) =>
      db
        .selectFrom(
          db
            .selectFrom('apiKeys')
            .select(['hash', 'name', 'workspaceId', 'expiresAt'])
            .select(({ fn }) =>
              fn
                .agg<number>('row_number')
                .over(over => over.partitionBy('organizationId').orderBy('expiresAt').orderBy('hash'))
                .as('place'),
            )
            .where('disabled', '=', 0)
            // Keys of console sessions expire by design and cannot be extended.
            .where('identity', 'is', null)
            .where('expiresAt', '>', from)
            .where('expiresAt', '<=', to)
            .as('expiring'),
        )
        .select(['hash', 'name', 'workspaceId', 'expiresAt'])
        .where('place', '<=', maxPerOrganization)
        .orderBy('expiresAt')
        .limit(limit)
        .$narrowType<{ expiresAt: string }>()
        .execute(),
    budgetKeys: (after, limit) =>
      db
        .selectFrom('apiKeys')
        .select(['hash', 'organizationId'])
        .where('spendLimit', '>', 0)
        .where('hash', '>', after)
        .orderBy('hash')
        .limit(limit)
        .execute(),
    async prune(before, limit) {
      const oldRows = await db
        .selectFrom('alertDeliveries')
        .select('alertId')
        .where('createdAt', '<', before)
        .limit(limit)
        .execute()
      if (oldRows.length === 0) return 0
      const { numDeletedRows } = await db
        .deleteFrom('alertDeliveries')
        .where(
          'alertId',
          'in',
          oldRows.map(({ alertId }) => alertId),
        )
        .where('createdAt', '<', before)
        .executeTakeFirst()
      return Number(numDeletedRows)
    },
  }
}

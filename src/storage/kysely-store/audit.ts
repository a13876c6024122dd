/** Audit records in the database. */
import type { Kysely, Selectable } from 'kysely'
import type { AuditEntry, AuditRecord } from '../audit.ts'
import type { AuditStore } from '../store.ts'
import type { AuditRecordsTable, Tables } from '../tables.ts'
import { pageOf, ROW_COUNT } from './rows.ts'

export function createAuditStore(db: Kysely<Tables>): AuditStore {
  return {
    page(organizationId, page) {
      const matched = db.selectFrom('auditRecords').where('organizationId', '=', organizationId)
      const selection = matched.selectAll().orderBy('createdAt', 'desc').orderBy('number', 'desc')
      return pageOf(selection, matched.select(ROW_COUNT), page, recordOf)
    },
    async prune(before, limit) {
      const { numDeletedRows } = await db
        .deleteFrom('auditRecords')
        .where('number', 'in', from =>
          // Numbers rise with time, so the oldest come first.
          from
            .selectFrom('auditRecords as oldest')
            .select('oldest.number')
            .where('oldest.number', 'in', all =>
              all.selectFrom('auditRecords as all').select('all.number').orderBy('all.number').limit(limit),
            )
            .where('oldest.createdAt', '<', before),
        )
        .executeTakeFirst()
      return Number(numDeletedRows)
    },
  }
}

export async function addAuditRecord(db: Kysely<Tables>, { object, ...entry }: AuditEntry): Promise<void> {
  await db
    .insertInto('auditRecords')
    .values({ ...entry, objectKind: object.kind, objectId: object.id, objectName: object.name })
    .execute()
}

function recordOf({
  number,
  objectKind,
  objectId,
  objectName,
  ...fields
}: Selectable<AuditRecordsTable>): AuditRecord {
  return { ...fields, id: String(number), object: { kind: objectKind, id: objectId, name: objectName } }
}

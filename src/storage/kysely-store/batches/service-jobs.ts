/** Provider batch jobs in the database, and their lines. */
import { type Kysely, type Selectable, sql } from 'kysely'
import type { ClaimedLine } from '../../batches.ts'
import type { Engine } from '../../engine.ts'
import { type JobKey, jobOwner, type ServiceJob, type ServiceJobStore } from '../../service-jobs.ts'
import type { ServiceJobsTable, StoredBatchStatus, Tables } from '../../tables.ts'
import { inTransaction } from '../rows.ts'
import { partsOf, rowsThatFit } from './batch-rows.ts'
import { bodiesOf } from './batch-work.ts'
import { changeLines, heldLines } from './line-queue.ts'

/**
 * The time from which lines of a job may be claimed: never, because they are at a service. Each job has a time of its
 * own, so the queue's index finds its lines.
 */
function neverMs({ number }: Pick<ServiceJob, 'number'>): number {
  return Number.MAX_SAFE_INTEGER - number
}
/** Claims are numbered from 1, like claims of lines. */
const FIRST_FENCE = 1

type JobRow = Selectable<ServiceJobsTable>

export function createServiceJobs(db: Kysely<Tables>, engine: Engine): ServiceJobStore {
  /** An update that only the owner of this claim can make. */
  const claimedUpdate = (
    { batchId, number }: JobKey,
    claim: { readonly owner: string; readonly fence: number },
  ) =>
    db
      .updateTable('serviceJobs')
      .where(eb => eb.and({ batchId, number, closed: 0, owner: claim.owner, fence: claim.fence }))

  return {
    open(owner, job, lines, leaseUntilMs) {
      return inTransaction(db, async transaction => {
        const { batchId } = job
        const batch = await transaction
          .selectFrom('batches')
          .select('id')
          .where(eb => eb.and({ id: batchId, status: 'in_progress' }))
          .$if(engine.locksRows, query => query.forUpdate())
          .executeTakeFirst()
        if (batch === undefined) return null
        const heldRows = await heldLines(transaction, engine, owner, batchId, lines)
        if (heldRows.length === 0) return null
        const lastJob = await transaction
          .selectFrom('serviceJobs')
          .select('number')
          .where('batchId', '=', batchId)
          .orderBy('number', 'desc')
          .limit(1)
          .executeTakeFirst()
        const newJob: ServiceJob = {
          ...job,
          number: lastJob === undefined ? 0 : lastJob.number + 1,
          name: null,
          lines: heldRows.length,
        }
        const claim = { owner, fence: FIRST_FENCE }
        await transaction
          .insertInto('serviceJobs')
          .values({ ...newJob, ...claim, closed: 0, leaseUntilMs })
          .execute()
        await changeLines(transaction, batchId, heldRows, {
          owner: jobOwner(newJob),
          readyMs: neverMs(newJob),
        })
        return { job: newJob, claim, lines: heldRows }
      })
    },
    async openJobs() {
      const rows = await db
        .selectFrom('serviceJobs')
        .leftJoin('batches', 'batches.id', 'serviceJobs.batchId')
        .selectAll('serviceJobs')
        .select('batches.status as status')
        .where('closed', '=', 0)
        .orderBy('batchId')
        .orderBy('number')
        .execute()
      return rows.map(row => ({ ...jobOf(row), status: visibleStatus(row.status) }))
    },
    async ofBatch(batchId) {
      const rows = await db
        .selectFrom('serviceJobs')
        .selectAll()
        .where('batchId', '=', batchId)
        .orderBy('number')
        .execute()
      return rows.map(jobOf)
    },
    async claim({ batchId, number }, owner, nowMs, leaseUntilMs) {
      const row = await db
        .updateTable('serviceJobs')
        .set({
          owner,
          leaseUntilMs,
          fence: sql`case when owner = ${owner} then fence else fence + 1 end`,
        })
        .where(eb => eb.and({ batchId, number, closed: 0 }))
        .where(({ eb, or }) =>
          or([eb('owner', 'is', null), eb('owner', '=', owner), eb('leaseUntilMs', '<=', nowMs)]),
        )
        .returning('fence')
        .executeTakeFirst()
      return row === undefined ? null : { owner, fence: row.fence }
    },
    async release(job, claim) {
      await claimedUpdate(job, claim).set({ owner: null, leaseUntilMs: 0 }).execute()
    },
    async name(job, claim, name) {
      const { numUpdatedRows } = await claimedUpdate(job, claim).set({ name }).executeTakeFirst()
      return numUpdatedRows > 0n
    },
    async lines(job, choice) {
      const { batchId } = job
      const rows =
        'numbers' in choice
          ? await linesByNumber(db, job, choice.numbers)
          : rowsThatFit(
              await linesOf(db, job).where('number', '>', choice.after).limit(choice.limit).execute(),
              ({ bodyBytes }) => bodyBytes,
              choice,
            )
      const numbers = rows.map(({ number }) => number)
      const bodies = await bodiesOf(db, batchId, numbers)
      return rows.flatMap(({ number, customId, fence, tries }): readonly ClaimedLine[] => {
        const body = bodies.get(number)
        // The line got its result in the meantime.
        return body === undefined ? [] : [{ batchId, number, customId, body, fence, tries }]
      })
    },
    close(job, claim) {
      return inTransaction(db, async transaction => {
        const { batchId, number } = job
        const { numUpdatedRows } = await transaction
          .updateTable('serviceJobs')
          .set({ closed: 1, owner: null, leaseUntilMs: 0 })
          .where(eb => eb.and({ batchId, number, closed: 0, owner: claim.owner, fence: claim.fence }))
          .executeTakeFirst()
        if (numUpdatedRows === 0n) return false
        await transaction
          .updateTable('batchLines')
          .set({ owner: null, readyMs: 0 })
          .where('batchId', '=', batchId)
          .where('readyMs', '=', neverMs(job))
          .where('owner', '=', jobOwner(job))
          .execute()
        return true
      })
    },
  }
}

function linesOf(db: Kysely<Tables>, job: JobKey) {
  return db
    .selectFrom('batchLines')
    .select(['number', 'customId', 'bodyBytes', 'fence', 'tries'])
    .where('batchId', '=', job.batchId)
    .where('readyMs', '=', neverMs(job))
    .where('owner', '=', jobOwner(job))
    .orderBy('number')
}

async function linesByNumber(db: Kysely<Tables>, job: JobKey, numbers: readonly number[]) {
  const rows = []
  for (const part of partsOf(numbers.toSorted((a, b) => a - b)))
    rows.push(...(await linesOf(db, job).where('number', 'in', part).execute()))
  return rows
}

function jobOf(row: JobRow): ServiceJob {
  const { closed: _closed, owner: _owner, fence: _fence, leaseUntilMs: _lease, ...job } = row
  return job
}

function visibleStatus(status: StoredBatchStatus | null) {
  return status === 'opening' || status === 'removed' ? null : status
}

/**
 * Batches in the database. Every verb is one transaction. Transactions that lock rows lock batches before lines, and
 * each in order, so that they cannot deadlock.
 */
import type { Kysely } from 'kysely'
import type { Engine } from '../../engine.ts'
import type { BatchStore } from '../../service-jobs.ts'
import type { Tables } from '../../tables.ts'
import { createBatchAcceptance } from './batch-acceptance.ts'
import { createBatchPruning } from './batch-pruning.ts'
import { createBatchReading } from './batch-reading.ts'
import { createBatchWork } from './batch-work.ts'
import { createBatchQueue } from './line-queue.ts'
import { createServiceJobs } from './service-jobs.ts'

export function createBatchStore(db: Kysely<Tables>, engine: Engine): BatchStore {
  return {
    ...createBatchAcceptance(db, engine),
    ...createBatchReading(db),
    work: {
      ...createBatchWork(db, engine),
      ...createBatchQueue(db, engine),
      ...createBatchPruning(db, engine),
    },
    jobs: createServiceJobs(db, engine),
  }
}

/**
 * Provider batch jobs in the store. A job has lines from one batch. The lines stay claimed by the job, whichever runner
 * works on it, until they have a result or return to the queue. Every verb is one transaction.
 */
import type { BatchStatus } from '../protocol/management/batches.ts'
import type {
  BatchAcceptance,
  BatchReading,
  BatchWork,
  Claim,
  ClaimedLine,
  HeldLine,
  PageEnd,
} from './batches.ts'

/** A job that its service does not know yet. */
export interface NewServiceJob {
  readonly batchId: string
  /** Slug. */
  readonly provider: string
  /** The caller's own credential that submits it; null: the shared key. */
  readonly credentialId: string | null
  /** The provider's name for the model. */
  readonly upstreamModel: string
  /** The format of its requests. */
  readonly format: string
  /** Path of its requests, relative to the provider's base URL. */
  readonly path: string
  /** Names the job at the service, and is the prefix of its line ids there. */
  readonly mark: string
  /** The amount reserved from the limits of its caller, in units of 1e-12 USD, as a decimal integer. */
  readonly reserved: string
  /** ISO 8601 UTC. */
  readonly createdAt: string
}

export interface ServiceJob extends NewServiceJob {
  /** From 0 in each batch. */
  readonly number: number
  /** The service's name for the job; null: it is unknown whether the service has the job. */
  readonly name: string | null
  /** Number of lines in the job. */
  readonly lines: number
}

/** A job that is not closed, with the state of its batch; null: the batch is removed. */
interface OpenServiceJob extends ServiceJob {
  readonly status: BatchStatus | null
}

/** A new job, claimed by its creator, with the lines that the creator still had. */
export interface OpenedServiceJob {
  readonly job: ServiceJob
  readonly claim: Claim
  readonly lines: readonly HeldLine[]
}

/** The key of a job. */
export type JobKey = Pick<ServiceJob, 'batchId' | 'number'>

/** Selects lines of a job: these numbers, or those after `after` (-1: from the beginning). */
type JobLinesChoice = { readonly numbers: readonly number[] } | ({ readonly after: number } & PageEnd)

export interface ServiceJobStore {
  /**
   * Creates a job from lines that the owner has claimed; they no longer have a lease. Returns null and changes nothing
   * if none of them is the owner's, or the batch is not `in_progress`.
   */
  open(
    owner: string,
    job: NewServiceJob,
    lines: readonly HeldLine[],
    leaseUntilMs: number,
  ): Promise<OpenedServiceJob | null>
  /** Open jobs of all batches. */
  openJobs(): Promise<readonly OpenServiceJob[]>
  /** All jobs of a batch, including closed ones, in order. */
  ofBatch(batchId: string): Promise<readonly ServiceJob[]>
  /** Claims a job, or extends the owner's claim. Null: another owner has it, or it is closed. */
  claim(job: JobKey, owner: string, nowMs: number, leaseUntilMs: number): Promise<Claim | null>
  /** Ends the claim, so that another runner may claim at once. */
  release(job: JobKey, claim: Claim): Promise<void>
  /** Stores the service's name for the job. Returns false if another claim is newer. */
  name(job: JobKey, claim: Claim, name: string): Promise<boolean>
  /** Lines of the job without a result, in order. Their fences are those for `finish` and `giveBack`. */
  lines(job: JobKey, choice: JobLinesChoice): Promise<readonly ClaimedLine[]>
  /** Closes the job. Lines without a result go back to the queue. Returns false if another claim is newer. */
  close(job: JobKey, claim: Claim): Promise<boolean>
}

/** The owner that lines of a job have, for `finish` and `giveBack`. */
export function jobOwner({ number }: Pick<ServiceJob, 'number'>): string {
  return `job-${number}`
}

/** All operations on batches in the store. */
export type BatchStore = BatchAcceptance &
  BatchReading & { readonly work: BatchWork; readonly jobs: ServiceJobStore }

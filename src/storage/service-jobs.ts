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

/** A job before its service knows it. */
export interface NewServiceJob {
  readonly batchId: string
  /** Slug. */
  readonly provider: string
  /** Own credential that submits it; null: the shared key. */
  readonly credentialId: string | null
  /** The provider's name of the model. */
  readonly upstreamModel: string
  /** The format of its requests. */
  readonly format: string
  /** Path of its requests below the provider's base URL. */
  readonly path: string
  /** Names it at the service, and begins the ids of its lines there. */
  readonly mark: string
  /** Reserved of the limits of its caller, in units of 1e-12 USD, as a decimal integer. */
  readonly reserved: string
  /** ISO 8601 UTC. */
  readonly createdAt: string
}

export interface ServiceJob extends NewServiceJob {
  /** From 0 in each batch. */
  readonly number: number
  /** The service's name of it; null: nobody knows whether the service has it. */
  readonly name: string | null
  /** Lines that it was made of. */
  readonly lines: number
}

/** A job that is not closed, with the state of its batch; null: the batch is removed. */
interface OpenServiceJob extends ServiceJob {
  readonly status: BatchStatus | null
}

/** A new job, claimed by its maker, with the lines that were still the maker's. */
export interface OpenedServiceJob {
  readonly job: ServiceJob
  readonly claim: Claim
  readonly lines: readonly HeldLine[]
}

/** A job as a key. */
export type JobPlace = Pick<ServiceJob, 'batchId' | 'number'>

/** The lines of a job to read: these, or those behind `after` (-1: from the beginning). */
type JobLinesChoice = { readonly numbers: readonly number[] } | ({ readonly after: number } & PageEnd)

export interface ServiceJobStore {
  /**
   * Makes a job of lines that the owner has claimed; they have no lease any more. Null: none of them is the owner's, or
   * the batch is not `in_progress`; then nothing has changed.
   */
  open(
    owner: string,
    job: NewServiceJob,
    lines: readonly HeldLine[],
    leaseUntilMs: number,
  ): Promise<OpenedServiceJob | null>
  /** Jobs of all batches that are not closed. */
  openJobs(): Promise<readonly OpenServiceJob[]>
  /** All jobs of a batch, closed ones too, in their order. */
  ofBatch(batchId: string): Promise<readonly ServiceJob[]>
  /** Claims a job, or extends the claim that the owner has; null: another one has it, or it is closed. */
  claim(place: JobPlace, owner: string, nowMs: number, leaseUntilMs: number): Promise<Claim | null>
  /** Ends the claim, so that another runner may claim at once. */
  release(place: JobPlace, claim: Claim): Promise<void>
  /** Notes the service's name. False: another claim has overtaken this one. */
  name(place: JobPlace, claim: Claim, name: string): Promise<boolean>
  /** Lines of the job that have no result, in order; their fences are those for `finish` and `giveBack`. */
  lines(place: JobPlace, choice: JobLinesChoice): Promise<readonly ClaimedLine[]>
  /** Ends the job; lines that it still has go back to the queue. False: another claim has overtaken this one. */
  close(place: JobPlace, claim: Claim): Promise<boolean>
}

/** The owner of the lines of a job, for `finish` and `giveBack`. */
export function jobOwner({ number }: Pick<ServiceJob, 'number'>): string {
  return `job-${number}`
}

/** Everything about batches in the store. */
export type BatchStore = BatchAcceptance &
  BatchReading & { readonly work: BatchWork; readonly jobs: ServiceJobStore }

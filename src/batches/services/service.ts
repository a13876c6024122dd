/**
 * The contract of batch services: provider APIs that run many requests within a day at a lower price. A job is one
 * batch of such a service; each of its lines is one of our requests. There is one file per service; table.ts lists
 * them. Types only. Nothing from a service is trusted: no ids, sizes or states.
 */
import type { GatewayError } from '../../base/errors.ts'
import type { WireRequest } from '../../formats/format.ts'
import type { ServiceCalls } from './service-calls.ts'

/** Bounds of one job. */
interface JobLimits {
  /** Maximum number of lines. */
  readonly lines: number
  /** Maximum bytes of all lines, as written by `line`. */
  readonly bytes: number
}

/** A job in the form that its service needs. */
interface JobRequest {
  /** Names the job, so that it can be found again: letters, digits and dashes. The ids of its lines begin with it. */
  readonly mark: string
  /** The provider's name for the model. */
  readonly model: string
  /** Path of the requests, relative to the base URL. */
  readonly path: string
  /** As written by `line`. */
  readonly lines: readonly string[]
}

/** A job that may have been submitted, although the service's name for it is unknown. */
export interface LostJob extends Pick<JobRequest, 'mark'> {
  /** Unix milliseconds by the gateway's clock. It was not submitted earlier. */
  readonly sinceMs: number
  readonly lines: number
  /** Names of our other jobs. */
  readonly knownNames: ReadonlySet<string>
}

/** `unsure`: a job may be the lost one, but shows that only when it has ended. */
export type FoundJob = { readonly name: string } | 'none' | 'unsure'

export type JobState =
  | { readonly kind: 'running' }
  /** No line changes any more, and all replies are complete. */
  | {
      readonly kind: 'ended'
      /** The reason why lines without an outcome have no reply; null: unknown. */
      readonly error: GatewayError | null
      /** The outcome of those lines, if the job ended before all of them had run. */
      readonly unrun: 'cancelled' | 'expired' | null
      /** The service was too busy and has run nothing. The job may be submitted again later. */
      readonly isBusy: boolean
    }

/** The outcome of one line. */
export interface EndedLine {
  /** The id with which the line was submitted. */
  readonly id: string
  /** `cancelled`, `expired`: it never ran. */
  readonly end:
    | { readonly kind: 'reply'; readonly status: number; readonly body: string }
    | { readonly kind: 'cancelled' }
    | { readonly kind: 'expired' }
}

/** One batch service. Methods reject with GatewayError; see `isLasting`. */
export interface BatchService {
  readonly limits: JobLimits
  /** True if a job can carry the request. */
  accepts(wire: WireRequest): boolean
  /** The request as one line of a job. */
  line(id: string, wire: WireRequest): string
  /** Submits a job. Returns the service's name for it. */
  submit(calls: ServiceCalls, job: JobRequest): Promise<string>
  /** Looks for a job that may have been submitted. */
  find(calls: ServiceCalls, job: LostJob): Promise<FoundJob>
  state(calls: ServiceCalls, name: string): Promise<JobState>
  /** Asks the service to end the job. Running lines may still get a reply. */
  cancel(calls: ServiceCalls, name: string): Promise<void>
  /** The lines of an ended job, page by page, in any order. Lines may be missing. */
  lines(calls: ServiceCalls, name: string): AsyncGenerator<readonly EndedLine[], void, void>
  /** Deletes the data of an ended job at the service. */
  remove(calls: ServiceCalls, name: string): Promise<void>
}

/**
 * The contract of batch services: provider APIs that run many requests within a day at a lower price. A job is one
 * batch of such a service; each of its lines is one of our requests. One file per service; table.ts lists them. Types
 * only. Nothing from a service is trusted: no ids, sizes or states.
 */
import type { GatewayError } from '../../base/errors.ts'
import type { WireRequest } from '../../formats/format.ts'
import type { ServiceCalls } from './service-calls.ts'

/** Bounds of one job. */
interface JobLimits {
  /** Lines. */
  readonly lines: number
  /** Bytes of all lines, as `line` writes them. */
  readonly bytes: number
}

/** A job for its service. */
interface JobRequest {
  /** Names the job, so that it can be found again: letters, digits and dashes; the ids of its lines begin with it. */
  readonly mark: string
  /** The provider's name of the model. */
  readonly model: string
  /** Path of the requests below the base URL, as formats give it. */
  readonly path: string
  /** As `line` wrote them. */
  readonly lines: readonly string[]
}

/** A job that may have been submitted: its name never came. */
export interface LostJob extends Pick<JobRequest, 'mark'> {
  /** Unix milliseconds before which it was not submitted, by our clock. */
  readonly sinceMs: number
  readonly lines: number
  /** Names of other jobs of ours. */
  readonly known: ReadonlySet<string>
}

/** `unsure`: one that may be it does not say so before it has ended. */
export type FoundJob = { readonly name: string } | 'none' | 'unsure'

export type JobState =
  | { readonly kind: 'running' }
  /** No line changes any more; lines with a reply have it now. */
  | {
      readonly kind: 'ended'
      /** Why lines of which the service says nothing have no reply; null: it does not say. */
      readonly error: GatewayError | null
      /** The outcome of those lines, if the job ended before all of them had run. */
      readonly unrun: 'cancelled' | 'expired' | null
      /** The service had too much to do and has run nothing of it: it may be submitted again later. */
      readonly isBusy: boolean
    }

/** The outcome of one line. */
export interface EndedLine {
  /** As it was submitted. */
  readonly id: string
  /** `cancelled`, `expired`: it never ran. */
  readonly end:
    | { readonly kind: 'reply'; readonly status: number; readonly body: string }
    | { readonly kind: 'cancelled' }
    | { readonly kind: 'expired' }
}

/** One batch service. Verbs reject with GatewayError; see `isLasting`. */
export interface BatchService {
  readonly limits: JobLimits
  /** True if a job can carry the request. */
  takes(wire: WireRequest): boolean
  /** A request as a line of a job, in one line of text. */
  line(id: string, wire: WireRequest): string
  /** Submits a job. Returns the service's name of it. */
  submit(calls: ServiceCalls, job: JobRequest): Promise<string>
  /** Looks for a job that may have been submitted. */
  find(calls: ServiceCalls, job: LostJob): Promise<FoundJob>
  state(calls: ServiceCalls, name: string): Promise<JobState>
  /** Asks the service to end the job; lines that run may still get a reply. */
  cancel(calls: ServiceCalls, name: string): Promise<void>
  /** The lines of an ended job, in any order, page by page; lines may be missing. */
  lines(calls: ServiceCalls, name: string): AsyncGenerator<readonly EndedLine[], void, void>
  /** Removes what the service keeps of an ended job. */
  remove(calls: ServiceCalls, name: string): Promise<void>
}

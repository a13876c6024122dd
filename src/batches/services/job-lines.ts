/**
 * Lines of a batch service's job: completes each line with the service's reply, stores the results, and counts the
 * cost. Batch thread.
 */

import { GatewayError, toGatewayError } from '../../base/errors.ts'
import type { Log } from '../../base/log/log.ts'
import { callerOf } from '../../callers/keys.ts'
import type { HoldingQuota } from '../../callers/limits/quota.ts'
import type { StoredReply } from '../../exchange/exchange.ts'
import type { KeyRecord } from '../../protocol/management/keys.ts'
import type { Caller, Spending } from '../../protocol/records.ts'
import type { BatchRecord, BatchWork, ClaimedLine, LineResult } from '../../storage/batches.ts'
import { jobOwner, type ServiceJob } from '../../storage/service-jobs.ts'
import type { CollectedLine, LineRun, RunEnd } from '../line-run.ts'
import type { EndedLine } from './service.ts'
import type { ServiceAccess } from './service-access.ts'

export interface JobLinesDeps {
  readonly work: Pick<BatchWork, 'finish' | 'giveBack'>
  /** The current record of the key. @throws (or rejects with) GatewayError */
  readonly keyOf: (hash: string) => KeyRecord | Promise<KeyRecord>
  readonly quota: Pick<HoldingQuota, 'reserveAnyway'>
  /** Runs a line with the collected reply. */
  readonly run: (batch: BatchRecord, line: ClaimedLine, collected: CollectedLine) => LineRun
  /** Unix milliseconds by the monotonic clock: for leases and the queue. */
  readonly nowMs: () => number
  readonly log: Pick<Log, 'fault' | 'notice'>
  /** Counts memory; a negative number frees it. */
  readonly countMemory: (bytes: number) => void
  /** Called with stored results. */
  readonly onStored: (results: readonly LineResult[]) => void
  /** Ends all work. */
  readonly signal: AbortSignal
}

interface JobLinesTerms {
  /** The latest record of the batch. */
  readonly batch: () => BatchRecord
  /** True once the batch is cancelled or has expired. */
  readonly isEnding: () => boolean
  readonly mayBeRecorded: boolean
}

/** Bytes of a character of a reply in memory. */
const CHAR_BYTES = 2

export const NO_SPENDING: Spending = { cost: 0, isByok: false, tokens: 0 }

export class JobLines {
  /** True if an earlier visit may have stored usage records of lines. */
  mayBeRecorded: boolean
  readonly #deps: JobLinesDeps
  readonly #job: ServiceJob
  readonly #terms: JobLinesTerms
  readonly #running = new Set<LineRun>()

  constructor(deps: JobLinesDeps, job: ServiceJob, terms: JobLinesTerms) {
    this.#deps = deps
    this.#job = job
    this.#terms = terms
    this.mayBeRecorded = terms.mayBeRecorded
  }

  /** Returns running lines to the queue. */
  stop(): void {
    for (const run of this.#running) run.stop('returned')
  }

  /** Runs lines with their replies, and stores the results. Until then the replies count as held memory. */
  async run(
    access: ServiceAccess,
    lines: readonly ClaimedLine[],
    ends: ReadonlyMap<number, LineEnd>,
  ): Promise<void> {
    const { countMemory } = this.#deps
    let bytes = 0
    for (const end of ends.values()) if (end.kind === 'reply') bytes += CHAR_BYTES * end.body.length
    countMemory(bytes)
    try {
      await this.#run(access, lines, ends)
    } finally {
      countMemory(-bytes)
    }
  }

  async #run(
    access: ServiceAccess,
    lines: readonly ClaimedLine[],
    ends: ReadonlyMap<number, LineEnd>,
  ): Promise<void> {
    const { work, nowMs, onStored } = this.#deps
    const { key, caller } = await this.caller()
    const spending = { ...NO_SPENDING, isByok: access.candidate.credential !== null }
    const collected: CollectedLine = {
      candidate: access.candidate,
      providerKey: access.providerKey,
      priceFactor: access.priceFactor,
      key,
      caller,
      mayBeRecorded: this.mayBeRecorded,
      reservation: {
        allowance: null,
        settle(lineSpending) {
          spending.cost += lineSpending.cost
        },
      },
      reply: { error: unrunError('missing') },
    }
    const owner = jobOwner(this.#job)
    const endedLines = await Promise.all(
      lines.map(async line => {
        const reply = this.#replyOf(ends.get(line.number))
        return reply === null ? null : { line, end: await this.#runLine(line, { ...collected, reply }) }
      }),
    )
    const results = endedLines.flatMap(entry =>
      entry?.end.kind === 'result' ? [resultOf(entry.line, entry.end)] : [],
    )
    const returned = endedLines.flatMap(entry =>
      entry?.end.kind === 'again'
        ? [{ ...entry.line, tries: entry.end.tries, notBeforeMs: nowMs() + entry.end.delayMs }]
        : [],
    )
    await this.#charge(caller, spending)
    // Set until the results are stored, because another visit would find the records.
    const mayBeRecorded = this.mayBeRecorded
    this.mayBeRecorded = true
    if (results.length > 0) onStored(await work.finish(owner, results))
    if (returned.length > 0) await work.giveBack(owner, returned)
    this.mayBeRecorded = mayBeRecorded
  }

  async #runLine(line: ClaimedLine, collected: CollectedLine): Promise<RunEnd> {
    const run = this.#deps.run(this.#terms.batch(), line, collected)
    this.#running.add(run)
    if (this.#deps.signal.aborted) run.stop('returned')
    try {
      return await run.ended
    } finally {
      this.#running.delete(run)
    }
  }

  /** Null: the line gets no result, like other lines of a batch that is cancelled or has expired. */
  #replyOf(end: LineEnd | undefined): StoredReply | null {
    if (end === undefined) return null
    if (end.kind === 'reply') return end
    if (this.#terms.isEnding()) return null
    return { error: end.kind === 'error' ? end.error : unrunError(end.kind) }
  }

  /**
   * The caller of the batch. Its permissions are not checked again, because the lines have already run with this key.
   */
  async caller(): Promise<{ readonly key: KeyRecord | null; readonly caller: Caller }> {
    const { keyHash, organizationId, workspaceId } = this.#terms.batch()
    try {
      const key = await this.#deps.keyOf(keyHash)
      if (key.organizationId === organizationId) return { key, caller: callerOf(key) }
    } catch (thrown) {
      if (toGatewayError(thrown).code !== 'authentication') throw thrown
    }
    return { key: null, caller: { keyHash, organizationId, workspaceId, memberId: null, limit: null } }
  }

  /** Charges the limits as they are now: the cost counts in the current period, even if it was reserved earlier. */
  async #charge(caller: Caller, spending: Spending): Promise<void> {
    if (spending.cost === 0) return
    try {
      const reservation = await this.#deps.quota.reserveAnyway(caller, spending.cost, spending.isByok)
      reservation.settle(spending)
    } catch (error) {
      // The ledger has the cost, and the counters are compared with it later.
      this.#deps.log.fault('batches', 'cannot count the cost of a provider batch job towards limits', error)
    }
  }
}

/** The outcome of a line, as far as its service reports it. */
export type LineEnd =
  | EndedLine['end']
  | { readonly kind: 'missing' }
  | { readonly kind: 'error'; readonly error: GatewayError }

const UNRUN_ERRORS = {
  expired: { code: 'deadline_exceeded', message: 'The batch service did not run this request in time' },
  cancelled: { code: 'provider_unavailable', message: 'The batch service cancelled this request' },
  missing: { code: 'provider_unavailable', message: 'The batch service gave no result for this request' },
} as const

function unrunError(kind: keyof typeof UNRUN_ERRORS): GatewayError {
  return new GatewayError(UNRUN_ERRORS[kind].code, UNRUN_ERRORS[kind].message)
}

function resultOf(
  { batchId, number, fence }: ClaimedLine,
  { outcome, result, usage }: Extract<RunEnd, { kind: 'result' }>,
): LineResult {
  return { batchId, number, fence, outcome, result, usage }
}

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
import type { Caller, Spent } from '../../protocol/records.ts'
import type { BatchRecord, BatchWork, ClaimedLine, LineResult } from '../../storage/batches.ts'
import { jobOwner, type ServiceJob } from '../../storage/service-jobs.ts'
import type { CollectedLine, LineRun, RunEnd } from '../line-run.ts'
import type { EndedLine } from './service.ts'
import type { ServiceAccess } from './service-access.ts'

export interface JobLinesDeps {
  readonly work: Pick<BatchWork, 'finish' | 'giveBack'>
  /** The key as it is now. @throws (or rejects with) GatewayError */
  readonly keyOf: (hash: string) => KeyRecord | Promise<KeyRecord>
  readonly quota: Pick<HoldingQuota, 'hold'>
  /** Runs a line with the reply that was collected. */
  readonly run: (batch: BatchRecord, line: ClaimedLine, collected: CollectedLine) => LineRun
  /** Unix milliseconds by a clock that goes on evenly: for leases and the queue. */
  readonly nowMs: () => number
  readonly log: Pick<Log, 'fault' | 'notice'>
  /** Counts memory; negative when it is free again. */
  readonly hold: (bytes: number) => void
  /** Called with results that were stored. */
  readonly onStored: (results: readonly LineResult[]) => void
  /** Ends all work. */
  readonly signal: AbortSignal
}

interface JobLinesTerms {
  /** The batch as the Store had it last. */
  readonly batch: () => BatchRecord
  /** True once the batch is cancelled or has expired. */
  readonly isEnding: () => boolean
  readonly mayBeRecorded: boolean
}

/** Bytes of a character of a reply in memory. */
const CHAR_BYTES = 2

export const NOTHING: Spent = { cost: 0, isByok: false, tokens: 0 }

export class JobLines {
  /** An earlier visit may have got as far as the usage records of lines. */
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

  /** Returns the lines that run to the queue. */
  stop(): void {
    for (const run of this.#running) run.stop('returned')
  }

  /** Runs lines with their ends, and stores what they come to. The replies count as held until then. */
  async take(
    access: ServiceAccess,
    lines: readonly ClaimedLine[],
    ends: ReadonlyMap<number, LineEnd>,
  ): Promise<void> {
    const { hold } = this.#deps
    let bytes = 0
    for (const end of ends.values()) if (end.kind === 'reply') bytes += CHAR_BYTES * end.body.length
    hold(bytes)
    try {
      await this.#take(access, lines, ends)
    } finally {
      hold(-bytes)
    }
  }

  async #take(
    access: ServiceAccess,
    lines: readonly ClaimedLine[],
    ends: ReadonlyMap<number, LineEnd>,
  ): Promise<void> {
    const { work, nowMs, onStored } = this.#deps
    const { key, caller } = await this.caller()
    const spent = { ...NOTHING, isByok: access.candidate.credential !== null }
    const collected: CollectedLine = {
      candidate: access.candidate,
      providerKey: access.providerKey,
      priceFactor: access.priceFactor,
      key,
      caller,
      mayBeRecorded: this.mayBeRecorded,
      reservation: {
        allowance: null,
        settle(one) {
          spent.cost += one.cost
        },
      },
      reply: { error: unrunError('missing') },
    }
    const owner = jobOwner(this.#job)
    const ended = await Promise.all(
      lines.map(async line => {
        const reply = this.#replyOf(ends.get(line.number))
        return reply === null ? null : { line, end: await this.#run(line, { ...collected, reply }) }
      }),
    )
    const results = ended.flatMap(each =>
      each?.end.kind === 'result' ? [resultOf(each.line, each.end)] : [],
    )
    const returned = ended.flatMap(each =>
      each?.end.kind === 'again'
        ? [{ ...each.line, tries: each.end.tries, notBeforeMs: nowMs() + each.end.delayMs }]
        : [],
    )
    await this.#charge(caller, spent)
    // Until they are stored: another visit would find the records.
    const mayBeRecorded = this.mayBeRecorded
    this.mayBeRecorded = true
    if (results.length > 0) onStored(await work.finish(owner, results))
    if (returned.length > 0) await work.giveBack(owner, returned)
    this.mayBeRecorded = mayBeRecorded
  }

  async #run(line: ClaimedLine, collected: CollectedLine): Promise<RunEnd> {
    const run = this.#deps.run(this.#terms.batch(), line, collected)
    this.#running.add(run)
    if (this.#deps.signal.aborted) run.stop('returned')
    try {
      return await run.ended
    } finally {
      this.#running.delete(run)
    }
  }

  /** Null: the line stays without a result, as others of a batch that is cancelled or has expired. */
  #replyOf(end: LineEnd | undefined): StoredReply | null {
    if (end === undefined) return null
    if (end.kind === 'reply') return end
    if (this.#terms.isEnding()) return null
    return { error: end.kind === 'error' ? end.error : unrunError(end.kind) }
  }

  /** The caller of the batch. Nobody asks again whether the key may be used: it was paid for with it. */
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

  /** Counts by the limits of now, so that what was reserved in an earlier period is spent in this one. */
  async #charge(caller: Caller, spent: Spent): Promise<void> {
    if (spent.cost === 0) return
    try {
      const reservation = await this.#deps.quota.hold(caller, spent.cost, spent.isByok)
      reservation.settle(spent)
    } catch (error) {
      // The ledger has it, and the counters are compared with it.
      this.#deps.log.fault('batches', 'cannot count the cost of a provider batch job towards limits', error)
    }
  }
}

/** The end of a line, as far as its service says. */
export type LineEnd =
  | EndedLine['end']
  | { readonly kind: 'missing' }
  | { readonly kind: 'error'; readonly error: GatewayError }

const UNRUN = {
  expired: { code: 'deadline_exceeded', message: 'The batch service did not run this request in time' },
  cancelled: { code: 'provider_unavailable', message: 'The batch service cancelled this request' },
  missing: { code: 'provider_unavailable', message: 'The batch service gave no result for this request' },
} as const

function unrunError(kind: keyof typeof UNRUN): GatewayError {
  return new GatewayError(UNRUN[kind].code, UNRUN[kind].message)
}

function resultOf(
  { batchId, number, fence }: ClaimedLine,
  { outcome, result, usage }: Extract<RunEnd, { kind: 'result' }>,
): LineResult {
  return { batchId, number, fence, outcome, result, usage }
}

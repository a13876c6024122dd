/**
 * One run of one line of a batch: an exchange without a socket. It checks who may run the line at this moment, passes
 * it to its endpoint, and ends with a result or returns the line to the queue. Batch thread.
 */

import type { Clock } from '../base/clock.ts'
import {
  type FailureCode,
  GatewayError,
  overloadError,
  serviceUnavailable,
  toGatewayError,
} from '../base/errors.ts'
import { parseJson } from '../base/json.ts'
import type { Log } from '../base/log/log.ts'
import type { PriceFactor } from '../base/money.ts'
import { callerOf } from '../callers/keys.ts'
import type {
  AttemptRecord,
  BatchTerms,
  CollectedReply,
  EndedExchange,
  Exchange,
  RequestContext,
} from '../exchange/exchange.ts'
import type { Ledger } from '../pipeline/accounting/account.ts'
import type { ExchangeSummary } from '../pipeline/answer/sink.ts'
import { isObject } from '../protocol/json/schema.ts'
import { type BatchUsage, NO_USAGE } from '../protocol/management/batches.ts'
import type { KeyRecord } from '../protocol/management/keys.ts'
import type { Caller } from '../protocol/records.ts'
import type { BatchRecord, ClaimedLine, LineOutcome } from '../storage/batches.ts'
import type { UsageRecord } from '../storage/usage.ts'
import type { LineCall, LineEndpoints, LineReply } from './endpoints.ts'
import { lineGenerationId } from './ids.ts'
import { withModel } from './line-request.ts'
import { answeredLine, failedLine, usageOf, usageOfRecord } from './result-line.ts'
import { backoffMs, type Fate, fateOf } from './retry.ts'

/** The end of one run, for its log line. */
export interface EndedRun {
  readonly status: number
  readonly error: GatewayError | null
  readonly summary: ExchangeSummary | undefined
}

/** An admitted line: its limits, and its reporting. */
export interface AdmittedLine extends RequestContext {
  /** Sets the key that the log names, and to which the memory of the request counts. */
  assignKey(key: KeyRecord): void
  /** Starts the total deadline. */
  startDeadline(): void
  /** Ends the work for this reason. */
  abort(reason: GatewayError): void
  /** Ends the work as for a caller who left. */
  clientLeft(): void
  /** Rejects if the work does not react to its end. */
  readonly givenUp: Promise<never>
  /** Counts and logs the run. */
  report(run: EndedRun): void
  /** Ends it without a report, because another run of the line will report. */
  drop(): void
}

/** The part of a batch service in a run: it may take over the model call (`submit`), or has run it (`collected`). */
export interface ServicePart extends Pick<BatchTerms, 'submit'> {
  readonly collected?: CollectedLine
}

/** The reply to a line that a batch service has run. Permissions are not checked again. */
export interface CollectedLine extends CollectedReply {
  /** Null: the key no longer exists. */
  readonly key: KeyRecord | null
  readonly caller: Caller
  readonly priceFactor: PriceFactor
  /** True if an earlier collection may have stored the usage record. */
  readonly mayBeRecorded: boolean
}

export interface LineRunDeps {
  readonly endpoints: LineEndpoints
  /** `batch`: its endpoint is a metric label. */
  readonly admit: (generationId: string, batch: BatchRecord) => AdmittedLine
  /** The current record of the key. @throws (or rejects with) GatewayError `authentication`, `store_unavailable` */
  readonly keyOf: (hash: string) => KeyRecord | Promise<KeyRecord>
  /** Counts a request of the caller in the current minute. @throws (or rejects with) GatewayError */
  readonly countRequest: (caller: Caller) => void | Promise<void>
  readonly ledger: Pick<Ledger, 'find'>
  readonly priceFactor: PriceFactor
  readonly byokFeePercent: number
  readonly clock: Clock
  readonly log: Pick<Log, 'fault'>
  /** 0 to 1. */
  readonly random: () => number
}

/** The reason why a run is ended from outside. After `returned` and `lost` another run of the line counts. */
export type StopReason = 'cancelled' | 'expired' | 'returned' | 'lost'

/** The end of a run. */
export type RunEnd = { readonly attempts: readonly AttemptRecord[]; readonly error: GatewayError | null } & (
  | {
      readonly kind: 'result'
      readonly outcome: LineOutcome
      readonly result: string
      readonly usage: BatchUsage
    }
  /** The line goes back to the queue; `tries` is the number of counted tries. */
  | { readonly kind: 'again'; readonly tries: number; readonly delayMs: number }
  /** The run was ended from outside. */
  | { readonly kind: 'stopped' }
  /** A batch service has taken the model call. The line continues with its reply. */
  | { readonly kind: 'deferred' }
)

const STOP_ERRORS: Readonly<
  Record<Exclude<StopReason, 'cancelled'>, { readonly code: FailureCode; readonly message: string }>
> = {
  expired: { code: 'deadline_exceeded', message: 'The batch has expired' },
  returned: { code: 'service_unavailable', message: 'The gateway is shutting down' },
  lost: {
    code: 'service_unavailable',
    message: 'Another instance of the gateway has taken over the request',
  },
}

/** Claims are numbered from 1. A higher number means that there was an earlier claim. */
const FIRST_FENCE = 1
/** Memory of a body per character: its text, its parsed value, and the text for the provider. */
const HELD_PER_CHAR = 3

export class LineRun {
  readonly batch: BatchRecord
  readonly line: ClaimedLine
  /** Never rejects. */
  readonly ended: Promise<RunEnd>
  readonly #deps: LineRunDeps
  readonly #service: ServicePart
  /** Null until the number of this try is known. */
  #admitted: AdmittedLine | null = null
  #stop: StopReason | null = null
  /** Number of counted tries before this one. */
  #tries: number
  /** The end of the exchange, as the gateway accounted for it. */
  #end: EndedExchange | null = null
  /** Usage record of an earlier run that was charged, and crashed before its result was stored. */
  #recorded: UsageRecord | null = null
  /** Decided when the run is accounted for, so that its usage record and its end agree. */
  #outcome: Fate | 'stopped' | null = null
  #isDeferred = false

  constructor(deps: LineRunDeps, batch: BatchRecord, line: ClaimedLine, service: ServicePart = {}) {
    this.#deps = deps
    this.#service = service
    this.batch = batch
    this.line = line
    this.#tries = line.tries
    this.ended = this.#run()
  }

  /** The reason why it was ended from outside; null: it was not. */
  get stopped(): StopReason | null {
    return this.#stop
  }

  /** Ends the run and closes its calls to providers. Only the first reason counts. */
  stop(reason: StopReason): void {
    if (this.#stop !== null) return
    this.#stop = reason
    if (this.#admitted !== null) end(this.#admitted, reason)
  }

  async #run(): Promise<RunEnd> {
    const { batch, line } = this
    try {
      if (this.#mayBeRecorded) await this.#findRecord()
    } catch (cause) {
      const error = serviceUnavailable(cause)
      return this.#stop === null ? this.#again(error) : { kind: 'stopped', attempts: [], error }
    }
    const admitted = this.#deps.admit(lineGenerationId(batch, line.number, this.#tries), batch)
    this.#admitted = admitted
    if (this.#stop !== null) end(admitted, this.#stop)
    let error: GatewayError
    let message: string
    let summary: ExchangeSummary | undefined
    try {
      const reply = await Promise.race([this.#answer(admitted), admitted.givenUp])
      summary = reply.summary
      if (reply.error === null) {
        admitted.report({ status: 200, error: null, summary })
        return this.#result('completed', null, answeredLine(batch.id, line.number, admitted.id, reply.body))
      }
      error = reply.error
      message = reply.message
    } catch (thrown) {
      error = toGatewayError(thrown)
      message = error.message
      if (error.code === 'internal')
        this.#deps.log.fault('batches', 'batch request failed', error.cause ?? error)
    }
    if (this.#isDeferred) {
      admitted.drop()
      return { kind: 'deferred', attempts: [], error: null }
    }
    admitted.report({ status: error.status, error, summary })
    const outcome = this.#outcome ?? this.#fateOf(error, this.#end?.exchange ?? null)
    if (outcome === 'stopped') return { kind: 'stopped', attempts: this.#end?.exchange.attempts ?? [], error }
    if (outcome === 'failed') {
      return this.#result('failed', error, failedLine(error, message))
    }
    if (outcome === 'again') this.#tries++
    return this.#again(error)
  }

  #again(error: GatewayError): RunEnd {
    const tryCount = this.#tries
    const delayMs = backoffMs(Math.max(0, tryCount - 1), error.retryAfterSeconds, this.#deps.random())
    return { kind: 'again', attempts: this.#end?.exchange.attempts ?? [], error, tries: tryCount, delayMs }
  }

  async #answer(admitted: AdmittedLine): Promise<LineReply> {
    const { batch, line } = this
    const { endpoints } = this.#deps
    admitted.startDeadline()
    const caller = await this.#callerOf(admitted)
    admitted.signal.throwIfAborted()
    const run = endpoints[batch.endpoint]
    if (!admitted.held.count(HELD_PER_CHAR * line.body.length)) throw overloadError()
    const call: LineCall = {
      context: admitted,
      caller,
      withMetadata: batch.withMetadata,
      dataRegion: batch.dataRegion,
      batch: this.#terms(),
      body: withModel(bodyOf(line), batch.model),
      preferences: batch.preferences,
    }
    return await run(call)
  }

  /** The caller of the line; counts it in the caller's rate. @throws GatewayError if the line may not run now */
  async #callerOf(admitted: AdmittedLine): Promise<Caller> {
    const { keyOf, countRequest } = this.#deps
    const { collected } = this.#service
    if (collected !== undefined) {
      if (collected.key !== null) admitted.assignKey(collected.key)
      return collected.caller
    }
    const { keyHash, organizationId } = this.batch
    const key = await keyOf(keyHash)
    if (key.organizationId !== organizationId || key.kind !== 'inference') {
      throw new GatewayError('authentication', 'Invalid API key')
    }
    admitted.assignKey(key)
    const caller = callerOf(key)
    await countRequest(caller)
    return caller
  }

  get #mayBeRecorded(): boolean {
    const { collected } = this.#service
    if (collected === undefined) return this.line.fence > FIRST_FENCE
    return collected.mayBeRecorded || this.line.tries > 0
  }

  /**
   * Looks for the usage record of an earlier run, so that the line is charged once. A try that failed without a charge
   * is finished, even if its runner crashed before returning the line: the next try has a new id.
   */
  async #findRecord(): Promise<void> {
    const { batch, line } = this
    for (let tryCount = 0; tryCount <= this.#tries; tryCount++) {
      const id = lineGenerationId(batch, line.number, tryCount)
      const record = await this.#deps.ledger.find(id, batch.organizationId)
      if (record === null) continue
      if (record.cost > 0 || record.outcome === 'completed' || record.outcome === 'incomplete') {
        this.#recorded = record
        return
      }
      this.#tries = Math.max(this.#tries, tryCount + 1)
    }
  }

  #terms(): BatchTerms {
    const { submit, collected } = this.#service
    return {
      priceFactor: collected?.priceFactor ?? this.#deps.priceFactor,
      collected,
      submit:
        submit &&
        (call => {
          // The line was charged before and lost its reply. The gateway runs it itself, because its caller has waited
          // long enough.
          this.#isDeferred = this.#stop === null && this.#recorded === null && submit(call)
          return this.#isDeferred
        }),
      accounts: end => {
        const { error } = end
        this.#end = end
        this.#outcome = error === null ? null : this.#fateOf(error, end.exchange)
        // A line that goes back to the queue without a result runs again under the same id.
        return this.#recorded === null && this.#outcome !== 'waits' && !this.#isHandedOver(error)
      },
    }
  }

  /** True if another run of this try will have the result and the record. */
  #isHandedOver(error: GatewayError | null): boolean {
    return error !== null && (this.#stop === 'returned' || this.#stop === 'lost')
  }

  #fateOf(error: GatewayError, exchange: Exchange | null): Fate | 'stopped' {
    if (this.#stop !== null) return 'stopped'
    return fateOf(error, exchange?.attempts ?? [], this.#tries)
  }

  #result(outcome: LineOutcome, error: GatewayError | null, result: string): RunEnd {
    const { byokFeePercent } = this.#deps
    const end = this.#end
    const run = end === null ? NO_USAGE : usageOf(end, byokFeePercent)
    const usage = this.#recorded === null ? run : usageOfRecord(this.#recorded, run, byokFeePercent)
    return { kind: 'result', attempts: end?.exchange.attempts ?? [], error, outcome, result, usage }
  }
}

function end(admitted: AdmittedLine, reason: StopReason): void {
  if (reason === 'cancelled') {
    admitted.clientLeft()
    return
  }
  const { code, message } = STOP_ERRORS[reason]
  admitted.abort(new GatewayError(code, message))
}

/** @throws GatewayError for a body that passed the check but cannot be read */
function bodyOf({ body }: ClaimedLine): Readonly<Record<string, unknown>> {
  const value = parseJson(body)
  if (value === undefined) throw new GatewayError('invalid_request', 'body: is not valid JSON')
  if (!isObject(value)) throw new GatewayError('invalid_request', 'body: must be an object')
  return value
}

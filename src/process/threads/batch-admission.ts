/** Admission of batch lines: the same checks as for an HTTP request, without a socket. Batch thread. */

import { GatewayError } from '../../base/errors.ts'
import type { RequestSignal } from '../../base/signal.ts'
import type { TracePlace } from '../../base/telemetry/request-trace.ts'
import type { AdmittedLine, EndedRun } from '../../batches/line-run.ts'
import { Admission, type AdmissionOwner, type AdmittedReply } from '../../server/admission/admission.ts'
import type { AdmissionControl } from '../../server/admission/admission-control.ts'
import { HeldBytes } from '../../server/admission/load.ts'
import type { KeyRecord } from '../../storage/store.ts'

/** For the log line: not an HTTP method. */
const METHOD = 'BATCH'

export class BatchAdmission implements AdmissionOwner, AdmittedLine {
  readonly method = METHOD
  readonly route: string
  readonly path = undefined
  readonly client = undefined
  readonly isAwaited = false
  key: KeyRecord | null = null
  reply: AdmittedReply = { status: 0, ended: false, error: null, summary: undefined }
  readonly held: HeldBytes
  readonly #admission: Admission
  readonly #givenUp = Promise.withResolvers<never>()

  /** @param route label of metrics  @param id generation id */
  constructor(control: AdmissionControl, route: string, id: string) {
    this.route = route
    this.held = new HeldBytes(control.load)
    this.#admission = new Admission(control, this, id)
    this.#admission.open()
    // Whoever runs the line may have its end already.
    this.#givenUp.promise.catch(() => undefined)
  }

  get id(): string {
    return this.#admission.id
  }

  get watch() {
    return this.#admission.watch
  }

  get trace(): TracePlace | null {
    const { trace } = this.#admission
    return trace === null ? null : { request: trace, parentId: null }
  }

  get signal(): RequestSignal {
    return this.#admission.signal
  }

  get givenUp(): Promise<never> {
    return this.#givenUp.promise
  }

  owned(key: KeyRecord): void {
    this.key = key
    this.held.belongTo(key)
  }

  begin(): void {
    this.#admission.startDeadline()
  }

  abort(reason: GatewayError): void {
    this.#admission.abort(reason)
  }

  leave(): void {
    this.#admission.clientGone()
  }

  finish({ status, error, summary }: EndedRun): void {
    // A caller who has left gets no answer.
    this.reply = { status, ended: error?.code !== 'client_closed', error, summary }
    this.#admission.finish()
    this.held.release()
  }

  drop(): void {
    this.#admission.drop()
    this.held.release()
  }

  onAbort(): void {
    // The signal ends the work.
  }

  giveUp(): void {
    const reason = this.#admission.reason ?? new GatewayError('deadline_exceeded', 'Operation timed out')
    this.reply = { status: reason.status, ended: true, error: reason, summary: undefined }
    this.#givenUp.reject(reason)
  }
}

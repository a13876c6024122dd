/** Admission of batch lines: the same checks as for an HTTP request, without a socket. Batch thread. */

import type { GatewayError } from '../../base/errors.ts'
import type { AdmittedLine, EndedRun } from '../../batches/line-run.ts'
import type { KeyRecord } from '../../protocol/management/keys.ts'
import type { AdmissionControl } from '../../server/admission/admission-control.ts'
import { type AdmittedReply, AdmittedRequest } from '../../server/admission/admitted-request.ts'

export class BatchAdmission extends AdmittedRequest implements AdmittedLine {
  /** For the log line: not an HTTP method. */
  readonly method = 'BATCH'
  readonly route: string
  readonly path = undefined
  readonly address = undefined
  readonly requestId = undefined
  readonly userAgent = undefined
  readonly callerContext = null
  readonly isAwaited = false
  readonly isQuiet = false
  reply: AdmittedReply = { status: 0, ended: false, error: null, summary: undefined }
  readonly #givenUp = Promise.withResolvers<never>()

  /** @param route label of metrics  @param id generation id */
  constructor(control: AdmissionControl, route: string, id: string) {
    super(control, id)
    this.route = route
    control.open.add(this)
    // Nobody may be waiting for it any more, and a rejection without a handler would end the thread.
    this.#givenUp.promise.catch(() => undefined)
  }

  get givenUp(): Promise<never> {
    return this.#givenUp.promise
  }

  assignKey(key: KeyRecord): void {
    this.key = key
    this.held.belongTo(key)
  }

  report({ status, error, summary }: EndedRun): void {
    // A caller who has left gets no answer.
    this.reply = { status, ended: error?.code !== 'client_closed', error, summary }
    this.finish()
  }

  protected onAbort(): void {
    // The signal ends the work.
  }

  protected onRevoked(): void {
    // The signal ends the work.
  }

  protected onGivenUp(reason: GatewayError): void {
    this.reply = { status: reason.status, ended: true, error: reason, summary: undefined }
    this.#givenUp.reject(reason)
  }
}

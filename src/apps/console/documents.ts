/**
 * The documents behind views, in the form of the management API: calls its handlers directly, with the key of the
 * signed-in user. So a view never shows more than the API returns for that key.
 */
import type { ApiRequest, Handler, Reply } from '../../api/operation.ts'
import type { Clock } from '../../base/clock.ts'
import type { GatewayError } from '../../base/errors.ts'
import { Stopwatch } from '../../base/metrics/stages.ts'
import { UNCOUNTED } from '../../exchange/exchange.ts'
import type { KeyRecord } from '../../protocol/management/keys.ts'

/**
 * The document with which a handler answers.
 * @throws GatewayError if the handler refuses
 */
export async function documentOf(
  handler: Handler,
  key: KeyRecord,
  query: URLSearchParams,
  clock: Clock,
): Promise<unknown> {
  const request: ApiRequest = {
    context: {
      id: '',
      watch: new Stopwatch(clock.monotonicMs()),
      held: UNCOUNTED,
      signal: new AbortController().signal,
      callerContext: null,
      trace: null,
      address: '',
      route: '',
      outlive: () => false,
      abort: () => undefined,
      waitForSlot: () => null,
    },
    headers: new Map(),
    host: '',
    params: new Map(),
    query,
    body: undefined,
    bodyDigest: null,
    key,
  }
  const reply = new DocumentReply()
  await handler(request, reply)
  return reply.document
}

/** Stores one document. Handlers of views answer in no other way. */
class DocumentReply implements Reply {
  document: unknown
  summary = undefined
  requestedModel = undefined
  error: GatewayError | null = null
  replayOf = undefined
  stream = null
  status = 0
  ended = false

  get started(): boolean {
    return this.ended
  }

  header(): void {
    // Headers are not needed.
  }

  setRate(): void {
    // Headers are not needed.
  }

  setProviderRates(): void {
    // Headers are not needed.
  }

  json(status: number, document: unknown): void {
    this.status = status
    this.document = document
    this.ended = true
  }

  written(json: string | Buffer): void {
    this.json(200, JSON.parse(json.toString()))
  }

  failure(error: GatewayError): void {
    throw error
  }

  notModified(): void {
    throw new TypeError('a view has no conditions')
  }

  openStream(): boolean {
    throw new TypeError('a view is one document')
  }

  openSlices(): boolean {
    throw new TypeError('a view is one document')
  }

  writeStream(): boolean {
    throw new TypeError('a view is one document')
  }

  endStream(): void {
    throw new TypeError('a view is one document')
  }

  onProgress(): void {
    // A document is not written in steps.
  }

  abort(): void {
    throw new TypeError('a view is one document')
  }

  seal(): void {
    // Nobody keeps a copy.
  }

  copyTo(): void {
    throw new TypeError('the document of a console view can be neither copied nor repeated')
  }

  repeat(): void {
    throw new TypeError('the document of a console view can be neither copied nor repeated')
  }
}

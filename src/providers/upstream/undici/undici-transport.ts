/**
 * The transport for everything but direct HTTP/1.1: egress proxies, HTTP/2, client certificates. It drives undici
 * through its dispatch interface, and enforces the same deadlines, isolation and queueing as the direct transport.
 * Serve threads.
 */
import { type GatewayError, rewritten } from '../../../base/errors.ts'
import { RunningCall } from '../client/call.ts'
import { tooFinelyCut } from '../client/reply-parser.ts'
import { RequestHeads } from '../client/request-head.ts'
import { LONG_READ_BYTES, type Reader, ReadTurns, TURN_BYTES } from '../read-turns.ts'
import {
  DEFAULT_LIMITS,
  type Transport,
  type TransportOptions,
  transportError,
  type UpstreamHandler,
  type UpstreamHead,
  type UpstreamRequest,
  unavailable,
} from '../transport.ts'
import { JoinedPieces } from './joined-pieces.ts'
import {
  type CrossingClient,
  type Undici,
  type UndiciController,
  type UndiciPool,
  UndiciPools,
  type UndiciRoute,
} from './undici-pools.ts'

interface UndiciTransportOptions extends TransportOptions {
  readonly route: UndiciRoute
}

/** Creates the transport. Its calls end in exactly one of `onEnd`, `onError` and `abort`. */
export function createUndiciTransport(options: UndiciTransportOptions): Transport {
  const settings = { ...DEFAULT_LIMITS, onReplay: () => undefined, ...options }
  const pools = new UndiciPools(settings)
  const heads = new RequestHeads(settings.userAgent)
  const shared: SharedState = { settings, pools, heads, turns: new ReadTurns() }
  return {
    start(request, handler) {
      const call = new UndiciCall(shared, request, handler)
      call.start()
      return call
    },
    close: () => pools.close(),
  }
}

type Settings = Required<UndiciTransportOptions>

/** State that all calls of one transport share. */
interface SharedState {
  readonly settings: Settings
  readonly pools: UndiciPools
  readonly heads: RequestHeads
  readonly turns: ReadTurns
}

/** The reason given to undici for an abort. It is never shown. */
const CALL_OVER_ERROR = new Error('the call is over')

class UndiciCall extends RunningCall implements Undici.DispatchHandler, Reader {
  readonly #shared: SharedState
  readonly #request: UpstreamRequest
  /** Bytes of the body from one read, which are passed on together. */
  readonly #pieces = new JoinedPieces()
  readBytes = 0
  #options: Undici.DispatchOptions | null = null
  #pool: UndiciPool | null = null
  #controller: UndiciController | null = null
  /** The client that carries the request, once undici has chosen it. */
  #client: CrossingClient | null = null
  #isStarting = true
  #isAnswered = false
  #hasHead = false
  #wasResent = false
  /** True from the first chunk of a read until its chunks are passed on. */
  #isDeliveryScheduled = false
  /** True while other connections have their turn. */
  #isWaiting = false
  #isEnded = false
  /** Bytes of the body that are still missing; NaN if the head states no length. */
  #missingBytes = Number.NaN
  #writtenMs = 0

  constructor(shared: SharedState, request: UpstreamRequest, handler: UpstreamHandler) {
    super(shared.settings, request, handler)
    this.#shared = shared
    this.#request = request
  }

  start(): void {
    const { pools, heads } = this.#shared
    const { method = 'POST', url, body, isolation } = this.#request
    try {
      const { path, headers } = heads.parts(this.#request)
      if (pools.isClosed) throw unavailable('The gateway is shutting down')
      this.#options = {
        origin: url.origin,
        path,
        method,
        headers: [...headers],
        body: method === 'POST' ? body : null,
        headersTimeout: 0,
        bodyTimeout: 0,
      }
      this.#pool = pools.pool(url, isolation)
      this.#pool.seek(this)
    } catch (thrown) {
      queueMicrotask(() => this.fail(transportError(thrown, false)))
    } finally {
      this.#isStarting = false
    }
  }

  /** Called by the pool, once there is room for the call. */
  onSlot(): void {
    if (this.#options !== null) this.#pool?.dispatcher.dispatch(this.#options, this)
  }

  /** Called by the pool that is being closed. */
  onRefused(error: Error): void {
    this.fail(transportError(error, false))
  }

  /** Called by the client that undici has chosen. */
  onClient(client: CrossingClient): void {
    this.#client = client
  }

  /** @throws CALL_OVER_ERROR, so that undici drops the request and keeps the connection */
  onRequestStart(controller: UndiciController): void {
    if (this.isOver) throw CALL_OVER_ERROR
    this.#controller = controller
    this.#pool?.onWritten(this)
  }

  onRequestSent(): void {
    if (this.isOver) return
    this.#writtenMs = this.#shared.settings.clock.monotonicMs()
    this.onSent()
  }

  onResponseStarted(): void {
    this.#isAnswered = true
  }

  onResponseStart(
    controller: UndiciController,
    status: number,
    headers: Undici.ResponseData['headers'],
  ): void {
    this.#isAnswered = true
    // Interim replies contain nothing that is used.
    if (this.isOver || status < 200) return
    this.#hasHead = true
    const plain = plainHeaders(controller.rawHeaders, headers)
    this.#missingBytes = Number(plain['content-length'] ?? Number.NaN)
    this.onHead({ status, headers: plain })
  }

  onResponseData(controller: UndiciController, chunk: Buffer): void {
    if (this.isOver) return
    this.#missingBytes -= chunk.length
    if (!this.#pieces.add(chunk)) {
      this.fail(tooFinelyCut())
      return
    }
    if (this.#pieces.length >= TURN_BYTES) controller.pause()
    if (this.#isDeliveryScheduled) return
    this.#isDeliveryScheduled = true
    process.nextTick(continueReading, this)
  }

  onResponseEnd(): void {
    this.#client?.countReply()
    if (this.isOver) return
    this.#isEnded = true
    // After the end of a reply, no other connection has to wait.
    if (!this.isPaused) this.#deliver()
  }

  /** Called by `ReadTurns`. */
  readOn(): void {
    this.#isWaiting = false
    if (this.#isHeld()) return
    // Joins the rest of the read with the bytes that undici has already read.
    this.#controller?.resume()
    this.continueReading()
  }

  /** Passes on the bytes of the last read, and continues to read. Never called from inside undici. */
  continueReading(): void {
    this.#isDeliveryScheduled = false
    if (this.#isHeld()) return
    this.#deliver()
    if (!this.#isHeld()) this.#controller?.resume()
  }

  #isHeld(): boolean {
    return this.isOver || this.isPaused || this.#isWaiting
  }

  #deliver(): void {
    if (this.#pieces.length > 0) {
      if (!this.#isEnded) this.#countRead(this.#pieces.costBytes)
      this.onBody(this.#pieces.drain(), this.#isEnded)
    }
    if (this.#isEnded && !this.isOver) this.#end()
  }

  /** Counts a read. Stops reading until other connections have had their turn, if the turn has used up its bytes. */
  #countRead(costBytes: number): void {
    const { turns } = this.#shared
    if (costBytes < LONG_READ_BYTES) turns.shortBytes += costBytes
    else if (!turns.admits(costBytes)) {
      this.readBytes = costBytes
      this.#isWaiting = true
      this.#controller?.pause()
      turns.join(this)
    }
  }

  onResponseError(_controller: UndiciController | null, error: Error): void {
    if (this.isOver) return
    if (this.#isStarting) queueMicrotask(() => this.#onLost(error))
    else this.#onLost(error)
  }

  #end(): void {
    this.#pool?.release(this)
    this.onDone()
  }

  #onLost(error: Error): void {
    // Bytes that were read before are passed on even to a paused call.
    if (!this.isOver) this.#deliver()
    if (this.isOver) return
    // Undici treats a close as a fault if the call is paused at the last byte.
    if (this.#missingBytes === 0 && BROKEN_CODES.has(codeOf(error))) this.#end()
    else if (this.#mayResend(error)) this.#resend()
    else if (!this.#hasHead && codeOf(error) === 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH') {
      this.fail(unavailable(WRONG_LENGTH, error))
    } else this.fail(this.#lossError(error))
  }

  /** Many calls can be lost with one HTTP/2 connection, but that is one fault of the endpoint. */
  #lossError(error: Error): GatewayError {
    const lossFailure = failureOf(error, this.isSent)
    if (!this.#shared.settings.route.http2 || !BROKEN_CODES.has(codeOf(error))) return lossFailure
    return this.#client?.markLost() === false ? rewritten(lossFailure, { wasCounted: true }) : lossFailure
  }

  /** True if the provider closed the kept connection at the time of the write without replying. */
  #mayResend(error: Error): boolean {
    const { settings, pools } = this.#shared
    if (this.#wasResent || this.#isAnswered || !this.isSent || pools.isClosed) return false
    if (!BROKEN_CODES.has(codeOf(error)) || this.#client === null) return false
    return this.#client.isCrossing(settings.clock.monotonicMs() - this.#writtenMs)
  }

  #resend(): void {
    const { settings } = this.#shared
    if (this.#options === null || this.#pool === null) return
    this.#wasResent = true
    this.#controller = null
    this.#client = null
    settings.onReplay()
    this.beginAgain()
    this.#pool.dispatchFresh(this.#options, this)
  }

  protected holdBody(): void {
    this.#controller?.pause()
  }

  protected releaseBody(): void {
    // Undici calls back from inside `resume`.
    queueMicrotask(() => this.continueReading())
  }

  /**
   * Over HTTP/2, undici is informed one turn later. If a stream that waits for its place on the connection is ended in
   * the turn in which its body was written, Node 22 writes empty frames forever and the thread hangs.
   */
  protected dropConnection(): void {
    const controller = this.#controller
    this.#controller = null
    this.#options = null
    this.#pool?.release(this)
    if (controller === null) return
    if (this.#shared.settings.route.http2) setImmediate(() => controller.abort(CALL_OVER_ERROR))
    else controller.abort(CALL_OVER_ERROR)
  }
}

function continueReading(call: UndiciCall): void {
  call.continueReading()
}

/** The last value of each header, under lower-case names. */
function plainHeaders(
  raw: UndiciController['rawHeaders'],
  headers: Undici.ResponseData['headers'],
): UpstreamHead['headers'] {
  const plain: Record<string, string> = Object.create(null)
  if (Array.isArray(raw)) {
    for (let index = 0; index + 1 < raw.length; index += 2) {
      plain[textOf(raw[index]).toLowerCase()] = textOf(raw[index + 1])
    }
    return plain
  }
  for (const [name, value] of Object.entries(headers)) {
    const lastValue = Array.isArray(value) ? value.at(-1) : value
    if (lastValue !== undefined) plain[name.toLowerCase()] = lastValue
  }
  return plain
}

function textOf(value: Buffer | string | undefined): string {
  return typeof value === 'string' ? value : (value?.toString('latin1') ?? '')
}

/** Codes that mean that the connection broke, as opposed to an invalid reply. */
const BROKEN_CODES: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE', 'ECONNABORTED', 'UND_ERR_SOCKET'])

const WRONG_LENGTH = 'The provider sent a reply of the wrong length'

/** The gateway's own messages for undici's errors, where the messages of `transportError` do not fit. */
const MESSAGE_OF_CODE: Readonly<Record<string, string>> = {
  UND_ERR_HEADERS_OVERFLOW: 'The provider sent headers that are too large',
  UND_ERR_RES_EXCEEDED_MAX_SIZE: 'The provider sent a reply that is too large',
  HPE_UNEXPECTED_CONTENT_LENGTH: WRONG_LENGTH,
  HPE_INVALID_CONTENT_LENGTH: WRONG_LENGTH,
  HPE_INVALID_TRANSFER_ENCODING: WRONG_LENGTH,
  HPE_UNEXPECTED_TRANSFER_ENCODING: WRONG_LENGTH,
}

function failureOf(error: Error, isSent: boolean) {
  const code = codeOf(error)
  const message = MESSAGE_OF_CODE[code]
  if (message !== undefined) return unavailable(message, error)
  if (error.name === 'HTTPParserError') {
    return unavailable('The provider sent a reply that is not valid HTTP', error)
  }
  return transportError(error, isSent)
}

function codeOf(error: Error): string {
  const code: unknown = Reflect.get(error, 'code')
  return typeof code === 'string' ? code : ''
}

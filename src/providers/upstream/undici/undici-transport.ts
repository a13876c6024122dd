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
  LIMITS,
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
  const settings = { ...LIMITS, onReplay: () => undefined, ...options }
  const pools = new UndiciPools(settings)
  const heads = new RequestHeads(settings.userAgent)
  const shared: Shared = { settings, pools, heads, turns: new ReadTurns() }
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
interface Shared {
  readonly settings: Settings
  readonly pools: UndiciPools
  readonly heads: RequestHeads
  readonly turns: ReadTurns
}

/** The reason given to undici for an abort. It is never shown. */
const CALL_OVER = new Error('the call is over')

class UndiciCall extends RunningCall implements Undici.DispatchHandler, Reader {
  readonly #shared: Shared
  readonly #request: UpstreamRequest
  /** Bytes of the body from one read, which are passed on together. */
  readonly #joined = new JoinedPieces()
  readBytes = 0
  #options: Undici.DispatchOptions | null = null
  #pool: UndiciPool | null = null
  #controller: UndiciController | null = null
  /** The client that carries the request, once undici has chosen it. */
  #client: CrossingClient | null = null
  #isStarting = true
  #isAnswered = false
  #isHeaded = false
  #isRepeated = false
  /** True from the first chunk of a read until its chunks are passed on. */
  #isJoining = false
  /** True while other connections have their turn. */
  #isWaiting = false
  #isEnded = false
  /** Bytes of the body that are still missing; NaN if the head states no length. */
  #missing = Number.NaN
  #writtenMs = 0

  constructor(shared: Shared, request: UpstreamRequest, handler: UpstreamHandler) {
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
  onRoom(): void {
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

  /** @throws LEFT, so that undici drops the request and keeps the connection */
  onRequestStart(controller: UndiciController): void {
    if (this.isOver) throw CALL_OVER
    this.#controller = controller
    this.#pool?.onBegun(this)
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
    this.#isHeaded = true
    const plain = plainHeaders(controller.rawHeaders, headers)
    this.#missing = Number(plain['content-length'] ?? Number.NaN)
    this.onHead({ status, headers: plain })
  }

  onResponseData(controller: UndiciController, chunk: Buffer): void {
    if (this.isOver) return
    this.#missing -= chunk.length
    if (!this.#joined.add(chunk)) {
      this.fail(tooFinelyCut())
      return
    }
    if (this.#joined.length >= TURN_BYTES) controller.pause()
    if (this.#isJoining) return
    this.#isJoining = true
    process.nextTick(goOn, this)
  }

  onResponseEnd(): void {
    this.#client?.served()
    if (this.isOver) return
    this.#isEnded = true
    // After the end of a reply, no other connection has to wait.
    if (!this.isPaused) this.#passOn()
  }

  /** Called by `ReadTurns`. */
  readOn(): void {
    this.#isWaiting = false
    if (this.#isHeld()) return
    // Joins the rest of its read with what undici had in hand.
    this.#controller?.resume()
    this.goOn()
  }

  /** Passes on the bytes of the last read, and continues to read. Never called from inside undici. */
  goOn(): void {
    this.#isJoining = false
    if (this.#isHeld()) return
    this.#passOn()
    if (!this.#isHeld()) this.#controller?.resume()
  }

  #isHeld(): boolean {
    return this.isOver || this.isPaused || this.#isWaiting
  }

  #passOn(): void {
    if (this.#joined.length > 0) {
      if (!this.#isEnded) this.#countRead(this.#joined.costBytes)
      this.onBody(this.#joined.drain(), this.#isEnded)
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
    if (this.#isStarting) queueMicrotask(() => this.#lost(error))
    else this.#lost(error)
  }

  #end(): void {
    this.#pool?.release(this)
    this.onDone()
  }

  #lost(error: Error): void {
    // Bytes that were read before are passed on even to a paused call.
    if (!this.isOver) this.#passOn()
    if (this.isOver) return
    // Undici treats a close as a fault if the call is paused at the last byte.
    if (this.#missing === 0 && BROKEN.has(codeOf(error))) this.#end()
    else if (this.#mayRepeat(error)) this.#repeat()
    else if (!this.#isHeaded && codeOf(error) === 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH') {
      this.fail(unavailable(WRONG_LENGTH, error))
    } else this.fail(this.#lossError(error))
  }

  /** Many calls can be lost with one HTTP/2 connection, but that is one fault of the endpoint. */
  #lossError(error: Error): GatewayError {
    const failed = failure(error, this.isSent)
    if (!this.#shared.settings.route.http2 || !BROKEN.has(codeOf(error))) return failed
    return this.#client?.lose() === false ? rewritten(failed, { wasCounted: true }) : failed
  }

  /** True if the provider closed the kept connection at the time of the write without replying. */
  #mayRepeat(error: Error): boolean {
    const { settings, pools } = this.#shared
    if (this.#isRepeated || this.#isAnswered || !this.isSent || pools.isClosed) return false
    if (!BROKEN.has(codeOf(error)) || this.#client === null) return false
    return this.#client.isCrossing(settings.clock.monotonicMs() - this.#writtenMs)
  }

  #repeat(): void {
    const { settings } = this.#shared
    if (this.#options === null || this.#pool === null) return
    this.#isRepeated = true
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
    queueMicrotask(() => this.goOn())
  }

  /**
   * Over HTTP/2, undici is informed one turn later. If a stream that waits for its place on the connection is ended in
   * the turn in which its body was written, Node 22 writes empty frames forever and the thread hangs.
   */
  protected leave(): void {
    const controller = this.#controller
    this.#controller = null
    this.#options = null
    this.#pool?.release(this)
    if (controller === null) return
    if (this.#shared.settings.route.http2) setImmediate(() => controller.abort(CALL_OVER))
    else controller.abort(CALL_OVER)
  }
}

function goOn(call: UndiciCall): void {
  call.goOn()
}

/** The last value of each header, under lower-case names. */
function plainHeaders(
  raw: UndiciController['rawHeaders'],
  headers: Undici.ResponseData['headers'],
): UpstreamHead['headers'] {
  const plain: Record<string, string> = Object.create(null)
  if (Array.isArray(raw)) {
    for (let at = 0; at + 1 < raw.length; at += 2) {
      plain[textOf(raw[at]).toLowerCase()] = textOf(raw[at + 1])
    }
    return plain
  }
  for (const [name, value] of Object.entries(headers)) {
    const last = Array.isArray(value) ? value.at(-1) : value
    if (last !== undefined) plain[name.toLowerCase()] = last
  }
  return plain
}

function textOf(value: Buffer | string | undefined): string {
  return typeof value === 'string' ? value : (value?.toString('latin1') ?? '')
}

/** Codes that mean that the connection broke, as opposed to an invalid reply. */
const BROKEN: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE', 'ECONNABORTED', 'UND_ERR_SOCKET'])

const WRONG_LENGTH = 'The provider sent a reply of the wrong length'

/** The gateway's own messages for undici's errors, where the messages of `transportError` do not fit. */
const MESSAGES: Readonly<Record<string, string>> = {
  UND_ERR_HEADERS_OVERFLOW: 'The provider sent headers that are too large',
  UND_ERR_RES_EXCEEDED_MAX_SIZE: 'The provider sent a reply that is too large',
  HPE_UNEXPECTED_CONTENT_LENGTH: WRONG_LENGTH,
  HPE_INVALID_CONTENT_LENGTH: WRONG_LENGTH,
  HPE_INVALID_TRANSFER_ENCODING: WRONG_LENGTH,
  HPE_UNEXPECTED_TRANSFER_ENCODING: WRONG_LENGTH,
}

function failure(error: Error, isSent: boolean) {
  const code = codeOf(error)
  const message = MESSAGES[code]
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

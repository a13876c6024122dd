/**
 * `Idempotency-Key`: a client that sends its request again under the same key gets the answer of the first request,
 * complete or still running, and pays once. The first request claims the key and writes its answer into a transcript,
 * even if its client leaves; the others read the transcript (replay.ts). A request without the header never comes here.
 */
import { hash } from 'node:crypto'
import { FAILURES, GatewayError, refuseField } from '../base/errors.ts'
import { callerOf } from '../callers/keys.ts'
import type { ClientRequest } from '../exchange/exchange.ts'
import { isObject } from '../protocol/json/schema.ts'
import { IDEMPOTENCY_KEY_PATTERN } from '../protocol/limits.ts'
import { countFrames, framed } from '../storage/transcripts/frames.ts'
import {
  isEarlierClaim,
  type TranscriptClaim,
  type TranscriptNotice,
  type TranscriptWriter,
} from '../storage/transcripts/transcripts.ts'
import type { InferenceParts } from './inference-parts.ts'
import type { AnswerHead, ApiContext, ApiRequest, Handler, Reply, ReplyCopy } from './operation.ts'
import { noAnswer, Replay } from './replay.ts'
import { RESUMABLE_HEADER } from './resumable.ts'
import { type FrameSeal, sealedFrames } from './unmasked-frames.ts'

export const IDEMPOTENCY_HEADER = 'idempotency-key'
const HEADER_IN_MESSAGES = 'Idempotency-Key'
const IDEMPOTENCY_KEY = new RegExp(IDEMPOTENCY_KEY_PATTERN)
/** How long a run may last without its client and without a replay. Then it is aborted, as for any client that left. */
const MAX_UNREAD_MS = 10_000
/** Status codes of failures that the same request would get again. */
const KEPT_FAILURE_STATUSES: ReadonlySet<number> = new Set([400, 413, 422])
/** The answer may be dropped after this request has found its claim and before it reads; then it claims again. */
const MAX_CLAIM_ATTEMPTS = 3
const LOSS_WITHOUT_KEEPING: ClientRequest['losses'] = [
  {
    field: `header:${HEADER_IN_MESSAGES}`,
    action: 'dropped',
    reason: 'the request forbids keeping its answer',
  },
]

/** An operation whose requests may be sent twice. */
export interface RepeatedOperation {
  /** Reads the request. @throws GatewayError */
  readonly callOf: (request: ApiRequest, reply: Reply) => ClientRequest
  readonly handler: Handler
}

export type IdempotencyDeps = Pick<
  InferenceParts,
  'gateway' | 'dataRegionOf' | 'transcripts' | 'frameSeal' | 'stream' | 'restrictionsOf' | 'replayKeptMs'
>

/** Answers a request that has the header. */
export async function answerOnce(
  deps: IdempotencyDeps,
  operation: RepeatedOperation,
  request: ApiRequest,
  reply: Reply,
): Promise<void> {
  const idempotencyKey = idempotencyKeyOf(request.headers)
  const { context } = request
  const requestWithoutKey = withoutKey(request)
  const restrictions = await deps.restrictionsOf(callerOf(request.key))
  if (restrictions?.zeroRetention === true || forbidsKeeping(request.body)) {
    await operation.handler({ ...requestWithoutKey, losses: LOSS_WITHOUT_KEEPING }, reply)
    return
  }
  const keyHash = request.key.hash
  const digest = digestOf(request, deps.dataRegionOf(request.host))
  const claim: TranscriptClaim = {
    id: `${context.id}@once`,
    keyHash,
    name: hash('sha256', idempotencyKey, 'base64url'),
    digest,
    unreadMs: MAX_UNREAD_MS,
    keptMs: deps.replayKeptMs,
  }
  for (let attempt = 0; attempt < MAX_CLAIM_ATTEMPTS; attempt++) {
    const run = new FirstRun(context, reply, deps.frameSeal, [claim.id, keyHash])
    const claimed = await deps.transcripts.claim(claim, notice => run.follow(notice))
    if (!isEarlierClaim(claimed)) {
      await run.start(claimed, () => operation.handler(requestWithoutKey, reply))
      return
    }
    if (claimed.digest !== digest) throw keyReusedError()
    await checkRights(deps, operation, requestWithoutKey, reply)
    const source = { id: claimed.id, keyHash, after: -1, isClaimed: true } as const
    const [generation] = claimed.id.split('@')
    reply.replayOf = generation
    if (await new Replay(deps, source, context, reply).run()) return
    reply.replayOf = undefined
  }
  throw noAnswer()
}

function keyReusedError(): GatewayError {
  return new GatewayError(
    'idempotency_key_reused',
    'This Idempotency-Key belongs to another request of this API key: send that request unchanged, or use a new key',
    { headers: { 'X-Should-Retry': 'false' } },
  )
}

/** @throws GatewayError `invalid_request` */
function idempotencyKeyOf(headers: ApiRequest['headers']): string {
  const idempotencyKey = headers.get(IDEMPOTENCY_HEADER) ?? ''
  if (!IDEMPOTENCY_KEY.test(idempotencyKey))
    throw refuseField(HEADER_IN_MESSAGES, 'must be 1 to 255 visible ASCII characters, without spaces')
  if ((headers.get(RESUMABLE_HEADER) ?? 'false').toLowerCase() !== 'false') {
    throw refuseField(
      HEADER_IN_MESSAGES,
      'does not go with X-Gateway-Resumable: the stream of this key is read again with the same request; leave one of them out',
    )
  }
  return idempotencyKey
}

function withoutKey(request: ApiRequest): ApiRequest {
  const headers = new Map(request.headers)
  headers.delete(IDEMPOTENCY_HEADER)
  return { ...request, headers }
}

/** True if the request forbids keeping its data. */
function forbidsKeeping(body: unknown): boolean {
  const provider = isObject(body) ? body['provider'] : null
  return isObject(provider) && (provider['zdr'] === true || provider['data_collection'] === 'deny')
}

/** Rights may have changed since the first request. A request that cannot be read got a refusal, and gets it again. */
async function checkRights(
  { gateway }: IdempotencyDeps,
  { callOf }: RepeatedOperation,
  request: ApiRequest,
  reply: Reply,
): Promise<void> {
  let call: ClientRequest
  try {
    call = callOf(request, reply)
  } catch (thrown) {
    if (thrown instanceof GatewayError) return
    throw thrown
  }
  await gateway.permits(call)
}

/** Two requests with one digest are the same request. White space and headers do not count; the order of members does. */
function digestOf({ context, params, query, body }: ApiRequest, region: ClientRequest['dataRegion']): string {
  const parts = [context.route, [...params], query.toString(), region, body]
  return hash('sha256', JSON.stringify(parts), 'base64url')
}

/** The run of the first request: its client is one reader, and replays are others. */
class FirstRun implements ReplyCopy {
  readonly #context: ApiContext
  readonly #reply: Reply
  readonly #seal: FrameSeal
  readonly #owner: readonly string[]
  /** True if the kept answer contains originals of masked values. */
  #isSealed = false
  #writer: TranscriptWriter | null = null
  #form: AnswerHead['form'] = 'document'
  #isComplete = false
  #hasLeft = false
  /** False if the store had no room for the answer, or nobody read it in time. */
  #isReadable = true
  #isReadAgain = false
  /** True while the client is slow. */
  #isStalled = false
  #progress: ((isDrained: boolean) => void) | null = null

  constructor(context: ApiContext, reply: Reply, seal: FrameSeal, owner: readonly string[]) {
    this.#context = context
    this.#reply = reply
    this.#seal = seal
    this.#owner = owner
  }

  /** Runs the handler, then keeps its answer or forgets it. */
  async start(writer: TranscriptWriter, run: () => void | Promise<void>): Promise<void> {
    const { signal } = this.#context
    this.#writer = writer
    try {
      signal.throwIfAborted()
      this.#reply.copyTo(this)
      this.#context.outlive(() => this.#leave())
      try {
        await run()
      } catch (thrown) {
        if (!(thrown instanceof GatewayError) || this.#reply.started) throw thrown
        this.#reply.failure(thrown)
      }
      if (this.#isComplete) writer.end(this.#isKept())
    } finally {
      if (!this.#isComplete) writer.forget()
    }
  }

  follow(notice: TranscriptNotice): void {
    if (notice === 'read') {
      this.#isReadAgain = true
      if (this.#isStalled && !this.#hasLeft) this.#reply.abort()
      return
    }
    this.#isReadable = false
    if (this.#hasLeft) this.#giveUp()
  }

  begin(head: AnswerHead): void {
    this.#form = head.form
    this.#writer?.add(framed(JSON.stringify(head)), 1)
  }

  seal(): void {
    this.#isSealed = true
  }

  add(chunk: string | Buffer): void {
    const text = chunk.toString()
    if (text === '') return
    const frames = this.#form === 'events' ? text : framed(JSON.stringify(text))
    this.#writer?.add(
      this.#isSealed ? sealedFrames(this.#seal, frames, this.#owner) : frames,
      countFrames(frames),
    )
  }

  complete(): void {
    this.#isComplete = true
  }

  flows(isFlowing: boolean): boolean {
    this.#isStalled = !isFlowing
    // Its client has already sent the request again.
    if (!isFlowing && this.#isReadAgain && !this.#hasLeft) this.#reply.abort()
    return isFlowing || this.#hasLeft
  }

  onProgress(callback: (isDrained: boolean) => void): void {
    this.#progress = callback
  }

  #isKept(): boolean {
    const { error, summary } = this.#reply
    const code = error?.code ?? summary?.error ?? null
    return code === null || (this.#form === 'document' && KEPT_FAILURE_STATUSES.has(FAILURES[code].status))
  }

  #leave(): void {
    if (this.#hasLeft) return
    this.#hasLeft = true
    this.#writer?.leave()
    if (!this.#isReadable) this.#giveUp()
    // Called outside of the write, as at the end of every stall.
    else if (this.#isStalled) setImmediate(() => this.#progress?.(true))
  }

  #giveUp(): void {
    this.#context.abort(
      new GatewayError('client_closed', 'The client disconnected, and nobody asked again for the answer'),
    )
  }
}

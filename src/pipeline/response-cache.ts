/**
 * The response cache: equal requests get one answer. The first one claims the name of the request in the transcripts
 * and runs; the answer goes, event by event, to those that ask meanwhile, and is kept for later ones. A hit has passed
 * guardrails, routing and limits like any request, and costs nothing. Idempotency keys use the same claims and
 * transcripts (api/idempotency.ts), where the client gives the name. A request for which the cache is off never comes
 * here. Serve threads.
 */
import { hash } from 'node:crypto'
import { GatewayError, overloadError } from '../base/errors.ts'
import type { Exchange } from '../exchange/exchange.ts'
import { writtenJson } from '../protocol/json/as-written.ts'
import type { CachePolicy } from '../protocol/management/response-cache.ts'
import { WholeFrames } from '../storage/transcripts/frames.ts'
import {
  type EarlierClaim,
  isEarlierClaim,
  type TranscriptClaim,
  type TranscriptNotice,
  type TranscriptPart,
  type TranscriptReader,
  type Transcripts,
  type TranscriptWriter,
} from '../storage/transcripts/transcripts.ts'
import {
  type CacheUse,
  type KeptEnd,
  type KeptFrame,
  type ResponseCacheDeps,
  referenceOf,
} from './cached-request.ts'
import type { RunningExchange } from './exchange-stages.ts'
import { openRecord } from './turn/failover.ts'
import { runTurns, type TurnsDeps } from './turn/tool-loop.ts'

/** How long a run may last without its client and without another reader. Then it ends, as for a client that left. */
const UNREAD_MS = 10_000
/** Claims of a request whose awaited answers get lost, one after the other. After these it runs for itself. */
const MAX_CLAIMS = 3
/** Changes whenever the form of kept answers changes. */
const KEPT_FORM_VERSION = 1
/** Fields of a request that name its sender, or the form of the answer; they do not change what a model says. */
const IGNORED_FIELDS: ReadonlySet<string> = new Set([
  ...['stream', 'stream_options', 'user', 'safety_identifier', 'session_id', 'metadata', 'trace'],
  ...['prompt_cache_key', 'prompt_cache_retention', 'store'],
])

export type RunOnceDeps = TurnsDeps & ResponseCacheDeps

/** Gives a request the answer of an equal one, or runs its turns. Rejects as `runTurns` does. */
export async function runOnce(deps: RunOnceDeps, exchange: RunningExchange): Promise<void> {
  const { cache, signal } = exchange
  const counter = deps.metrics.responseCache
  if (cache === null || isUnfit(exchange)) {
    counter.inc({ outcome: 'unfit' })
    return runTurns(deps, exchange)
  }
  const { parts, policy, refreshes } = cache.terms
  const name = digestOf(exchange, policy.scope)
  for (let claimNumber = 0; claimNumber < MAX_CLAIMS; claimNumber++) {
    const nowMs = deps.clock.nowMs()
    const claim: TranscriptClaim = {
      id: `${exchange.id}@cache${claimNumber}`,
      keyHash: ownerOf(exchange),
      name,
      digest: name,
      unreadMs: UNREAD_MS,
      keptMs: policy.seconds * 1000,
      replacesBeforeMs: refreshes ? Number.POSITIVE_INFINITY : nowMs - policy.seconds * 1000,
      maxBytes: parts.maxBytes,
    }
    const claimResult = await claimOf(parts.transcripts, claim, notice => cache.follow(exchange, notice))
    if (claimResult === null) break
    if (!isEarlierClaim(claimResult)) {
      if (signal.aborted) claimResult.forget()
      else cache.lead(exchange, claimResult)
      counter.inc({ outcome: refreshes ? 'refresh' : 'miss' })
      signal.throwIfAborted()
      return runTurns(deps, exchange)
    }
    signal.throwIfAborted()
    // The exchange waits for another request's answer, so its reservation is released meanwhile.
    exchange.reservation?.release?.({ cost: 0, isByok: false, tokens: 0 })
    const outcome = await new AnswerReader(deps, exchange, cache, claimResult, claim.keyHash).run()
    if (outcome === 'given') {
      counter.inc({ outcome: claimResult.endedMs === null ? 'shared' : 'hit' })
      return
    }
    if (outcome === 'unreadable') break
  }
  counter.inc({ outcome: 'alone' })
  return runTurns(deps, exchange)
}

/** Null: the main thread is gone, and this request does not depend on it. */
async function claimOf(
  transcripts: Transcripts,
  claim: TranscriptClaim,
  onNotice: (notice: TranscriptNotice) => void,
): Promise<TranscriptWriter | EarlierClaim | null> {
  try {
    return await transcripts.claim(claim, onNotice)
  } catch {
    return null
  }
}

/** True for a request whose answer is for it alone, or must not be kept. */
function isUnfit({ bill, innerCalls, prompt, tools, zeroRetention }: RunningExchange): boolean {
  if (zeroRetention || tools !== null || innerCalls !== null) return true
  // Plugins have already paid for something that went into the prompt.
  if (bill.tools.cost + bill.inner.cost > 0 || bill.searches > 0) return true
  return prompt.tools?.some(({ type }) => type !== 'function' && type !== 'custom') === true
}

/** Answers belong to a workspace: its bytes are counted together, and nobody else can find them. */
function ownerOf({ caller: { organizationId, workspaceId } }: Exchange): string {
  return hash('sha256', JSON.stringify(['response cache', organizationId, workspaceId]))
}

/** Two requests with one digest may have one answer. */
function digestOf(exchange: RunningExchange, scope: CachePolicy['scope']): string {
  const { candidates, caller, dataRegion, dialect, disabledTools, guarding, plugins, prompt, request } =
    exchange
  const { caching, keyHash } = caller
  const parts = [
    KEPT_FORM_VERSION,
    scope === 'key' ? keyHash : null,
    caching?.generation ?? null,
    guarding?.revision ?? null,
    [...disabledTools].sort(),
    dialect,
    dataRegion,
    // Plugins that replace items do so in whole answers only.
    plugins?.finishes === true && request.stream === true,
    candidates.map(referenceOf).sort(),
  ]
  const fields = Object.entries(prompt).filter(([name, value]) => value != null && !IGNORED_FIELDS.has(name))
  return hash('sha256', `${JSON.stringify(parts)}\n${writtenJson(Object.fromEntries(fields))}`, 'base64url')
}

/** `lost`: the answer is gone, so another one may be looked for; `unreadable`: no answer can be read. */
type ReadOutcome = 'given' | 'lost' | 'unreadable'

/** Gives an earlier answer, from its first event to its end, as fast as the client reads. */
class AnswerReader {
  readonly #deps: RunOnceDeps
  readonly #exchange: RunningExchange
  readonly #cache: CacheUse
  readonly #claim: EarlierClaim
  readonly #owner: string
  readonly #frames = new WholeFrames()
  readonly #outcome = Promise.withResolvers<ReadOutcome>()
  #reader: TranscriptReader | null = null
  #isPaused = false
  /** True while a part waits for the client. */
  #isDue = false
  #isOver = false

  constructor(
    deps: RunOnceDeps,
    exchange: RunningExchange,
    cache: CacheUse,
    claim: EarlierClaim,
    owner: string,
  ) {
    this.#deps = deps
    this.#exchange = exchange
    this.#cache = cache
    this.#claim = claim
    this.#owner = owner
  }

  /** Reads the answer into the exchange. Rejects with its failure, or with the reason of the exchange's signal. */
  run(): Promise<ReadOutcome> {
    const { answer, masks, signal } = this.#exchange
    if (masks !== null) answer.sink.unmask?.(masks)
    answer.openTurn(false)
    answer.follow({
      pause: () => {
        this.#isPaused = true
      },
      resume: () => {
        this.#isPaused = false
        this.#goOn()
      },
    })
    const question = { id: this.#claim.id, keyHash: this.#owner, after: -1, isClaimed: true } as const
    this.#reader = this.#cache.terms.parts.transcripts.read(question, part => this.#take(part))
    signal.addEventListener('abort', this.#onAbort, { once: true })
    return this.#outcome.promise
  }

  #take(part: TranscriptPart): void {
    if (this.#isOver) return
    if (part.kind !== 'frames') {
      this.#lose(part.kind === 'busy' || part.kind === 'dropped' ? 'unreadable' : 'lost')
      return
    }
    const { answer, held } = this.#exchange
    if (!held.count(part.bytes.length)) {
      this.#fail(overloadError())
      return
    }
    try {
      const frames = this.#frames.add(part)
      answer.hold()
      if (frames !== null) for (const frame of framesIn(frames)) if (!this.#isOver) this.#give(frame)
      if (!answer.flush()) this.#isPaused = true
    } catch (thrown) {
      this.#fail(thrown)
      return
    }
    if (answer.live) held.count(-part.bytes.length)
    // The last part without an end: a run that ended in another way.
    if (part.isEnd && !this.#isOver) this.#lose('lost')
    this.#isDue = true
    this.#goOn()
  }

  #goOn(): void {
    if (!this.#isDue || this.#isPaused || this.#isOver) return
    this.#isDue = false
    this.#reader?.next()
  }

  #give(frame: KeptFrame): void {
    const { answer } = this.#exchange
    if ('event' in frame) answer.repeat(frame.event)
    else if ('item' in frame) answer.repeatItem(frame.item)
    else if ('begin' in frame) this.#begin(frame.begin)
    else if ('end' in frame) this.#end(frame.end)
    else {
      const { code, message, ...details } = frame.failed
      this.#fail(new GatewayError(code, message, details as ConstructorParameters<typeof GatewayError>[2]))
    }
  }

  #begin({ id, candidate, changes, read }: Extract<KeptFrame, { begin: unknown }>['begin']): void {
    const exchange = this.#exchange
    const { answer, candidates, watch } = exchange
    const { clock } = this.#deps
    const matchingCandidate = candidates.find(routeCandidate => referenceOf(routeCandidate) === candidate)
    if (matchingCandidate === undefined) {
      this.#lose('unreadable')
      return
    }
    const attempt = openRecord(matchingCandidate)
    if (changes !== undefined) attempt.changes = changes
    const { endedMs } = this.#claim
    exchange.repeated = { attempt, source: id, endedAt: null }
    const nowMs = clock.monotonicMs()
    watch.enter('stream', nowMs)
    exchange.firstTokenMs = nowMs
    const age = endedMs === null ? 0 : Math.max(0, Math.floor((clock.nowMs() - endedMs) / 1000))
    answer.sink.reportCached?.(age)
    if (changes !== undefined) answer.sink.reportChanges?.(changes.length)
    answer.begin(
      matchingCandidate.endpoint.modelId,
      matchingCandidate.endpoint.provider.name,
      [],
      read ?? null,
    )
  }

  #end({ at, finish, usage, pipeline, fields, isLimited }: KeptEnd): void {
    const exchange = this.#exchange
    const { answer, bill, repeated } = exchange
    // Another request's spent limit does not end this one.
    if (finish.reason === 'length' && isLimited === true && !answer.turnSeen) {
      this.#lose('unreadable')
      return
    }
    if (repeated !== null) repeated.endedAt = at
    this.#cache.fields = fields
    exchange.finish = finish
    exchange.pipeline.push(...pipeline)
    bill.repeat(usage)
    exchange.watch.enter('flush', this.#deps.clock.monotonicMs())
    this.#close()
    this.#outcome.resolve('given')
  }

  /** Ends a reading without the end of the answer: with a failure if the client has seen some of the answer. */
  #lose(outcome: Exclude<ReadOutcome, 'given'>): void {
    const { answer } = this.#exchange
    if (answer.turnSeen) {
      this.#fail(
        new GatewayError(
          'service_unavailable',
          'The request whose answer this one shared ended early; try again',
        ),
      )
      return
    }
    this.#close()
    answer.dropTurn()
    this.#exchange.repeated = null
    this.#exchange.firstTokenMs = null
    this.#outcome.resolve(outcome)
  }

  #fail(thrown: unknown): void {
    this.#close()
    this.#outcome.reject(thrown)
  }

  #close(): void {
    this.#isOver = true
    this.#reader?.close()
    this.#exchange.answer.follow(null)
    this.#exchange.signal.removeEventListener('abort', this.#onAbort)
  }

  readonly #onAbort = (): void => this.#fail(this.#exchange.signal.reason)
}

function* framesIn(frames: Buffer): Generator<KeptFrame> {
  for (const frame of frames.toString().split('\n\n')) if (frame !== '') yield JSON.parse(frame) as KeptFrame
}

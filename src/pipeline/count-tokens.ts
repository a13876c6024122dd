/**
 * Counts the tokens of a request without sending it: with the counting API of the first provider that would be tried,
 * if it has one, otherwise by an estimate from the length of the texts. Nothing is charged, and no usage record is
 * written. Serve threads.
 */

import { HeldShare, holderOf } from '../base/fairness/held-share.ts'
import { parseJson, record } from '../base/json.ts'
import { abortSignalOf } from '../base/signal.ts'
import type { AttemptRecord } from '../exchange/exchange.ts'
import type { TokenCounting } from '../formats/format.ts'
import { FORMATS } from '../formats/table.ts'
import { textFormat } from '../protocol/provider.ts'
import { wholeReply } from '../providers/upstream/whole-reply.ts'
import { inputTokensOf } from './accounting/estimate.ts'
import type { RoutedExchange } from './exchange-stages.ts'
import type { RouteCandidate } from './routing/candidate.ts'
import { fitTools } from './tool-calls/client-tools.ts'
import { openRecord } from './turn/failover.ts'
import type { ModelCallDeps } from './turn/model-call.ts'

export interface TokenCount {
  readonly tokens: number
  readonly isEstimated: boolean
}

/** Short, because clients count between two requests, and can also work with an estimate. */
const COUNT_TIMEOUT_MS = 5_000
const REPLY_MAX_BYTES = 64 * 1024
/** Concurrent counts in a thread; a key above its share gets estimates. */
const MAX_RUNNING_COUNTS = { total: 64, perKey: 8 }

/** Counts tokens at providers. One instance per thread. */
export class TokenCounter {
  readonly #deps: ModelCallDeps
  readonly #running = new HeldShare(MAX_RUNNING_COUNTS)

  constructor(deps: ModelCallDeps) {
    this.#deps = deps
  }

  /** Rejects only with the reason of the exchange's signal: if the provider fails, the result is an estimate. */
  async count(exchange: RoutedExchange): Promise<TokenCount> {
    const [candidate] = exchange.candidates
    const tokens = candidate === undefined ? null : await this.#shared(exchange, candidate)
    exchange.signal.throwIfAborted()
    return tokens === null
      ? { tokens: inputTokensOf(exchange.prompt), isEstimated: true }
      : { tokens, isEstimated: false }
  }

  async #shared(exchange: RoutedExchange, candidate: RouteCandidate): Promise<number | null> {
    const format = FORMATS[textFormat(candidate.endpoint)]
    const key = holderOf(exchange.caller)
    if (format.counting === undefined || this.#running.reserve(key, 1) !== 'taken') return null
    const deadline = new AbortController()
    const timer = this.#deps.clock.after(COUNT_TIMEOUT_MS, () => deadline.abort(new Error('late')))
    try {
      return await this.#ask(exchange, candidate, format.counting, deadline.signal)
    } catch {
      return null
    } finally {
      timer.cancel()
      this.#running.release(key, 1)
    }
  }

  async #ask(
    exchange: RoutedExchange,
    { endpoint, credential }: RouteCandidate,
    counting: TokenCounting,
    deadlineSignal: AbortSignal,
  ): Promise<number | null> {
    const { client, providerKeys, requests } = this.#deps
    const providerKey =
      credential === null
        ? await providerKeys.sharedKey(endpoint)
        : await providerKeys.ownKey(credential, endpoint)
    const attempt: AttemptRecord = { ...openRecord({ endpoint, credential }), providerKey }
    const format = FORMATS[textFormat(endpoint)]
    const prompt = fitTools(exchange.prompt, format, endpoint)?.prompt ?? exchange.prompt
    const wire = requests.encode(exchange, attempt, format, prompt)
    const request = await requests.address(attempt, counting.request(wire, endpoint), exchange.held.bytes)
    const { status, text } = await wholeReply(client, request, {
      maxBytes: REPLY_MAX_BYTES,
      signal: AbortSignal.any([abortSignalOf(exchange.signal), deadlineSignal]),
    })
    const reply = status === 200 ? record(parseJson(text)) : null
    return reply === null ? null : counting.tokens(reply)
  }
}

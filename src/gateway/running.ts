/** A running exchange: the Exchange that plugins see, plus the internal state of its stages. */

import type { Recording } from '../captures/recording.ts'
import { type ClientRequest, Exchange, type Turn } from '../exchange/exchange.ts'
import { type Answer, DebugNotes } from './answer/answer.ts'
import type { ServerTools } from './calls/server-tools.ts'
import type { Guarding } from './guard/guard.ts'
import type { Plan } from './plans.ts'
import type { PluginChain } from './plugin-chain.ts'
import type { Prefix, RouteCandidate, Stay } from './routing/rank.ts'

/** An exchange of any kind, as guard, routing and model calls see it. */
export class RoutedExchange extends Exchange {
  override candidates: readonly RouteCandidate[] = []
  /** Null if no guardrail applies to the caller. */
  guarding: Guarding | null = null
  /** Null: no plugin has to do with the request. */
  plugins: PluginChain | null = null
  /** A failure may move on to the next candidate. */
  fallbacks = false
  /** Pins the candidate that succeeds; null: nothing is pinned. */
  stay: Stay | null = null
  /** Null: no capture takes it. */
  recording: Recording | null = null
  /** A batch service has taken its model call: it ends without an account, and another exchange has the reply. */
  isSubmitted = false
}

/** An exchange of text. */
export class RunningExchange extends RoutedExchange {
  readonly answer: Answer
  override prefix: Prefix | null = null
  /** Null: the request names no server tool. */
  tools: ServerTools | null = null
  /** The candidate that answered last, which is asked first in the next turn. */
  candidate: RouteCandidate | null = null
  /** The last turn, as plugins judge it; null before, and when tools have run since. */
  turn: Turn | null = null
  /** Null: it goes the general way. */
  readonly plan: Plan | null
  #debug: DebugNotes | null = null

  constructor(asked: ClientRequest, createdAt: number, answer: Answer, plan: Plan | null = null) {
    super(asked, createdAt)
    this.answer = answer
    this.plan = plan
  }

  /** What the caller asks to see of it. */
  get debug(): DebugNotes {
    this.#debug ??= new DebugNotes(this)
    return this.#debug
  }
}

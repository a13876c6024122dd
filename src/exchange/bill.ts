/**
 * Bill: usage and cost of an exchange, one charge for each turn. The ledger, stop conditions, plugins and tools all
 * read the same object. Amounts are units of 1e-12 USD. Pure.
 */

import { atFactor, FULL_PRICE, type PicoUsd, type PriceFactor } from '../base/money.ts'
import type { Usage } from '../formats/format.ts'
import type { Accounting } from '../protocol/records.ts'

/** Usage and cost of one turn, or the sum over several turns. */
export interface Charge {
  readonly usage: Usage
  readonly inputCost: PicoUsd
  readonly outputCost: PicoUsd
  /** Input, output, and the fee per request. */
  readonly cost: PicoUsd
  /** True if the providers reported every figure; false if some were estimated. */
  readonly isExact: boolean
  /** True if a price was unknown, and counted as 0. */
  readonly isUnpriced: boolean
}

/** Calls of server tools in one exchange, and the searches of plugins. */
interface ToolUse {
  readonly requested: number
  readonly executed: number
  /** Fees of calls and searches, in addition to tokens. */
  readonly cost: PicoUsd
}

/** Model calls that tools and plugins made for the exchange; each has its own usage record. */
export interface InnerUse {
  readonly inputTokens: number
  readonly cachedTokens: number
  readonly outputTokens: number
  readonly reasoningTokens: number
  readonly webSearchRequests: number
  /** The charge to the caller for these calls. */
  readonly cost: PicoUsd
}

const NO_TOOLS: ToolUse = { requested: 0, executed: 0, cost: 0 }

const NO_INNER: InnerUse = {
  inputTokens: 0,
  cachedTokens: 0,
  outputTokens: 0,
  reasoningTokens: 0,
  webSearchRequests: 0,
  cost: 0,
}

export class Bill {
  /** Factor on the prices of model calls; tool fees are charged in full. Written only here. */
  priceFactor: PriceFactor
  /**
   * The closed turns, and the parts of the running turn that count, as one charge; null if nothing was charged. Written
   * only here, like `total` and `turns`.
   */
  closed: Charge | null = null
  /** All turns so far, including the running one; null if nothing is charged. */
  total: Charge | null = null
  /** Number of closed turns. */
  turns = 0
  /** True if the usage belongs to an earlier answer, which is not charged again. Written only here. */
  isCached = false
  /** True if the running turn continues after a part that counts. Written only here. */
  hasParts = false
  #beforeParts: Charge | null = null
  /** Number of searches by server tools and plugins. */
  searches = 0
  /** Written only here. */
  tools: ToolUse = NO_TOOLS
  /**
   * Model calls of tools and plugins. They are not in `total` and `cost`, which go into the record of the exchange.
   * Written only here.
   */
  inner: InnerUse = NO_INNER

  constructor(priceFactor: PriceFactor = FULL_PRICE) {
    this.priceFactor = priceFactor
  }

  /** Makes model calls free for the caller. */
  waive(): void {
    this.priceFactor = 0
  }

  /** The charge for all turns and tools, without `inner`; null if nothing is charged. */
  get cost(): PicoUsd | null {
    const { cost } = this.tools
    if (this.total === null) return cost === 0 ? null : cost
    return atFactor(this.total.cost, this.priceFactor) + cost
  }

  /** The charge for closed turns and tools. */
  get closedCost(): PicoUsd {
    return atFactor(this.closed?.cost ?? 0, this.priceFactor) + this.tools.cost
  }

  /** How the token counts of the usage record were obtained. */
  get accounting(): Accounting {
    if (this.isCached) return 'cached'
    if (this.total === null) return 'none'
    return this.total.isExact ? 'exact' : 'estimated'
  }

  /** Input and output tokens of everything so far, including inner calls. */
  get tokens(): number {
    const { inputTokens = 0, outputTokens = 0 } = this.total?.usage ?? {}
    return inputTokens + outputTokens + this.inner.inputTokens + this.inner.outputTokens
  }

  /** Sets the charge of the running turn, and returns its cost; replaces an earlier charge of the same turn. */
  charge(charge: Charge | null): PicoUsd {
    const closed = this.closed
    this.total = closed === null || charge === null ? (closed ?? charge) : sumOfCharges(closed, charge)
    return (this.total?.cost ?? 0) - (closed?.cost ?? 0)
  }

  /** Notes the usage of an earlier answer that is delivered again, free of charge. */
  repeat(usage: Usage): void {
    this.isCached = true
    this.total = { usage, inputCost: 0, outputCost: 0, cost: 0, isExact: true, isUnpriced: false }
  }

  /**
   * Like `charge`, but keeps a dearer charge of the running turn. If the caller leaves while two attempts race, both call
   * this, and the dearer one counts. Returns the cost of this charge.
   */
  chargeDearer(charge: Charge): PicoUsd {
    const runningCost = (this.total?.cost ?? 0) - (this.closed?.cost ?? 0)
    if (charge.cost > runningCost || this.total === this.closed) this.charge(charge)
    return charge.cost
  }

  /** Makes the running turn count, whatever follows. */
  closeTurn(): void {
    this.closed = this.total
    this.hasParts = false
    this.turns++
  }

  /** Counts the output so far in the running turn, if the turn ends well. */
  closePart(): void {
    if (!this.hasParts) this.#beforeParts = this.closed
    this.hasParts = true
    this.closed = this.total
  }

  /** Makes all parts of the running turn free: it failed in the end. */
  dropParts(): void {
    if (!this.hasParts) return
    this.hasParts = false
    this.closed = this.#beforeParts
    this.total = this.closed
  }

  /** Adds one call of a server tool. `cost` is its fee, 0 for most tools; `searches` is how often it searched. */
  addToolCall(isExecuted: boolean, cost: PicoUsd = 0, searches = 0): void {
    const { requested, executed, cost: costBefore } = this.tools
    this.tools = isExecuted
      ? { requested: requested + 1, executed: executed + 1, cost: costBefore + cost }
      : { requested: requested + 1, executed, cost: costBefore }
    if (isExecuted) this.searches += searches
  }

  /** Adds the fee of a call that begins: it is owed even if nobody waits for the result. Drop it when the call ends. */
  holdFee(fee: PicoUsd): void {
    this.tools = { ...this.tools, cost: this.tools.cost + fee }
  }

  /** Drops a held fee, because the actual cost of the call is now known. */
  dropFee(fee: PicoUsd): void {
    this.tools = { ...this.tools, cost: this.tools.cost - fee }
  }

  /** Adds a search that a plugin made, and its fee. It is not a tool call. */
  addSearch(cost: PicoUsd): void {
    this.searches++
    this.holdFee(cost)
  }

  /** Adds a model call that a tool or plugin made for the exchange. */
  addInner(use: InnerUse): void {
    const before = this.inner
    this.inner = {
      inputTokens: before.inputTokens + use.inputTokens,
      cachedTokens: before.cachedTokens + use.cachedTokens,
      outputTokens: before.outputTokens + use.outputTokens,
      reasoningTokens: before.reasoningTokens + use.reasoningTokens,
      webSearchRequests: before.webSearchRequests + use.webSearchRequests,
      cost: before.cost + use.cost,
    }
  }
}

function sumOfCharges(a: Charge, b: Charge): Charge {
  const oneHourWrites = (a.usage.cacheWrite1hTokens ?? 0) + (b.usage.cacheWrite1hTokens ?? 0)
  const toolPrompts = (a.usage.toolPromptTokens ?? 0) + (b.usage.toolPromptTokens ?? 0)
  return {
    usage: {
      inputTokens: a.usage.inputTokens + b.usage.inputTokens,
      cachedTokens: a.usage.cachedTokens + b.usage.cachedTokens,
      cacheWriteTokens: a.usage.cacheWriteTokens + b.usage.cacheWriteTokens,
      ...(oneHourWrites === 0 ? undefined : { cacheWrite1hTokens: oneHourWrites }),
      ...(toolPrompts === 0 ? undefined : { toolPromptTokens: toolPrompts }),
      outputTokens: a.usage.outputTokens + b.usage.outputTokens,
      reasoningTokens: a.usage.reasoningTokens + b.usage.reasoningTokens,
      webSearchRequests: a.usage.webSearchRequests + b.usage.webSearchRequests,
    },
    inputCost: a.inputCost + b.inputCost,
    outputCost: a.outputCost + b.outputCost,
    cost: a.cost + b.cost,
    isExact: a.isExact && b.isExact,
    isUnpriced: a.isUnpriced || b.isUnpriced,
  }
}

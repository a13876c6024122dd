/**
 * Requests, tokens and cost by workspace or API key, counted from usage records that are in the Store. The first ones
 * keep their series until the process ends; the others count as `other`. Main thread, only if the settings enable it.
 * Leaf.
 */
import Registry from 'prom-client/lib/registry.js'
import { toUsd } from '../money.ts'
import { Counter } from './series.ts'
import { OTHER } from './speeds.ts'

/** Maximum workspaces, and keys, with their own series, seven each. */
export const MAX_OWNERS = 50

/** Label of records without one. */
const NO_OWNER = 'none'

/** The counted part of a usage record. */
interface CountedRecord {
  readonly workspaceId: string | null
  readonly keyHash?: string | null
  /** Absent: the request of a client. */
  readonly parent?: string | null | undefined
  readonly outcome: string
  readonly inputTokens: number
  readonly outputTokens: number
  /** Units of 1e-12 USD. */
  readonly cost: number
}

/** By what usage is counted: the label, its name in texts, and its value. */
const OWNERS = {
  workspace: { noun: 'workspace', of: ({ workspaceId }: CountedRecord) => workspaceId },
  key: { noun: 'API key', of: ({ keyHash = null }: CountedRecord) => keyHash },
} as const
export type MetricOwner = keyof typeof OWNERS

export class OwnerMetrics {
  readonly registry = new Registry()
  readonly #of: (record: CountedRecord) => string | null
  readonly #known = new Set<string>()
  readonly #requests: Counter<string>
  readonly #tokens: Counter<string>
  readonly #cost: Counter<string>

  constructor(owner: MetricOwner) {
    const { registry } = this
    const { noun, of } = OWNERS[owner]
    this.#of = of
    this.#requests = new Counter({
      name: `gateway_${owner}_requests_total`,
      help: `Requests with a usage record, by ${noun} and how they ended`,
      labelNames: [owner, 'outcome'],
      registry,
    })
    this.#tokens = new Counter({
      name: `gateway_${owner}_tokens_total`,
      help: `Tokens read and written by models, by ${noun}`,
      labelNames: [owner, 'direction'],
      registry,
    })
    this.#cost = new Counter({
      name: `gateway_${owner}_cost_usd_total`,
      help: `Cost in USD, as charged, by ${noun}`,
      labelNames: [owner] as readonly string[],
      registry,
    })
  }

  count(records: readonly CountedRecord[]): void {
    for (const record of records) {
      const { parent, outcome, inputTokens, outputTokens, cost } = record
      const owner = this.#labelOf(this.#of(record))
      // Model calls of the gateway itself belong to the request that caused them.
      if (parent == null) this.#requests.of(owner, outcome).inc()
      this.#tokens.of(owner, 'input').inc(inputTokens)
      this.#tokens.of(owner, 'output').inc(outputTokens)
      this.#cost.of(owner).inc(toUsd(cost))
    }
  }

  #labelOf(id: string | null): string {
    if (id === null) return NO_OWNER
    if (!this.#known.has(id)) {
      if (this.#known.size === MAX_OWNERS) return OTHER
      this.#known.add(id)
    }
    return id
  }
}

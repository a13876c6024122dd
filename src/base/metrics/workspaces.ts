/**
 * Requests, tokens and cost by workspace, counted from usage records that are in the Store. The first workspaces keep
 * their series until the process ends; the others count as `other`. Main thread, only if the settings enable it. Leaf.
 */
import Registry from 'prom-client/lib/registry.js'
import { Counter } from './series.ts'
import { OTHER } from './speeds.ts'

/** Maximum workspaces with their own series, seven each. */
export const WORKSPACES_MAX = 50

const PICOS_PER_USD = 1e12
/** Label of records without a workspace. */
const NONE = 'none'

/** The counted part of a usage record. */
interface CountedRecord {
  readonly workspaceId: string | null
  /** Absent: the request of a client. */
  readonly parent?: string | null | undefined
  readonly outcome: string
  readonly inputTokens: number
  readonly outputTokens: number
  /** Units of 1e-12 USD. */
  readonly cost: number
}

export class WorkspaceMetrics {
  readonly registry = new Registry()
  readonly #known = new Set<string>()
  readonly #requests = new Counter({
    name: 'gateway_workspace_requests_total',
    help: 'Requests with a usage record, by workspace and how they ended',
    labelNames: ['workspace', 'outcome'] as const,
    registry: this.registry,
  })
  readonly #tokens = new Counter({
    name: 'gateway_workspace_tokens_total',
    help: 'Tokens read and written by models, by workspace',
    labelNames: ['workspace', 'direction'] as const,
    registry: this.registry,
  })
  readonly #cost = new Counter({
    name: 'gateway_workspace_cost_usd_total',
    help: 'Cost in USD, as charged, by workspace',
    labelNames: ['workspace'] as const,
    registry: this.registry,
  })

  count(records: readonly CountedRecord[]): void {
    for (const { workspaceId, parent, outcome, inputTokens, outputTokens, cost } of records) {
      const workspace = this.#labelOf(workspaceId)
      // Model calls of the gateway itself belong to the request that caused them.
      if (parent == null) this.#requests.of(workspace, outcome).inc()
      this.#tokens.of(workspace, 'input').inc(inputTokens)
      this.#tokens.of(workspace, 'output').inc(outputTokens)
      this.#cost.of(workspace).inc(cost / PICOS_PER_USD)
    }
  }

  #labelOf(id: string | null): string {
    if (id === null) return NONE
    if (!this.#known.has(id)) {
      if (this.#known.size === WORKSPACES_MAX) return OTHER
      this.#known.add(id)
    }
    return id
  }
}

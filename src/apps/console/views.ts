/**
 * The table of views: what the page can fetch besides the live list. Records are those of the signed-in key's
 * organization; models, decisions and the state of the process are those of the whole gateway.
 */
import { setImmediate as turn } from 'node:timers/promises'
import { batchDocument } from '../../api/batches/batch-documents.ts'
import { findGeneration } from '../../api/generation.ts'
import { listActivity, showCredits } from '../../api/management/account.ts'
import { listEndUsers } from '../../api/management/end-users.ts'
import { KeyUsage } from '../../api/management/key-usage.ts'
import { listKeys } from '../../api/management/keys.ts'
import type { Handler } from '../../api/operation.ts'
import { type Clock, isoInstant } from '../../base/clock.ts'
import { formatUsd } from '../../base/money.ts'
import type { KeyRecord } from '../../protocol/management/keys.ts'
import type { Endpoint, Model } from '../../protocol/provider.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { EndpointFigures } from '../../providers/endpoint-figures.ts'
import type { Store } from '../../storage/store.ts'
import { documentOf } from './documents.ts'
import type { Feed } from './feed.ts'
import { createSpans } from './spans.ts'
import { createSummary } from './summary.ts'
import type { ProcessFacts, View } from './view.ts'

/** The decisions of one detector, over all serve threads since the start. */
export interface DecisionCount {
  readonly guardrail: string
  readonly action: string
  readonly count: number
}

export interface ViewDeps {
  readonly store: Store
  readonly clock: Clock
  /** See ByokFee. */
  readonly byokFeePercent: number
  readonly catalog: () => Catalog
  readonly health: {
    condition(endpoint: Endpoint): string
    ownConditions(): (endpoint: Endpoint) => Readonly<Record<string, number>>
    figures(endpoint: Endpoint): EndpointFigures | null
  }
  readonly decisions: () => Promise<readonly DecisionCount[]>
  readonly process: () => Promise<ProcessFacts>
}

/** Maximum models in an answer; the page asks with a filter for others. */
const MODELS_MAX = 100
const BATCHES_MAX = 50
const FILTER_MAX_CHARS = 200

export function createViews(deps: ViewDeps, feed: Pick<Feed, 'summary'>): ReadonlyMap<string, View> {
  const { store, clock, byokFeePercent } = deps
  const providerName = (slug: string): string | null => deps.catalog().provider(slug)?.name ?? null
  const accounts = { store, clock, byokFeePercent, providerName }
  const usage = new KeyUsage({ store, clock, byokFeePercent })
  // The console only reads keys, so it has no changes to publish.
  const keys = { store, clock, usage, changes: { publish: () => undefined } }
  const viewOf = (handler: Handler): View => {
    return (key, query) => documentOf(handler, key, query, clock)
  }
  const [activity, credits] = [viewOf(listActivity(accounts)), viewOf(showCredits(accounts))]
  return new Map<string, View>([
    ['summary', createSummary({ ...deps, feed, activity, credits })],
    [
      'requests',
      viewOf(findGeneration({ ledger: store.ledger, explanations: store.explanations, byokFeePercent })),
    ],
    ['keys', viewOf(listKeys(keys))],
    ['end-users', endUsersView(deps, viewOf(listEndUsers({ store })), activity)],
    ['credits', creditsView(deps, credits, activity)],
    ['guardrails', guardrailsView(deps)],
    ['batches', batchesView(deps)],
    ['models', modelsView(deps)],
    ['process', () => deps.process()],
    ['spans', createSpans({ store, clock })],
  ])
}

function today(clock: Clock): string {
  return isoInstant(clock.nowMs()).slice(0, 10)
}

interface SpentToday {
  readonly requests: number
  readonly usage: number
}

async function spentToday(
  activity: View,
  key: KeyRecord,
  filter: Readonly<Record<string, string>>,
): Promise<SpentToday> {
  const { data } = (await activity(key, new URLSearchParams(filter))) as { data: readonly SpentToday[] }
  return {
    requests: data.reduce((sum, row) => sum + row.requests, 0),
    usage: data.reduce((sum, row) => sum + row.usage, 0),
  }
}

/** Registered end users, with their spending today. */
function endUsersView({ clock }: ViewDeps, list: View, activity: View): View {
  return async (key, query) => {
    const page = (await list(key, query)) as { data: readonly { user: string }[]; total_count: number }
    const data: object[] = []
    for (const user of page.data) {
      data.push({
        ...user,
        today: await spentToday(activity, key, { date: today(clock), user_id: user.user }),
      })
      // An embedded database sums on this thread.
      await turn()
    }
    return { data, total_count: page.total_count }
  }
}

function creditsView({ clock }: ViewDeps, credits: View, activity: View): View {
  return async (key, query) => {
    const { data } = (await credits(key, query)) as { data: object }
    return { data: { ...data, today: await spentToday(activity, key, { date: today(clock) }) } }
  }
}

/** Guardrails by name, without their patterns, and the decisions of detectors. */
function guardrailsView({ store, decisions }: ViewDeps): View {
  return async ({ organizationId }) => {
    const [{ items, total }, counts] = await Promise.all([
      store.guardrails.page({ organizationId }, { offset: 0, limit: 100 }),
      decisions(),
    ])
    return {
      data: items.map(guardrail => ({
        id: guardrail.id,
        name: guardrail.name,
        workspace_id: guardrail.workspaceId,
        is_workspace_default: guardrail.isWorkspaceDefault,
        detectors: guardrail.contentFilterBuiltins.map(({ slug, action }) => ({ slug, action })),
        patterns: guardrail.contentFilters.length,
        checks_replies: guardrail.output !== null,
        fail_mode: guardrail.failMode,
      })),
      total_count: total,
      decisions: counts,
    }
  }
}

/** Progress of batches in all workspaces. Results are only available with keys of their workspace. */
function batchesView({ store }: ViewDeps): View {
  return async ({ organizationId }) => {
    const page = await store.batches.list({ organizationId }, BATCHES_MAX)
    const data = (page?.items ?? []).map(batch => {
      const { usage, ...document } = batchDocument(batch)
      return { ...document, workspace_id: batch.workspaceId, cost: usage?.cost ?? null }
    })
    return { data, has_more: page?.hasMore ?? false }
  }
}

function modelsView({ catalog, health }: ViewDeps): View {
  return async (_, query) => {
    const filter = (query.get('filter') ?? '').slice(0, FILTER_MAX_CHARS).toLowerCase()
    const matchesFilter = ({ id, endpoints }: Model): boolean =>
      id.toLowerCase().includes(filter) || endpoints.some(({ provider }) => provider.slug.includes(filter))
    const matchingModels = catalog().models().filter(matchesFilter)
    const wildcards = catalog().wildcards().filter(matchesFilter).slice(0, MODELS_MAX)
    const ownConditions = health.ownConditions()
    return {
      data: matchingModels.slice(0, MODELS_MAX).map(model => ({
        id: model.id,
        context_length: model.contextLength,
        endpoints: model.endpoints.map(endpoint => endpointDocument(endpoint, health, ownConditions)),
      })),
      wildcards: wildcards.map(({ id, endpoints }) => ({
        id,
        endpoints: endpoints.map(endpoint => ({
          provider: endpoint.provider.slug,
          upstream_model: endpoint.upstreamModel,
          prices: pricesOf(endpoint),
        })),
      })),
      total_count: matchingModels.length,
    }
  }
}

function endpointDocument(
  endpoint: Endpoint,
  health: ViewDeps['health'],
  ownConditions: ReturnType<ViewDeps['health']['ownConditions']>,
) {
  const { provider, serviceTier = null } = endpoint
  const figures = health.figures(endpoint)
  return {
    provider: provider.slug,
    provider_name: provider.name,
    region: endpoint.region,
    service_tier: serviceTier,
    /** With the shared key; each BYOK credential has a condition of its own. */
    condition: health.condition(endpoint),
    /** Number of recently used BYOK credentials in each condition. */
    own_conditions: ownConditions(endpoint),
    uptime_last_30m: figures?.uptimeLast30m ?? null,
    first_token_ms: figures?.latencyLast30m ?? null,
    tokens_per_second: figures?.throughputLast30m ?? null,
    prices: pricesOf(endpoint),
  }
}

/** USD per token; null: unknown. */
function pricesOf({ pricing }: Endpoint) {
  if (pricing.isUnknown === true) return null
  const { prompt, completion, inputCacheRead: read = null } = pricing
  return {
    prompt: formatUsd(prompt),
    completion: formatUsd(completion),
    cache_read: read === null ? null : formatUsd(read),
  }
}

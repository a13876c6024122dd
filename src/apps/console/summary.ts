/**
 * An organization's summary, for the home view and `sluice top`: current problems, cost, statistics by model for the
 * last 15 minutes, the latest requests. Nothing is computed while nobody requests it.
 */
import { type Clock, isoInstant } from '../../base/clock.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { Feed, FeedSummary } from './feed.ts'
import type { RequestRow } from './request-row.ts'
import type { ProcessFacts, View } from './view.ts'

interface SummarySources {
  readonly clock: Clock
  readonly feed: Pick<Feed, 'summary'>
  readonly catalog: () => Catalog
  readonly health: { condition(endpoint: Endpoint): string }
  readonly process: () => Promise<ProcessFacts>
  /** GET /activity and GET /credits for the viewer. */
  readonly activity: View
  readonly credits: View
}

/** A current problem, with the view that shows it. */
interface Problem {
  readonly text: string
  readonly view: string
  /** False: requests are served, but with problems. */
  readonly is_serious: boolean
}

const DAY_MS = 86_400_000
/** Number of latest requests, for a terminal. */
const LATEST_COUNT = 20
/** Maximum endpoints that are named; beyond that, only their number is shown. */
const MAX_NAMED_ENDPOINTS = 3
/** The failure rate that counts as a problem, from a minimum number of failures. */
const FAILURE_SHARE = 0.05
const MIN_FAILURES = 5
/** Consecutive failures of a provider that count as a problem. */
const MIN_PROVIDER_FAILURES = 3
const PROBLEM_BY_CONDITION: ReadonlyMap<string, string> = new Map([
  ['paused', 'is out of service: an operator has paused its provider'],
  ['blocked', 'is left out: its last attempts failed'],
  ['failing', 'fails more than 20 % of its attempts'],
])

export function createSummary(deps: SummarySources): View {
  const { clock, feed } = deps
  return async key => {
    const [facts, recent, money] = await Promise.all([
      deps.process(),
      feed.summary(key.organizationId),
      moneyOf(deps, key),
    ])
    const endpoints = unwellEndpoints(deps)
    return {
      now: isoInstant(clock.nowMs()),
      version: facts.version,
      in_flight: facts.inFlight,
      open_streams: facts.openStreams,
      problems: problemsOf(facts, endpoints, recent, money, clock.nowMs()),
      money,
      window_seconds: recent.windowSeconds,
      requests: recent.requests,
      failed: recent.failed,
      cost: recent.cost,
      first_token_ms: { p50: recent.p50, p95: recent.p95 },
      models: recent.models.map(({ model, requests, failed, cost, p50, p95 }) => ({
        model,
        requests,
        failed,
        cost,
        first_token_ms: { p50, p95 },
      })),
      latest: recent.rows.slice(-LATEST_COUNT).toReversed().map(latestOf),
    }
  }
}

function latestOf(row: RequestRow) {
  return {
    id: row.id,
    created_at: row.at,
    model: row.model,
    provider: row.provider,
    status: row.status,
    outcome: row.outcome,
    error: row.error,
    first_token_ms: row.firstTokenMs,
    duration_ms: row.durationMs,
    input_tokens: row.inputTokens,
    output_tokens: row.outputTokens,
    cost: row.cost,
  }
}

interface Money {
  readonly today: number
  readonly month: number
  /** The projected cost of the month; null in its first hours. */
  readonly month_at_this_pace: number | null
  /** Remaining credits; null if all added and deducted credits together are 0. */
  readonly credits_left: number | null
}

async function moneyOf(
  { clock, activity, credits }: SummarySources,
  key: Parameters<View>[0],
): Promise<Money> {
  const nowMs = clock.nowMs()
  const today = isoInstant(nowMs).slice(0, 10)
  const first = `${today.slice(0, 8)}01`
  const query = new URLSearchParams({ dimensions: 'day', start_date: first })
  const { data } = (await activity(key, query)) as { data: readonly { date: string; usage: number }[] }
  const creditDocument = (await credits(key, new URLSearchParams())) as {
    data: { total_credits: number; total_usage: number }
  }
  const { total_credits: total, total_usage: used } = creditDocument.data
  const month = data.reduce((sum, { usage }) => sum + usage, 0)
  const firstMs = Date.parse(first)
  const elapsedMs = nowMs - firstMs
  const now = new Date(nowMs)
  const monthMs = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1) - firstMs
  return {
    today: data.find(({ date }) => date === today)?.usage ?? 0,
    month,
    month_at_this_pace: elapsedMs < DAY_MS / 4 ? null : (month / elapsedMs) * monthMs,
    credits_left: total === 0 ? null : total - used,
  }
}

function unwellEndpoints({
  catalog,
  health,
}: SummarySources): readonly { model: string; endpoint: Endpoint; why: string }[] {
  return catalog()
    .models()
    .flatMap(({ id, endpoints }) =>
      endpoints.flatMap(endpoint => {
        const why = PROBLEM_BY_CONDITION.get(health.condition(endpoint))
        return why === undefined ? [] : [{ model: id, endpoint, why }]
      }),
    )
}

/**
 * Providers whose latest attempts all failed, with the number of these attempts. A few requests never reach a relevant
 * failure rate, and if another provider serves them, none of them fails. A provider that refuses a request because of
 * the request itself is working.
 */
export function failingProviders(rows: readonly RequestRow[], since: string): ReadonlyMap<string, number> {
  const counts = new Map<string, number>()
  const working = new Set<string>()
  for (const { at, attempts } of rows.toReversed()) {
    if (at < since) break
    for (const { provider, status, error } of attempts.toReversed()) {
      if (working.has(provider)) continue
      if (error !== null && (status === null || status >= 500 || status === 429))
        counts.set(provider, (counts.get(provider) ?? 0) + 1)
      else working.add(provider)
    }
  }
  return new Map([...counts].filter(([, count]) => count >= MIN_PROVIDER_FAILURES))
}

function problemsOf(
  { unreadyReason, degraded }: ProcessFacts,
  endpoints: ReturnType<typeof unwellEndpoints>,
  { requests, failed, rows, windowSeconds }: FeedSummary,
  { credits_left: creditsLeft }: Money,
  nowMs: number,
): readonly Problem[] {
  const problems: Problem[] = []
  const add = (text: string, view: string, isSerious: boolean) =>
    void problems.push({ text, view, is_serious: isSerious })
  if (unreadyReason !== null) add(`The gateway accepts no traffic: ${unreadyReason}`, 'home', true)
  for (const reason of degraded) add(`Degraded: ${reason}`, 'home', true)
  if (creditsLeft !== null && creditsLeft <= 0) add('The credits are used up', 'accounts', true)
  if (failed >= MIN_FAILURES && failed / requests >= FAILURE_SHARE) {
    add(`${failed} of the last ${requests} requests failed`, 'requests', true)
  }
  for (const { model, endpoint, why } of endpoints.slice(0, MAX_NAMED_ENDPOINTS)) {
    add(`${model} at ${endpoint.provider.slug} ${why}`, `models?${encodeURIComponent(model)}`, false)
  }
  if (endpoints.length > MAX_NAMED_ENDPOINTS) {
    const more = endpoints.length - MAX_NAMED_ENDPOINTS
    add(`${more} more ${more === 1 ? 'endpoint has' : 'endpoints have'} problems`, 'models', false)
  }
  for (const [provider, count] of failingProviders(rows, isoInstant(nowMs - windowSeconds * 1000))) {
    if (!endpoints.some(({ endpoint }) => endpoint.provider.slug === provider))
      add(
        `${provider} failed in its last ${count} attempts`,
        `requests?${encodeURIComponent(provider)}`,
        false,
      )
  }
  return problems
}

/** Parts of the pipeline for tests of other things: endpoints in the order of the catalogue, all healthy. */
import type { Clock } from '../../src/base/clock.ts'
import { FORMATS } from '../../src/formats/table.ts'
import { VisibleStreams } from '../../src/pipeline/accounting/visible-streams.ts'
import { Routing } from '../../src/pipeline/routing/rank-input.ts'
import { Stickiness } from '../../src/pipeline/routing/sticky.ts'
import { AbandonedReplies } from '../../src/pipeline/turn/abandoned-replies.ts'
import { RetryBudget } from '../../src/pipeline/turn/failover.ts'
import { ProviderRequests } from '../../src/pipeline/turn/provider-request.ts'
import { EndpointHealth } from '../../src/providers/health/health.ts'
import { createPins } from '../../src/storage/session-affinity/session-affinity.ts'
import type { UsageRecord } from '../../src/storage/usage.ts'

function plainRouting(clock: Clock): {
  readonly routing: Routing
  readonly retries: RetryBudget
  readonly region: string
  readonly visibleStreams: VisibleStreams
} {
  const health = new EndpointHealth({ clock })
  const routing = new Routing({ clock, health, random: () => 0, balances: false, inputTokens: () => 0 })
  return { routing, retries: new RetryBudget(), region: 'local', visibleStreams: new VisibleStreams() }
}

/** All that a call to a model needs beside its catalogue and client. Nothing is pinned, priced for own keys or kept. */
export function plainCalls(clock: Clock, records: UsageRecord[]) {
  return {
    ...plainRouting(clock),
    ledger: {
      append: (record: UsageRecord) => void records.push(record),
      whenWritten: () => null,
      find: async () => null,
    },
    abandoned: new AbandonedReplies(),
    formats: FORMATS,
    requests: new ProviderRequests({
      timeouts: { upstreamHeadersMs: 60_000, upstreamIdleMs: 60_000 },
      hashEndUser: () => 'u',
      hashCacheKey: () => 'k',
    }),
    providerKeys: {
      ownKey: () => Promise.reject(new Error('own keys are not asked for')),
      sharedKey: () => null,
    },
    byokFeePercent: 0,
    stickiness: new Stickiness(createPins(clock)),
  }
}

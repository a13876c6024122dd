/** Routing for tests that are about something else: endpoints in the order of the catalogue, all of them healthy. */
import type { Clock } from '../../src/clock.ts'
import { VisibleStreams } from '../../src/gateway/accounting/account.ts'
import { RetryBudget, Routing } from '../../src/gateway/routing/rank.ts'
import { EndpointHealth } from '../../src/health/health.ts'

export function plainRouting(clock: Clock): {
  readonly routing: Routing
  readonly retries: RetryBudget
  readonly region: string
  readonly visibleStreams: VisibleStreams
} {
  const health = new EndpointHealth({ clock })
  const routing = new Routing({ clock, health, random: () => 0, balances: false, inputTokens: () => 0 })
  return { routing, retries: new RetryBudget(), region: 'local', visibleStreams: new VisibleStreams() }
}

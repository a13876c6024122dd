/** The one table of all operations: what is not here does not exist, and what it does not say is denied. */

import type { Clock } from '../clock.ts'
import type { Vault } from '../credentials/vault.ts'
import type { Ledger } from '../gateway/accounting/ledger.ts'
import type { Gateway } from '../gateway/gateway.ts'
import type { InvalidationBus } from '../invalidation/bus.ts'
import type { StreamSettings } from '../server/event-sink.ts'
import type { Store } from '../storage/store.ts'
import { accountRoutes } from './account.ts'
import { byokRoutes } from './byok.ts'
import type { DataRegionOf } from './data-region.ts'
import { endUserRoutes } from './end-users.ts'
import { findGeneration } from './generation.ts'
import type { PatternProblem } from './guardrail-patterns.ts'
import { guardrailRoutes } from './guardrails.ts'
import type { Route } from './handler.ts'
import { keyRoutes } from './keys.ts'
import { type Listing, listEndpoints, listModels, listProviders } from './models.ts'
import { createResponse } from './responses.ts'
import { workspaceRoutes } from './workspaces.ts'

/**
 * Largest body of POST /responses, in bytes: 20 MiB. It has to hold a full context of text (some megabytes) and
 * images or files in base64; more belongs behind a URL.
 */
const RESPONSES_BODY_MAX_BYTES = 20 * 1024 * 1024

export interface RouteTools {
  readonly gateway: Gateway
  readonly listing: Listing
  readonly ledger: Pick<Ledger, 'find'>
  /** What a request on an own credential costs, as a share of its price by the catalogue. */
  readonly byokFeePercent: number
  readonly stream: StreamSettings
  /** Where the data of a request has to stay, by its Host header. */
  readonly dataRegionOf: DataRegionOf
  readonly store: Store
  readonly clock: Clock
  readonly changes: InvalidationBus
  readonly vault: Pick<Vault, 'seal'>
  /** Display name of a provider; null when the catalogue has it no more. */
  readonly providerName: (slug: string) => string | null
  readonly patternProblem: PatternProblem
}

export function createRoutes(tools: RouteTools): readonly Route[] {
  const { gateway, listing, ledger, stream } = tools
  return [
    {
      method: 'POST',
      path: '/responses',
      bodyLimitBytes: RESPONSES_BODY_MAX_BYTES,
      key: 'inference',
      handler: createResponse(gateway, stream, tools.dataRegionOf),
    },
    {
      method: 'GET',
      path: '/generation',
      bodyLimitBytes: 0,
      key: 'any',
      handler: findGeneration(ledger, tools.byokFeePercent),
    },
    { method: 'GET', path: '/models', bodyLimitBytes: 0, key: 'any', handler: listModels(listing) },
    {
      method: 'GET',
      path: '/models/{author}/{slug}/endpoints',
      bodyLimitBytes: 0,
      key: 'any',
      handler: listEndpoints(listing),
    },
    { method: 'GET', path: '/providers', bodyLimitBytes: 0, key: 'any', handler: listProviders(listing) },
    ...keyRoutes(tools),
    ...workspaceRoutes(tools),
    ...accountRoutes(tools),
    ...endUserRoutes(tools),
    ...byokRoutes(tools),
    ...guardrailRoutes(tools),
  ]
}

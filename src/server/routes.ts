/** The one table of all operations: what is not here does not exist, and what it does not say is denied. */
import type { Gateway } from '../gateway/gateway.ts'
import type { Ledger } from '../gateway/ledger.ts'
import type { StreamSettings } from './event-sink.ts'
import { findGeneration } from './generation.ts'
import type { Route } from './handler.ts'
import { type Listing, listEndpoints, listModels, listProviders } from './models.ts'
import { createResponse } from './responses.ts'

/**
 * Largest body of POST /responses, in bytes: 20 MiB. It has to hold a full context of text (some megabytes) and
 * images or files in base64; more belongs behind a URL.
 */
export const RESPONSES_BODY_MAX_BYTES = 20 * 1024 * 1024

export interface RouteTools {
  readonly gateway: Gateway
  readonly listing: Listing
  readonly ledger: Pick<Ledger, 'find'>
  readonly stream: StreamSettings
}

export function createRoutes({ gateway, listing, ledger, stream }: RouteTools): readonly Route[] {
  return [
    {
      method: 'POST',
      path: '/responses',
      bodyLimitBytes: RESPONSES_BODY_MAX_BYTES,
      key: 'inference',
      handler: createResponse(gateway, stream),
    },
    { method: 'GET', path: '/generation', bodyLimitBytes: 0, key: 'any', handler: findGeneration(ledger) },
    { method: 'GET', path: '/models', bodyLimitBytes: 0, key: 'any', handler: listModels(listing) },
    {
      method: 'GET',
      path: '/models/{author}/{slug}/endpoints',
      bodyLimitBytes: 0,
      key: 'any',
      handler: listEndpoints(listing),
    },
    { method: 'GET', path: '/providers', bodyLimitBytes: 0, key: 'any', handler: listProviders(listing) },
  ]
}

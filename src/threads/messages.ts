/** Messages between the supervisor and its threads. Plain data only: anything else loses its fields. */
import type { MetricObjectWithValues, MetricValue } from 'prom-client'
import type { Config } from '../config/config.ts'
import type { Invalidation } from '../invalidation/bus.ts'
import type { CounterReply, CounterRequest } from '../limits/counter-channel.ts'

/** Given to a thread when it is started. */
export interface ThreadSettings {
  /** Names the thread in metrics and logs; the same again after a restart. */
  readonly thread: string
  readonly config: Config
  /** Address of the built-in simulated provider; null when providers are configured. */
  readonly simUrl: string | null
  /** Key of the hash that names end users to providers, base64. */
  readonly endUserKey: string
  /** All master keys in the form of GATEWAY_VAULT_KEYS; the first one seals. Never shown or logged. */
  readonly vaultKeys: string
  /** Folder of the usage spool. */
  readonly spoolFolder: string
  /** Names the thread's spool files; changed by a restart. */
  readonly spoolWriter: string
  /** Port of the gateway; only serve threads bind it, and all of them share it. */
  readonly port: number
  /** The store was reached and made ready for use; otherwise a message follows when it is. */
  readonly prepared: boolean
  /** Other sockets may listen on the port too: threads of this gateway, or another instance beside it. */
  readonly shared: boolean
}

export type MetricSnapshot = readonly MetricObjectWithValues<MetricValue<string>>[]

export type ToThread =
  | { readonly type: 'metrics'; readonly request: number }
  /** A record was changed, here or at another instance: drop it from the caches. */
  | { readonly type: 'changed'; readonly change: Invalidation }
  /** The store is ready for use. */
  | { readonly type: 'prepared' }
  | CounterReply
  /** May be sent again with less grace. */
  | { readonly type: 'drain'; readonly graceMs: number }

/** How often a thread reports that its event loop turns. */
export const PULSE_MS = 1_000

export type FromThread =
  /** It works; a serve thread takes requests. */
  | { readonly type: 'started' }
  /** The thread could not start; `reason` is fit for the operator. */
  | { readonly type: 'refused'; readonly reason: string; readonly portTaken: boolean }
  | { readonly type: 'metrics'; readonly request: number; readonly metrics: MetricSnapshot }
  | { readonly type: 'pulse' }
  /** The thread changed a record: tell all others. */
  | { readonly type: 'changed'; readonly change: Invalidation }
  | CounterRequest
  /** The last message of a thread that ends, with all its metrics. */
  | { readonly type: 'ended'; readonly metrics: MetricSnapshot }

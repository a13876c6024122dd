/** What the supervisor and its threads say to each other. Plain data only: anything else loses its fields. */
import type { MetricObjectWithValues, MetricValue } from 'prom-client'
import type { Config } from '../config.ts'

/** Handed to a serve thread at its birth. */
export interface ServeSettings {
  /** Names the thread in metrics and logs; the same again after a restart. */
  readonly thread: string
  readonly config: Config
  /** Where the built-in simulated provider listens; null when providers are configured. */
  readonly simUrl: string | null
  /** Keys under which end users are known to providers, base64. */
  readonly endUserKey: string
  /** Where usage records are spooled. */
  readonly spoolFolder: string
  /** Port to bind; every thread after the first shares the first one's port. */
  readonly port: number
  /** Whether other sockets may listen on the port too: threads of this gateway, or another instance beside it. */
  readonly shared: boolean
}

export type MetricSnapshot = readonly MetricObjectWithValues<MetricValue<string>>[]

export type ToThread =
  | { readonly type: 'metrics'; readonly request: number }
  /** The record of this key was changed: what is remembered of it no longer counts. */
  | { readonly type: 'forget-key'; readonly keyHash: string }
  /** May be sent again with less grace. */
  | { readonly type: 'drain'; readonly graceMs: number }

/** A thread says this often that its event loop turns. */
export const PULSE_MS = 1_000

export type FromThread =
  | { readonly type: 'listening'; readonly port: number }
  /** The thread could not start; `reason` is fit for the operator. */
  | { readonly type: 'refused'; readonly reason: string; readonly portTaken: boolean }
  | { readonly type: 'metrics'; readonly request: number; readonly metrics: MetricSnapshot }
  | { readonly type: 'pulse' }
  /** The last word of a thread that ends, with all it counted. */
  | { readonly type: 'ended'; readonly metrics: MetricSnapshot }

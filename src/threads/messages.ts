/** Messages between the supervisor and its threads. Plain data only: anything else loses its fields. */
import type { MetricObjectWithValues, MetricValue } from 'prom-client'
import type { Config } from '../config/config.ts'
import type { Change } from '../invalidation/bus.ts'
import type { CounterEntry, Refusal } from '../limits/counters.ts'

/** Given to a thread when it is started. */
export interface ThreadSettings {
  /** Names the thread in metrics and logs; the same again after a restart. */
  readonly thread: string
  readonly config: Config
  /** Where the built-in simulated provider listens; null when providers are configured. */
  readonly simUrl: string | null
  /** Keys under which end users are known to providers, base64. */
  readonly endUserKey: string
  /** All master keys in the form of GATEWAY_VAULT_KEYS; the first one seals. Never shown or logged. */
  readonly vaultKeys: string
  /** Where usage records are spooled. */
  readonly spoolFolder: string
  /** Names its files there; another one after a restart. */
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
  /** A record was changed, here or at another instance: what is remembered of it no longer counts. */
  | { readonly type: 'changed'; readonly change: Change }
  /** The store is ready for use. */
  | { readonly type: 'prepared' }
  | { readonly type: 'counted'; readonly answers: readonly CounterAnswer[] }
  /** May be sent again with less grace. */
  | { readonly type: 'drain'; readonly graceMs: number }

/** A reservation that a thread asks for; `id` names it between that thread and the supervisor. */
export interface CounterTake {
  readonly id: number
  readonly entries: readonly CounterEntry[]
}

export interface CounterGive {
  readonly id: number
  /** What of each entry was used; null: the thread no longer waits for the answer. */
  readonly used: readonly number[] | null
}

export interface CounterAnswer {
  readonly id: number
  /** Null: taken, unless it failed. */
  readonly refusal: Refusal | null
  readonly failed: boolean
}

/** How often a thread reports that its event loop turns. */
export const PULSE_MS = 1_000

export type FromThread =
  /** It works; a serve thread takes requests. */
  | { readonly type: 'started' }
  /** The thread could not start; `reason` is fit for the operator. */
  | { readonly type: 'refused'; readonly reason: string; readonly portTaken: boolean }
  | { readonly type: 'metrics'; readonly request: number; readonly metrics: MetricSnapshot }
  | { readonly type: 'pulse' }
  /** The thread changed a record: all others have to be told. */
  | { readonly type: 'changed'; readonly change: Change }
  /** What the thread has to count since it last said so. */
  | { readonly type: 'count'; readonly takes: readonly CounterTake[]; readonly gives: readonly CounterGive[] }
  /** The last word of a thread that ends, with all it counted. */
  | { readonly type: 'ended'; readonly metrics: MetricSnapshot }

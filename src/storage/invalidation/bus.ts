/**
 * Cache invalidation: announces changed records to every thread and instance. A published invalidation arrives within a
 * second, including on the thread that published it. Types only.
 */
import type { Clock } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'

export type Invalidation =
  /** Messages may have been lost, so every cached record must be read again. */
  | { readonly kind: 'all' }
  /** The record of this API key was changed or removed. */
  | { readonly kind: 'key'; readonly hash: string }
  /** Provider credentials of this workspace were added, changed or removed; `ids` are those that changed. */
  | {
      readonly kind: 'credentials'
      readonly organizationId: string
      readonly workspaceId: string
      readonly ids: readonly string[]
    }
  /** Guardrails of this organization, or their assignments, were changed. */
  | { readonly kind: 'guardrails'; readonly organizationId: string }
  /** Settings of a workspace of this organization were changed. */
  | { readonly kind: 'workspaces'; readonly organizationId: string }
  /** Rate limits of workspaces or end users of this organization were changed; keys are cached together with them. */
  | { readonly kind: 'rates'; readonly organizationId: string }
  /** The record of this end user was changed. */
  | { readonly kind: 'end-user'; readonly organizationId: string; readonly user: string }
  /** A capture was started or deleted. The main thread of each instance reads this; no cache holds captures. */
  | { readonly kind: 'captures' }
  /** A rollout has moved. Threads read the shares of all rollouts again. */
  | { readonly kind: 'rollouts' }
  /** A provider was paused, or its pause was ended. Threads read all pauses again. */
  | { readonly kind: 'pauses' }
  /** A batch was accepted or cancelled, so runners have something to do. No cache holds batches. */
  | { readonly kind: 'batches' }

export interface InvalidationBus {
  /** Call it after the change is in the Store. Never throws. */
  publish(invalidation: Invalidation): void
}

/** A transport between instances: sends a text to all of them, this one included. Reconnects by itself. */
export interface Carrier {
  /** Rejects when the text cannot be sent now. */
  send(text: string): Promise<unknown>
  close(): Promise<void>
}

export interface CarrierOptions {
  readonly url: string
  readonly channel: string
  readonly clock: Clock
  /** A connection without an answer for this long counts as lost. Each carrier has its own default. */
  readonly silenceMs?: number
  readonly log: Pick<Log, 'fault' | 'notice'>
  readonly onMessage: (text: string) => void
  /** Called when messages arrive, for the first time or after an outage. */
  readonly onReceiving: () => void
  /** Called when texts can be sent, for the first time or after an outage. */
  readonly onSending: () => void
}

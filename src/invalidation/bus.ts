/**
 * Cache invalidation: announces changed records to every thread and instance. A published invalidation arrives within
 * a second, also at the thread that published it. Types only.
 */

export type Invalidation =
  /** Messages may have been lost: every cached record has to be read again. */
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

export interface InvalidationBus {
  /** Call it after the change is in the Store. Never throws. */
  publish(invalidation: Invalidation): void
}

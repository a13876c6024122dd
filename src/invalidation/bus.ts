/**
 * Word of changed records, so that no cache goes on with the old ones. What is published here reaches every thread
 * of every instance, the publishing one included, within a second. Types only.
 */

export type Change =
  /** Word may have been missed: everything has to be read anew. */
  | { readonly kind: 'all' }
  /** The record of this API key was changed or removed. */
  | { readonly kind: 'key'; readonly hash: string }
  /** Own provider credentials of this workspace were added, changed or removed; these ids no longer count. */
  | {
      readonly kind: 'credentials'
      readonly organizationId: string
      readonly workspaceId: string
      readonly ids: readonly string[]
    }
  /** Guardrails of this organization, or whom they are assigned to, were changed. */
  | { readonly kind: 'guardrails'; readonly organizationId: string }

export interface Changes {
  /** To be called after the change is in the Store. Never throws. */
  publish(change: Change): void
}

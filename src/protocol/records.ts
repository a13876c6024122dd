/** Small shared records of the public interface. Pure. */

/** Who is asking, as far as the pipeline needs to know. */
export interface Caller {
  /** SHA-256 of the API key, lowercase hexadecimal. */
  readonly keyHash: string
  readonly organizationId: string
  readonly workspaceId: string | null
}

/**
 * How a usage record came by its tokens: told by the provider, estimated from the text because the provider never
 * told, or none, because nothing was delivered.
 */
export type Accounting = 'exact' | 'estimated' | 'none'

/** Small shared records of the public interface. Pure. */

/** Who is asking, as far as the pipeline needs to know. */
export interface Caller {
  /** SHA-256 of the API key, lowercase hexadecimal. */
  readonly keyHash: string
  readonly organizationId: string
  readonly workspaceId: string | null
}

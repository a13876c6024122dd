/** What an operator is told when a storage cannot be used. */

/** The message is fit for the operator and free of credentials, and of all that came from a URL with credentials. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  /** Short, from the system or the database, or `schema` when its schema is not for us; null when there is none. */
  readonly code: string | null

  constructor(message: string, code: string | null = null, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}

/** What a database that comes back does not cure: who we are, what is asked for, and a schema that is not ours. */
const LASTING = new Set(['28000', '28P01', '3D000', '42501', 'schema'])

/** Whether a storage cannot be used now, but may be later without anybody changing anything here. */
export function isAway(error: unknown): error is StoreError {
  return error instanceof StoreError && !LASTING.has(error.code ?? '')
}

/** The `code` of an error of the system or of a database. */
export function codeOf(error: unknown): string | null {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined
  return typeof code === 'string' ? code : null
}

/**
 * Limits how many batches of one key can be accepted at the same time, and tracks the idempotency keys they use. One
 * instance per thread.
 */
import { GatewayError, RETRY_AFTER_SECONDS } from '../base/errors.ts'

/** Bodies may be large and arrive slowly. Clients that send one batch after the other never reach this limit. */
const MAX_PER_KEY = 4

export class AcceptanceSlots {
  /** Keyed by hash of the key. */
  readonly #counts = new Map<string, number>()
  readonly #idempotencyKeys = new Set<string>()

  /**
   * Takes a slot. Call the returned function to release it.
   * @throws GatewayError `conflict` if the idempotency key is in use, `rate_limit_exceeded` if no slot is free
   */
  enter(keyHash: string, idempotencyKey: string | null): () => void {
    const name = `${keyHash}\n${idempotencyKey}`
    if (idempotencyKey !== null && this.#idempotencyKeys.has(name)) throw idempotencyConflict()
    const count = this.#counts.get(keyHash) ?? 0
    if (count >= MAX_PER_KEY) {
      throw new GatewayError(
        'rate_limit_exceeded',
        `This API key is already uploading ${MAX_PER_KEY} batches: wait until one of them has been accepted`,
        {
          retryAfterSeconds: RETRY_AFTER_SECONDS.moment,
        },
      )
    }
    this.#counts.set(keyHash, count + 1)
    if (idempotencyKey !== null) this.#idempotencyKeys.add(name)
    return () => {
      if (idempotencyKey !== null) this.#idempotencyKeys.delete(name)
      const newCount = (this.#counts.get(keyHash) ?? 1) - 1
      if (newCount === 0) this.#counts.delete(keyHash)
      else this.#counts.set(keyHash, newCount)
    }
  }
}

/** Another request with the same idempotency key is being accepted. */
export function idempotencyConflict(): GatewayError {
  return new GatewayError(
    'conflict',
    'Idempotency-Key: another request with this key is still being accepted; retry in a moment',
    {
      retryAfterSeconds: RETRY_AFTER_SECONDS.moment,
    },
  )
}

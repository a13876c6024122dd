/**
 * Limits how many batches of one key can be accepted at the same time, and tracks the idempotency keys they use. One
 * instance per thread.
 */
import { GatewayError, RETRY_AFTER_SECONDS } from '../base/errors.ts'

/** Bodies may be large and arrive slowly; clients that send one after the other never notice. */
const PER_KEY = 4

export class AcceptancePlaces {
  /** By hash of the key. */
  readonly #counts = new Map<string, number>()
  readonly #idempotencyKeys = new Set<string>()

  /**
   * Takes a place; call the result to give it back.
   * @throws GatewayError `conflict` when the idempotency key is held, `rate_limit_exceeded` when there is no place
   */
  enter(keyHash: string, idempotencyKey: string | null): () => void {
    const name = `${keyHash}\n${idempotencyKey}`
    if (idempotencyKey !== null && this.#idempotencyKeys.has(name)) throw keyTaken()
    const count = this.#counts.get(keyHash) ?? 0
    if (count >= PER_KEY) {
      throw new GatewayError(
        'rate_limit_exceeded',
        `This API key is already uploading ${PER_KEY} batches: wait until one of them has been accepted`,
        {
          retryAfterSeconds: RETRY_AFTER_SECONDS.moment,
        },
      )
    }
    this.#counts.set(keyHash, count + 1)
    if (idempotencyKey !== null) this.#idempotencyKeys.add(name)
    return () => {
      if (idempotencyKey !== null) this.#idempotencyKeys.delete(name)
      const left = (this.#counts.get(keyHash) ?? 1) - 1
      if (left === 0) this.#counts.delete(keyHash)
      else this.#counts.set(keyHash, left)
    }
  }
}

/** Another request with the same idempotency key is on its way. */
export function keyTaken(): GatewayError {
  return new GatewayError(
    'conflict',
    'Idempotency-Key: another request with this key is still being accepted; retry in a moment',
    {
      retryAfterSeconds: RETRY_AFTER_SECONDS.moment,
    },
  )
}

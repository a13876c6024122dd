/**
 * Stops running requests soon after their API key has been deleted or disabled. This needs no extra state: when a
 * record changes, the open requests of this thread are searched. Serve and batch threads.
 */

import { GatewayError, rewritten } from '../../base/errors.ts'
import type { ApiKeys } from '../../callers/keys.ts'
import type { KeyedRequests } from '../../server/admission/admission-control.ts'
import type { Invalidation } from '../../storage/invalidation/bus.ts'

/**
 * Checks again each key that has open requests and whose record may have changed, and ends the requests of keys that
 * are no longer valid. A key that cannot be read now keeps its requests. Never rejects.
 */
export async function endInvalid(
  keys: Pick<ApiKeys, 'find'>,
  change: Invalidation,
  open: readonly KeyedRequests[],
): Promise<void> {
  if (change.kind !== 'all' && change.kind !== 'key') return
  const hashes = new Set<string>()
  for (const each of open) each.openKeys(hashes)
  for (const each of hashes) {
    if (change.kind === 'key' && each !== change.hash) continue
    const error = await invalidity(keys, each)
    if (error !== null) for (const one of open) one.endKey(each, error)
  }
}

async function invalidity(keys: Pick<ApiKeys, 'find'>, hash: string): Promise<GatewayError | null> {
  try {
    await keys.find(hash)
    return null
  } catch (thrown) {
    if (!(thrown instanceof GatewayError) || thrown.code !== 'authentication') return null
    return rewritten(thrown, {
      message: `The request was ended because its API key is no longer valid: ${thrown.message}`,
    })
  }
}

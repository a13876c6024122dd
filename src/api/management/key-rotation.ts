/**
 * POST /keys/{hash}/rotate: gives a key a new secret. The old secrets stay valid for the overlap. The key itself, its
 * limits and its usage do not change.
 */

import { isoInstant } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import { createSecret } from '../../callers/api-key.ts'
import { bodyCheck } from '../../protocol/json/body.ts'
import { KEY_SECRETS_MAX } from '../../protocol/limits.ts'
import { type KeyRecord, KeyRotation } from '../../protocol/management/keys.ts'
import { ConflictError } from '../../storage/store.ts'
import type { Handler } from '../operation.ts'
import { audited } from './audit.ts'
import { refuseSessionKeyChange, requireLongerLife, requireRoleFor } from './key-authority.ts'
import { detailOf, hashOf, requireFound, toObject } from './keys.ts'
import type { ManagementParts } from './parts.ts'

const checkRotation = bodyCheck(KeyRotation)

export function rotateKey(deps: ManagementParts): Handler {
  const { store, clock, changes } = deps
  return async (request, reply) => {
    const { overlap_seconds } = checkRotation(request.body)
    const hash = hashOf(request)
    const { organizationId } = request.key
    const target = requireFound(await store.keys.findIn(organizationId, hash))
    requireRoleFor(request.key, target)
    requireLongerLife(request.key, target)
    refuseSessionKeyChange(target, null)
    const { key, secret } = createSecret(target.kind, clock)
    const endsAt = isoInstant(clock.nowMs() + overlap_seconds * 1000)
    let rotated: KeyRecord | null
    try {
      rotated = await audited(
        deps,
        request,
        'key.rotate',
        ({ keys }) => keys.rotate(organizationId, hash, secret, endsAt, KEY_SECRETS_MAX),
        record => record && toObject(record),
      )
    } catch (thrown) {
      throw thrown instanceof ConflictError ? tooMany() : thrown
    }
    const record = requireFound(rotated)
    changes.publish({ kind: 'key', hash })
    reply.json(200, { data: await detailOf(deps, record), key })
  }
}

function tooMany(): GatewayError {
  return new GatewayError(
    'conflict',
    `The key already has ${KEY_SECRETS_MAX} valid secrets, which is the maximum: wait until one of them has expired, or set overlap_seconds to 0`,
  )
}

/** Who may call what: the key of a request, and the kind of key a route asks for. */
import type { ApiKeys } from '../access/keys.ts'
import { GatewayError } from '../errors.ts'
import type { KeyRecord } from '../storage/store.ts'

/** What the front end needs of the key ring: one verb, answered at once for keys it knows. */
export type KeyRing = Pick<ApiKeys, 'authenticate'>

/** `any`: both kinds of key may read it. */
export type KeyNeed = 'inference' | 'management' | 'any'

const REFUSALS = {
  inference: 'A management key cannot call inference operations',
  management: 'A management key is required',
} as const

/** @throws GatewayError `permission_denied` when the key is of the other kind. */
export function requireKind(key: KeyRecord, need: KeyNeed): void {
  if (need !== 'any' && key.kind !== need) throw new GatewayError('permission_denied', REFUSALS[need])
}

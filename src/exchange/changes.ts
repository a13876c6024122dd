/**
 * The loss report: parts of a request that were dropped or changed on its way to a provider, by the client's own field
 * names. Pure.
 */
import type { Change } from '../formats/format.ts'
import type { ClientRequest } from './exchange.ts'

/** A change by the path in the client's own body. */
export interface ReportedChange {
  readonly field: string
  readonly action: 'dropped' | 'changed' | 'moved'
  readonly reason: string
}

/** An addition is reported as a change. */
export function reportedChanges(
  changes: readonly Change[],
  { inOwnNames, request }: Pick<ClientRequest, 'inOwnNames' | 'request'>,
): readonly ReportedChange[] {
  return changes.map(({ field, action, reason }) => ({
    field: inOwnNames === undefined ? field : inOwnNames(`${field}: `, request).slice(0, -2),
    action: action === 'added' ? 'changed' : action,
    reason,
  }))
}

/** True if another provider may take the request with fewer changes. */
export function isLossy(changes: readonly Change[]): boolean {
  return changes.some(isLoss)
}

/** Additions take nothing away, and headers are the gateway's own business at every provider. */
export function isLoss({ action, field }: Change): boolean {
  return action !== 'added' && !field.startsWith('header:')
}

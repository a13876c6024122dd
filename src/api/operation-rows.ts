/** Rows of operations, by the kind of key that may use them. */
import type { KeyRole } from '../protocol/management/keys.ts'
import type { Handler, Method, Operation } from './operation.ts'

/** Method, space and path below `/v1`: the beginning of a row. */
type OperationAddress = `${Method} /${string}`

/** For inference keys, about their own data. */
export function apiKey(
  address: OperationAddress,
  id: string,
  summary: string,
  handler: Handler,
  bytes = 0,
): Operation {
  return { ...row(address, id, summary, handler, bytes), key: 'inference' }
}

export function anyKey(address: OperationAddress, id: string, summary: string, handler: Handler): Operation {
  return { ...row(address, id, summary, handler, 0), key: 'any' }
}

/** For management keys with at least this role. */
export function managementKey(role: KeyRole) {
  return (
    address: OperationAddress,
    id: string,
    summary: string,
    handler: Handler,
    bodyLimitBytes = 0,
  ): Operation => ({ ...row(address, id, summary, handler, bodyLimitBytes), key: 'management', role })
}

function row(
  address: OperationAddress,
  id: string,
  summary: string,
  handler: Handler,
  bodyLimitBytes: number,
) {
  const accept: 'json' | 'none' = bodyLimitBytes > 0 ? 'json' : 'none'
  return { ...rowStart(address, id, summary), bodyLimitBytes, accept, handler }
}

export function rowStart(address: OperationAddress, id: string, summary: string) {
  const [method, path] = address.split(' ') as [Method, string]
  return { id, summary, method, path, dialect: null }
}

/** Storage errors, classified by the reaction of the caller: wait, inform an operator, or drop the record. */
import { isError } from '../base/errors.ts'

/** A storage that cannot be used. The message is for the operator and contains no part of a URL with credentials. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  /** The code of the system or the database, or `schema` for an unsuitable schema; null without a code. */
  readonly code: string | null

  constructor(message: string, code: string | null = null, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}

/**
 * Codes of faults that stay until an operator acts: wrong login, name or permissions, a foreign schema, a damaged file.
 */
const PERMANENT_CODES = new Set([
  '28000',
  '28P01',
  '3D000',
  '42501',
  'schema',
  'SQLITE_CORRUPT',
  'SQLITE_NOTADB',
])

/** True if the storage is unavailable now and may recover without a change of configuration. */
export function isAway(error: unknown): error is StoreError {
  return error instanceof StoreError && !PERMANENT_CODES.has(error.code ?? '')
}

/** True if the file of an embedded database cannot be used, for example because its disk is full. */
export function isDiskFault(error: unknown): error is StoreError {
  return (
    error instanceof StoreError && error.code?.startsWith('SQLITE_') === true && error.code !== 'SQLITE_BUSY'
  )
}

/** SQLite error kinds caused by values: a violated constraint, and a wrong type. */
const UNFIT_KINDS: readonly number[] = [19, 20]
/**
 * Codes for a column that a newer version added and this version does not fill, in SQLite and PostgreSQL. The record is
 * not at fault.
 */
const MISSING: readonly unknown[] = [1299, '23502']

/** True if the values of a statement are the cause, so that it fails at every try. */
export function isUnfit(error: unknown): boolean {
  if (error instanceof TypeError || error instanceof RangeError) return true
  const kind: unknown = isError(error) ? Reflect.get(error, 'errcode') : undefined
  const code = codeOf(error)
  if (MISSING.includes(kind) || MISSING.includes(code)) return false
  // Classes 22 and 23 of PostgreSQL: data exceptions and violated constraints.
  return (typeof kind === 'number' && UNFIT_KINDS.includes(kind & 0xff)) || /^2[23]...$/.test(code ?? '')
}

/** The `code` of an error of the system or of a database. */
export function codeOf(error: unknown): string | null {
  const code: unknown = isError(error) ? Reflect.get(error, 'code') : undefined
  return typeof code === 'string' ? code : null
}

/**
 * Shared by all dialects: maps a body to a request, and paths in errors back to the client's own field names.
 * Pure. Hot path: one walk over the fields of a body.
 */
import { refuseField } from '../base/errors.ts'

/** A field of another API, with its equivalent in this one. */
export type ForeignField = readonly [name: string, advice: string]

/** Refuses fields of other APIs, which would be lost silently as unknown fields. `api`: the name of this API. */
export function refuseForeign(body: object, fields: readonly ForeignField[], api: string): void {
  const original = body as Readonly<Record<string, unknown>>
  for (const [name, advice] of fields) {
    if (original[name] != null) throw refuseField(name, `is not a field of ${api}: ${advice}`)
  }
}

/** The fields that are set, without those that have another name or form in a request, or mean nothing there. */
export function fieldsWithout(body: object, translatedNames: ReadonlySet<string>): Record<string, unknown> {
  const fields: Record<string, unknown> = {}
  for (const [name, field] of Object.entries(body)) {
    if (field !== null && field !== undefined && !translatedNames.has(name)) fields[name] = field
  }
  return fields
}

/** An error message of the gateway that begins with the path of a field. */
const PATH_PREFIX = /^([a-z_]+)(?:\[(\d{1,7})\])?([\w.[\]*-]{0,255}): /

/** The client's path of a field of a request; null: the same name. `subpath` follows the field and its index. */
type PathOf = (field: string, index: number | null, subpath: string) => string | null

/** The message with its path in the client's own names. */
export function withClientPath(message: string, pathOf: PathOf): string {
  const match = PATH_PREFIX.exec(message)
  if (match === null) return message
  const [prefix, field = '', index, subpath = ''] = match
  const path = pathOf(field, index === undefined ? null : Number(index), subpath)
  return path === null ? message : `${path}: ${message.slice(prefix.length)}`
}

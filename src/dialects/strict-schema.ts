/**
 * Strict JSON schemas, the form that all providers with schemas enforce. Pure. Some APIs enforce any schema; others only
 * strict ones, and do not guarantee the rest.
 */
import { isObject } from '../protocol/json/schema.ts'

/** Keywords that contain schemas: one, a list, or a map by name. */
const SCHEMA_KEYWORDS = ['items', 'anyOf', 'allOf', 'properties', '$defs', 'definitions']

/** True if each object lists all of its properties as required and allows no others. */
export function isStrict(schema: unknown): boolean {
  if (Array.isArray(schema)) return schema.every(isStrict)
  if (!isObject(schema)) return true
  const { properties, required, additionalProperties } = schema
  if (schema['type'] === 'object' || properties !== undefined) {
    const names = isObject(properties) ? Object.keys(properties) : []
    const requiredNames = new Set<unknown>(Array.isArray(required) ? required : [])
    if (additionalProperties !== false || !names.every(name => requiredNames.has(name))) return false
  }
  return SCHEMA_KEYWORDS.every(keyword => {
    const inner = schema[keyword]
    return isStrict(
      keyword === 'items' || Array.isArray(inner) || !isObject(inner) ? inner : Object.values(inner),
    )
  })
}

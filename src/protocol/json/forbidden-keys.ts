/**
 * Rejects keys such as `__proto__`, which would change a prototype when an object is copied or merged. Pure. Hot path:
 * every request passes it, so the first pass only checks; a second pass finds the path where there is such a key.
 */
import { JSON_MAX_DEPTH } from '../limits.ts'
import { elementPath, fieldPath } from './schema.ts'

const FORBIDDEN: ReadonlySet<string> = new Set(['__proto__', 'constructor', 'prototype'])

/** Fields that hold a JSON Schema, where clients choose the names of properties. */
const SCHEMA_FIELDS: ReadonlySet<string> = new Set(['schema', 'input_schema', 'output_schema'])

/**
 * `parameters` is a JSON Schema in a function only, flat or, as the chat dialect has it, in an object of its own that
 * has a name and no type; elsewhere it holds settings.
 */
function holdsSchema(parent: object, key: string): boolean {
  if (SCHEMA_FIELDS.has(key)) return true
  if (key !== 'parameters') return false
  const { type, name } = parent as { type?: unknown; name?: unknown }
  return type === 'function' || (type === undefined && typeof name === 'string')
}

interface Place {
  readonly value: object
  readonly path: string
  readonly depth: number
  readonly inSchema: boolean
}

/**
 * The problem as `<path>: …` if an object anywhere in the value has the key `__proto__`, `constructor` or
 * `prototype`, or if the value is nested too deep; otherwise null. In a JSON Schema only `__proto__` is refused: an
 * argument of a function may have the name `constructor`.
 */
export function forbiddenKey(root: unknown): string | null {
  return isClean(root) ? null : locate(root)
}

/** Iterative, with one array per level and no other allocation. False for anything that `locate` has to check. */
function isClean(root: unknown): boolean {
  if (typeof root !== 'object' || root === null) return true
  let level: object[] = [root]
  for (let depth = 1; level.length > 0; depth++) {
    if (depth > JSON_MAX_DEPTH) return false
    const next: object[] = []
    for (const node of level) {
      if (Array.isArray(node)) {
        for (const element of node) if (typeof element === 'object' && element !== null) next.push(element)
        continue
      }
      for (const key of Object.keys(node)) {
        if (FORBIDDEN.has(key)) return false
        const value: unknown = (node as Record<string, unknown>)[key]
        if (typeof value === 'object' && value !== null) next.push(value)
      }
    }
    level = next
  }
  return true
}

function locate(root: unknown): string | null {
  const places: Place[] = [{ value: root as object, path: '', depth: 1, inSchema: false }]
  for (let place = places.pop(); place !== undefined; place = places.pop()) {
    const { value, path, depth, inSchema } = place
    if (depth > JSON_MAX_DEPTH) return `body: must not be nested deeper than ${JSON_MAX_DEPTH} levels`
    if (Array.isArray(value)) {
      for (let index = 0; index < value.length; index++) {
        const element: unknown = value[index]
        if (typeof element === 'object' && element !== null) {
          places.push({ value: element, path: elementPath(path, index), depth: depth + 1, inSchema })
        }
      }
      continue
    }
    for (const key of Object.keys(value)) {
      if (inSchema ? key === '__proto__' : FORBIDDEN.has(key))
        return `${fieldPath(path, key)}: is not an allowed field name`
      const field: unknown = (value as Record<string, unknown>)[key]
      if (typeof field === 'object' && field !== null) {
        places.push({
          value: field,
          path: fieldPath(path, key),
          depth: depth + 1,
          inSchema: inSchema || holdsSchema(value, key),
        })
      }
    }
  }
  return null
}

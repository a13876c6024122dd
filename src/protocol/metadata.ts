/** `metadata`: a small map of strings that is echoed, never interpreted. Pure. */
import { Kind, type TSchema, type TUnsafe, TypeRegistry } from '@sinclair/typebox'
import { METADATA_KEY_MAX_CHARS, METADATA_MAX_PAIRS, METADATA_VALUE_MAX_CHARS } from './limits.ts'
import { fieldPath } from './paths.ts'
import { isObject, withinCharacters } from './schema.ts'

const PAIRS = `must have at most ${METADATA_MAX_PAIRS} pairs`
const KEY = `must have keys of at most ${METADATA_KEY_MAX_CHARS} characters without brackets`
const VALUE = `must be a string of at most ${METADATA_VALUE_MAX_CHARS} characters`

/** What is wrong with a metadata map, or null. */
export function metadataProblem(value: unknown, path: string): string | null {
  if (!isObject(value)) return `${path}: must be an object of strings`
  const keys = Object.keys(value)
  if (keys.length > METADATA_MAX_PAIRS) return `${path}: ${PAIRS}`
  for (const key of keys) {
    if (!withinCharacters(key, METADATA_KEY_MAX_CHARS) || /[[\]]/.test(key)) return `${path}: ${KEY}`
    const entry = value[key]
    if (typeof entry !== 'string' || !withinCharacters(entry, METADATA_VALUE_MAX_CHARS)) {
      return `${fieldPath(path, key)}: ${VALUE}`
    }
  }
  return null
}

TypeRegistry.Set<TSchema>('Metadata', (_schema, value) => metadataProblem(value, '') === null)

export const metadataMap = {
  [Kind]: 'Metadata',
  type: 'object',
  maxProperties: METADATA_MAX_PAIRS,
  propertyNames: { maxLength: METADATA_KEY_MAX_CHARS, pattern: '^[^\\[\\]]*$' },
  additionalProperties: { type: 'string', maxLength: METADATA_VALUE_MAX_CHARS },
} as unknown as TUnsafe<Record<string, string>>

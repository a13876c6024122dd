/** Annotations that a provider of the Responses format reports. Pure. */
import { filled, record } from '../base/json.ts'
import type { Annotation } from '../protocol/parts.ts'

/** The types of the fields that dialects read, for any kind of annotation. */
const FIELD_TYPES: Readonly<Record<string, 'string' | 'number' | 'object'>> = {
  url: 'string',
  title: 'string',
  content: 'string',
  file_id: 'string',
  filename: 'string',
  container_id: 'string',
  index: 'number',
  start_index: 'number',
  end_index: 'number',
  file: 'object',
}

/** True if dialects can read the annotation: fields may be missing, but none may have a wrong type. */
export function isAnnotation(value: unknown): value is Annotation {
  const annotation = record(value)
  if (annotation === null || filled(annotation['type']) === null) return false
  for (const name in FIELD_TYPES) {
    const field = annotation[name]
    if (field != null && typeof field !== FIELD_TYPES[name]) return false
  }
  return true
}

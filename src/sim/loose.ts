/** Reading foreign JSON without trusting its shape: what is not there, or of another type, is empty. Pure. */

export type Fields = Readonly<Record<string, unknown>>

const NOTHING: Fields = Object.freeze(Object.create(null))

/** The object, or one without fields. */
export function fieldsOf(value: unknown): Fields {
  return value !== null && typeof value === 'object' && !Array.isArray(value) ? (value as Fields) : NOTHING
}

/** The array, or an empty one. */
export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

/** The string, or an empty one. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

/** The number, or null. */
export function numberOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null
}

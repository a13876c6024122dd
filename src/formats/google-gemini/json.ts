/**
 * Reading foreign JSON of the Gemini API: fields are left out when they have their default value, and may be of
 * any type. Every reader gives the value when it is what the name says, else null. Pure. Hot path.
 */

export type Json = Readonly<Record<string, unknown>>

export function record(value: unknown): Json | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : null
}

/** The objects of a list; anything else in it, and anything that is no list, is nothing. */
export function records(value: unknown): readonly Json[] {
  return Array.isArray(value) ? value.filter(element => record(element) !== null) : []
}

/** A string that says something. */
export function filled(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null
}

/** A whole number from 0, or null when none was given. */
export function count(value: unknown): number | null {
  return typeof value === 'number' && value >= 0 && value <= Number.MAX_SAFE_INTEGER
    ? Math.floor(value)
    : null
}

export function strings(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter(element => typeof element === 'string' && element !== '') : []
}

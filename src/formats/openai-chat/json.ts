/**
 * Reading foreign JSON: providers of the Chat Completions format leave fields out, send null, '' or another type.
 * Every reader gives the value when it is what the name says, else null. Pure. Hot path.
 */

export type Json = Readonly<Record<string, unknown>>

export function record(value: unknown): Json | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : null
}

export function list(value: unknown): readonly unknown[] | null {
  return Array.isArray(value) ? (value as readonly unknown[]) : null
}

/** A string that says something: '' is how several providers spell "nothing". */
export function filled(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null
}

/** A count: a whole number from 0, whatever was sent. */
export function count(value: unknown): number {
  return typeof value === 'number' && value > 0 && Number.isFinite(value)
    ? Math.min(Math.floor(value), Number.MAX_SAFE_INTEGER)
    : 0
}

/**
 * What the readers and writers of the Responses wire format share: careful access to foreign JSON, and whose
 * reasoning an endpoint can take back. Pure.
 */
import type { ReasoningFormat } from '../format.ts'

/** A JSON object of which nothing is known. */
export type Fields = Readonly<Record<string, unknown>>

export function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The value as an object; anything else as an empty one. */
export function fieldsOf(value: unknown): Fields {
  return isFields(value) ? value : {}
}

/** The objects of a list; anything else as an empty one. */
export function listOf(value: unknown): readonly Fields[] {
  return Array.isArray(value) ? value.filter(isFields) : []
}

/** The value when it is a string that says something, else null. */
export function textOf(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null
}

/** A copy without the named keys, `__proto__` and (unless `nulls`) nulls; null when nothing is left. */
export function remainder(value: Fields, without: ReadonlySet<string>, nulls = false): Fields | null {
  const kept = Object.entries(value).filter(
    ([key, one]) => (nulls || one !== null) && one !== undefined && key !== '__proto__' && !without.has(key),
  )
  return kept.length === 0 ? null : Object.fromEntries(kept)
}

const REASONING_FORMATS: ReadonlySet<unknown> = new Set<ReasoningFormat>([
  'unknown',
  'openai-responses-v1',
  'azure-openai-responses-v1',
  'xai-responses-v1',
  'anthropic-claude-v1',
  'google-gemini-v1',
])

export function reasoningFormat(value: unknown): ReasoningFormat | null {
  return REASONING_FORMATS.has(value) ? (value as ReasoningFormat) : null
}

/** Providers whose encrypted reasoning only they can read. Others of this wire format send it plain or not at all. */
const OWN_REASONING: ReadonlyMap<string, ReasoningFormat> = new Map([
  ['openai', 'openai-responses-v1'],
  ['azure', 'azure-openai-responses-v1'],
  ['xai', 'xai-responses-v1'],
])

/** The name of a provider's own encrypted reasoning, by its slug; null when it has none that we know of. */
export function ownReasoning(slug: string): ReasoningFormat | null {
  return OWN_REASONING.get(slug) ?? null
}

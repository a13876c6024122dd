/**
 * Narrow readers of Anthropic's JSON: a field of a wrong type reads like a missing one, so that nothing a
 * provider (or something between it and us) sends can throw where it is looked at. Pure. Hot path.
 */

import { GatewayError } from '../../errors.ts'

/** A JSON object of the provider, never trusted to have any field. */
export type Wire = Readonly<Record<string, unknown>>

export function record(value: unknown): Wire | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Wire) : null
}

export function text(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

/** The text, or null when there is none to speak of. */
export function textOrNull(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null
}

export function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

/** A count of something; null when missing, negative or no whole number. */
export function count(value: unknown): number | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null
}

/**
 * JSON text of a value that came out of JSON.
 * @throws GatewayError `provider_unavailable` when it is nested too deeply to be written again
 */
export function jsonText(value: unknown): string {
  try {
    return JSON.stringify(value)
  } catch (cause) {
    throw new GatewayError('provider_unavailable', 'The provider sent a value that is nested too deeply', {
      cause,
    })
  }
}

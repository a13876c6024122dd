/** How the gateway handles everything that a provider can do wrong: the documented outcome of each fault. */
import type { SIM_FORMATS } from '../../src/apps/simulator/rows.ts'

/**
 * `ok`: served all the same. A number: that status before anything was sent. `[n]`: fails after the first content in a
 * stream, with status n where the answer is whole.
 */
export type Expected = 'ok' | number | readonly [whole: number]

/** The OpenAI error object has no place for a status, so an overload told inside a 200 is just a failure there. */
const IN_BAND: Readonly<Record<string, number>> = {
  'openai-responses': 502,
  'openai-chat': 502,
  'anthropic-messages': 529,
  'google-gemini': 529,
}

export const CASES: Readonly<Record<string, Expected>> = {
  'status-400': 400,
  'status-401': 502,
  'status-402': 502,
  'status-403': 502,
  'status-404': 502,
  'status-408': 524,
  'status-413': 413,
  'status-422': 422,
  'status-429': 429,
  'status-500': 502,
  'status-502': 502,
  'status-503': 503,
  'status-504': 524,
  'status-529': 529,
  'status-999': 502,
  reset: 502,
  close: 502,
  garbage: 502,
  'no-headers': 524,
  'slow-headers-50': 'ok',
  'slow-first-token-50': 'ok',
  'no-first-token': 524,
  stall: [524],
  'drip-0': 'ok',
  'drip-250': 408,
  'cut-reset': [502],
  'cut-close': [502],
  'cut-length': [502],
  'cut-end': [502],
  'cut-bare': [502],
  'no-finish': [502],
  'error-in-stream': [529],
  'error-first': 529,
  'error-under-200': 502,
  html: 502,
  'json-instead-of-sse': 'ok',
  'bad-sse': [502],
  'huge-frame': [502],
  'empty-reply': 502,
  redirect: 502,
  gzip: 502,
  'both-lengths': 502,
  'bad-chunk': [502],
  'big-headers': 502,
  'second-reply': 'ok',
}

/** Nothing ends these but a deadline. */
export const SILENT: ReadonlySet<string> = new Set(['no-headers', 'no-first-token', 'stall', 'drip-250'])

/** A refused request is not tried again at another endpoint of the same model; neither is one out of time. */
export function isFinal(expected: Expected): boolean {
  return typeof expected === 'number' && [400, 413, 422, 408].includes(expected)
}

/** The status of the failure where nothing was sent before it; null: it is served. */
export function statusOf(
  kind: string,
  expected: Expected,
  format: (typeof SIM_FORMATS)[number],
): number | null {
  if (expected === 'ok') return null
  // A whole reply with content was not cut, unless its own status says so.
  if (kind === 'no-finish' && format !== 'openai-responses') return null
  if (kind === 'error-in-stream' || kind === 'error-first') return IN_BAND[format] ?? null
  return typeof expected === 'number' ? expected : expected[0]
}

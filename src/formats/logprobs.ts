/** Log probabilities reported by a provider. Pure. */
import { record } from '../base/json.ts'
import type { Logprob } from '../protocol/parts.ts'

/** True if dialects can read the log probability: fields of a wrong type make it invalid. */
export function isLogprob(value: unknown): value is Logprob {
  const fields = record(value)
  if (fields === null || !isScored(fields)) return false
  const top = fields['top_logprobs'] ?? []
  return Array.isArray(top) && top.every(entry => record(entry) !== null)
}

function isScored({ token, logprob, bytes }: Readonly<Record<string, unknown>>): boolean {
  return typeof token === 'string' && typeof logprob === 'number' && (bytes == null || Array.isArray(bytes))
}

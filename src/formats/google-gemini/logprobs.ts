/** `logprobsResult` as log probabilities of the Responses vocabulary. Pure. */
import type { Logprob } from '../../protocol/items.ts'
import { type Json, listOrEmpty, record, records } from '../json.ts'

/** Null when there are none. */
export function logprobsOf(result: Json | null): readonly Logprob[] | null {
  if (result === null) return null
  const alternatives = listOrEmpty(result['topCandidates'])
  const logprobs: Logprob[] = []
  for (const [position, chosen] of records(result['chosenCandidates']).entries()) {
    const own = logprobOf(chosen)
    if (own === null) continue
    const top: Logprob[] = []
    for (const candidate of records(record(alternatives[position])?.['candidates'])) {
      const alternative = logprobOf(candidate)
      if (alternative !== null) top.push(alternative)
    }
    logprobs.push({ ...own, top_logprobs: top })
  }
  return logprobs.length === 0 ? null : logprobs
}

function logprobOf(candidate: Json): { token: string; logprob: number; bytes: number[] } | null {
  const token = candidate['token']
  const logprob = candidate['logProbability']
  if (typeof token !== 'string' || typeof logprob !== 'number') return null
  return { token, logprob, bytes: [...Buffer.from(token)] }
}

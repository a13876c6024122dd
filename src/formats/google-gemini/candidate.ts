/** The candidate of one Gemini chunk, read by the keys it holds: the only place that knows their names. Hot path. */
import type { Logprob } from '../../protocol/items.ts'
import { filled, type Json, listOrEmpty, record, records } from '../json.ts'

export interface Candidate {
  readonly parts: readonly unknown[]
  readonly logprobs: readonly Logprob[] | null
  /** Null until the reply is said to be over, in the provider's own word. */
  readonly finish: string | null
  /** True when its metadata may cite text, said already or still to come. */
  readonly cites: boolean
}

/** How the protocol spells "not finished" where a field must have a value. */
export const NOT_FINISHED = 'FINISH_REASON_UNSPECIFIED'

export function readCandidate(candidate: Json): Candidate {
  let parts: readonly unknown[] = []
  let logprobs: readonly Logprob[] | null = null
  let finish: string | null = null
  let cites = false
  for (const key in candidate) {
    switch (key) {
      case 'content':
        parts = listOrEmpty(record(candidate[key])?.['parts'])
        break
      case 'logprobsResult':
        logprobs = logprobsOf(record(candidate[key]))
        break
      case 'finishReason':
        finish = filled(candidate[key])
        break
      case 'groundingMetadata':
      case 'citationMetadata':
      case 'urlContextMetadata':
        if (record(candidate[key]) !== null) cites = true
        break
    }
  }
  return { parts, logprobs, finish: finish === NOT_FINISHED ? null : finish, cites }
}

/** Candidates beside the first are never asked for; index 0 may be left out, as all zeros may. */
export function firstCandidate(candidates: unknown): Json | null {
  for (const element of listOrEmpty(candidates)) {
    const candidate = record(element)
    if (candidate === null) continue
    const index = candidate['index']
    if (index === undefined || index === 0) return candidate
  }
  return null
}

/** `logprobsResult` in the Responses vocabulary; null when there are none. */
function logprobsOf(result: Json | null): readonly Logprob[] | null {
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

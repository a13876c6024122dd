/** Token counts and service tier of a Gemini reply in the gateway's vocabulary. Pure. */
import { count, countOrZero, filled, type Json, record } from '../../base/json.ts'
import type { Usage } from '../format.ts'

/** Token counts; null for metadata without counts: some chunks name only the kind of traffic. */
export function usageOf(metadata: Json, webSearchRequests: number): Usage | null {
  const prompt = count(metadata['promptTokenCount'])
  const candidates = count(metadata['candidatesTokenCount'])
  const total = count(metadata['totalTokenCount'])
  if (prompt === null && candidates === null && total === null) return null
  const toolTokens = count(metadata['toolUsePromptTokenCount']) ?? 0
  const thoughtTokens = count(metadata['thoughtsTokenCount']) ?? 0
  const candidateTokens = candidates ?? 0
  const promptTokens = prompt ?? 0

  // Gemini counts tool prompts and thoughts in addition to prompt and candidates. Some resellers include them; the
  // total shows which.
  let inputTokens = promptTokens + toolTokens
  let outputTokens = candidateTokens + thoughtTokens
  if (total !== null && total !== inputTokens + outputTokens) {
    if (candidates === null && total > inputTokens)
      outputTokens = Math.max(total - inputTokens, thoughtTokens)
    else if (thoughtTokens > 0 && total === inputTokens + candidateTokens)
      outputTokens = Math.max(candidateTokens, thoughtTokens)
    else if (toolTokens > 0 && total === promptTokens + candidateTokens + thoughtTokens)
      inputTokens = promptTokens
    else if (toolTokens > 0 && thoughtTokens > 0 && total === promptTokens + candidateTokens) {
      inputTokens = promptTokens
      outputTokens = Math.max(candidateTokens, thoughtTokens)
    }
  }
  return {
    inputTokens,
    cachedTokens: Math.min(count(metadata['cachedContentTokenCount']) ?? 0, inputTokens),
    cacheWriteTokens: 0,
    ...audioIn(metadata, inputTokens),
    ...(toolTokens === 0 ? undefined : { toolPromptTokens: Math.min(toolTokens, inputTokens) }),
    outputTokens,
    reasoningTokens: Math.min(thoughtTokens, outputTokens),
    webSearchRequests,
  }
}

/** The tokens of audio in the prompt, where the details name any. */
function audioIn(metadata: Json, inputTokens: number): Pick<Usage, 'audioTokens'> | undefined {
  const details = metadata['promptTokensDetails']
  if (!Array.isArray(details)) return undefined
  const audio = details
    .map(record)
    .reduce(
      (sum, detail) => sum + (detail?.['modality'] === 'AUDIO' ? countOrZero(detail['tokenCount']) : 0),
      0,
    )
  return audio === 0 ? undefined : { audioTokens: Math.min(audio, inputTokens) }
}

const SERVICE_TIERS: ReadonlyMap<string, string> = new Map([
  ['standard', 'default'],
  ['flex', 'flex'],
  ['priority', 'priority'],
  ['ON_DEMAND_FLEX', 'flex'],
  ['ON_DEMAND_PRIORITY', 'priority'],
])

/** The service tier of the reply in the gateway's words; null if unknown. */
export function tierOf(metadata: Json): string | null {
  return SERVICE_TIERS.get(filled(metadata['serviceTier']) ?? filled(metadata['trafficType']) ?? '') ?? null
}

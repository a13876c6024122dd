/** Token counts and service tier of a Gemini reply in the gateway's vocabulary. Pure. */
import { count, countOrZero, filled, type Json, record } from '../../base/json.ts'
import type { Usage } from '../format.ts'

/** Token counts; null for metadata without counts: some chunks name only the kind of traffic. */
export function usageOf(metadata: Json, webSearchRequests: number): Usage | null {
  const prompt = count(metadata['promptTokenCount'])
  const candidates = count(metadata['candidatesTokenCount'])
  const total = count(metadata['totalTokenCount'])
  if (prompt === null && candidates === null && total === null) return null
  const tools = count(metadata['toolUsePromptTokenCount']) ?? 0
  const thoughts = count(metadata['thoughtsTokenCount']) ?? 0
  const outputs = candidates ?? 0
  const inputs = prompt ?? 0

  // Gemini counts tool prompts and thoughts in addition to prompt and candidates. Some resellers include them; the
  // total shows which.
  let inputTokens = inputs + tools
  let outputTokens = outputs + thoughts
  if (total !== null && total !== inputTokens + outputTokens) {
    if (candidates === null && total > inputTokens) outputTokens = Math.max(total - inputTokens, thoughts)
    else if (thoughts > 0 && total === inputTokens + outputs) outputTokens = Math.max(outputs, thoughts)
    else if (tools > 0 && total === inputs + outputs + thoughts) inputTokens = inputs
    else if (tools > 0 && thoughts > 0 && total === inputs + outputs) {
      inputTokens = inputs
      outputTokens = Math.max(outputs, thoughts)
    }
  }
  return {
    inputTokens,
    cachedTokens: Math.min(count(metadata['cachedContentTokenCount']) ?? 0, inputTokens),
    cacheWriteTokens: 0,
    ...audioIn(metadata, inputTokens),
    ...(tools === 0 ? undefined : { toolPromptTokens: Math.min(tools, inputTokens) }),
    outputTokens,
    reasoningTokens: Math.min(thoughts, outputTokens),
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

const TIERS: ReadonlyMap<string, string> = new Map([
  ['standard', 'default'],
  ['flex', 'flex'],
  ['priority', 'priority'],
  ['ON_DEMAND_FLEX', 'flex'],
  ['ON_DEMAND_PRIORITY', 'priority'],
])

/** The service tier of the reply in the gateway's words; null if unknown. */
export function tierOf(metadata: Json): string | null {
  return TIERS.get(filled(metadata['serviceTier']) ?? filled(metadata['trafficType']) ?? '') ?? null
}

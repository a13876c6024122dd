/** Merges the usage reports of a reply, which come in one message or several. Pure. */
import type { Usage } from './format.ts'

/**
 * Counts of a reply are cumulative: the last complete set counts. A missing or zero count replaces nothing, and a
 * smaller count that lacks a kind of tokens (cached, written to the cache, reasoning) does not replace one that has it.
 */
export function mergedUsage(earlier: Usage, usage: Usage): Usage {
  const input = mergedInput(earlier, usage)
  const { outputTokens: earlierOutput, reasoningTokens: earlierReasoning } = earlier
  const isPoorer = usage.reasoningTokens === 0 && earlierReasoning > 0 && usage.outputTokens < earlierOutput
  const outputTokens = usage.outputTokens === 0 || isPoorer ? earlierOutput : usage.outputTokens
  return {
    ...input,
    outputTokens,
    reasoningTokens: Math.min(usage.reasoningTokens || earlierReasoning, outputTokens),
    webSearchRequests: usage.webSearchRequests || earlier.webSearchRequests,
  }
}

type InputCounts = Omit<Usage, 'outputTokens' | 'reasoningTokens' | 'webSearchRequests'>

function mergedInput(earlier: Usage, usage: Usage): InputCounts {
  const isPoorer =
    (earlier.cachedTokens > 0 && usage.cachedTokens === 0) ||
    (earlier.cacheWriteTokens > 0 && usage.cacheWriteTokens === 0)
  const usesEarlier = usage.inputTokens === 0 || (isPoorer && usage.inputTokens < earlier.inputTokens)
  const [counts, spare] = usesEarlier ? [earlier, usage] : [usage, earlier]
  const { inputTokens } = counts
  const cachedTokens = Math.min(counts.cachedTokens || spare.cachedTokens, inputTokens)
  const cacheWriteTokens = Math.min(
    counts.cacheWriteTokens || spare.cacheWriteTokens,
    inputTokens - cachedTokens,
  )
  const cacheWrite1hTokens = Math.min(
    counts.cacheWrite1hTokens || spare.cacheWrite1hTokens || 0,
    cacheWriteTokens,
  )
  const audioTokens = Math.min(counts.audioTokens || spare.audioTokens || 0, inputTokens)
  const toolPromptTokens = Math.min(counts.toolPromptTokens || spare.toolPromptTokens || 0, inputTokens)
  return {
    inputTokens,
    cachedTokens,
    cacheWriteTokens,
    ...(cacheWrite1hTokens === 0 ? undefined : { cacheWrite1hTokens: cacheWrite1hTokens }),
    ...(audioTokens === 0 ? undefined : { audioTokens: audioTokens }),
    ...(toolPromptTokens === 0 ? undefined : { toolPromptTokens: toolPromptTokens }),
  }
}

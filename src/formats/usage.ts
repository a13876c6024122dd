/** Merges the usage reports of a reply, which come in one message or several. Pure. */
import type { Usage } from './format.ts'

/**
 * Counts of a reply are cumulative: the last complete set counts. A missing or zero count replaces nothing, and a set
 * with fewer kinds of tokens does not replace one with more.
 */
export function mergedUsage(before: Usage, usage: Usage): Usage {
  const input = mergedInput(before, usage)
  const { outputTokens: wasOutput, reasoningTokens: wasReasoning } = before
  const isPoorer = usage.reasoningTokens === 0 && wasReasoning > 0 && usage.outputTokens < wasOutput
  const outputTokens = usage.outputTokens === 0 || isPoorer ? wasOutput : usage.outputTokens
  return {
    ...input,
    outputTokens,
    reasoningTokens: Math.min(usage.reasoningTokens || wasReasoning, outputTokens),
    webSearchRequests: usage.webSearchRequests || before.webSearchRequests,
  }
}

type InputCounts = Omit<Usage, 'outputTokens' | 'reasoningTokens' | 'webSearchRequests'>

function mergedInput(before: Usage, usage: Usage): InputCounts {
  const isPoorer =
    (before.cachedTokens > 0 && usage.cachedTokens === 0) ||
    (before.cacheWriteTokens > 0 && usage.cacheWriteTokens === 0)
  const isBefore = usage.inputTokens === 0 || (isPoorer && usage.inputTokens < before.inputTokens)
  const [main, other] = isBefore ? [before, usage] : [usage, before]
  const { inputTokens } = main
  const cachedTokens = Math.min(main.cachedTokens || other.cachedTokens, inputTokens)
  const cacheWriteTokens = Math.min(
    main.cacheWriteTokens || other.cacheWriteTokens,
    inputTokens - cachedTokens,
  )
  const hour = Math.min(main.cacheWrite1hTokens || other.cacheWrite1hTokens || 0, cacheWriteTokens)
  const audio = Math.min(main.audioTokens || other.audioTokens || 0, inputTokens)
  const tools = Math.min(main.toolPromptTokens || other.toolPromptTokens || 0, inputTokens)
  return {
    inputTokens,
    cachedTokens,
    cacheWriteTokens,
    ...(hour === 0 ? undefined : { cacheWrite1hTokens: hour }),
    ...(audio === 0 ? undefined : { audioTokens: audio }),
    ...(tools === 0 ? undefined : { toolPromptTokens: tools }),
  }
}

/**
 * Corrects implausible usage, so that a broken or hostile provider can neither drain a budget nor cause a request to go
 * uncharged. Pure.
 */
import type { Usage } from '../../formats/format.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Endpoint } from '../../providers/provider.ts'
import { estimateUsage, inputTokensOf, reasoningBudget, type Said } from './estimate.ts'
import { hasSearchFields } from './fetched.ts'

/** Allowance for text that providers add: templates, their own instructions, and those of tools. */
const TEMPLATE_TOKENS = 4_096
/** For input that a provider may fetch itself: search results, and files behind links. */
const FETCHED_TOKENS = 2_000_000
/** Output limit if the catalogue states none: more than any current model writes. */
const OUTPUT_TOKENS = 262_144
/** No vocabulary needs more tokens than this for a character. */
const TOKENS_PER_CHARACTER = 4
/** Maximum number of searches in one reply. */
const SEARCHES = 1_000

interface Observed {
  /** Quarters of tokens, at least one per character. */
  readonly outputQuarters: number
  readonly sentBytes: number
  readonly isThoughtSeen: boolean
}

/**
 * The usage itself if it is plausible, otherwise the nearest plausible one; an estimate for counts that are missing.
 */
export function plausibleUsage(
  usage: Usage,
  request: ResponsesRequest,
  observed: Observed,
  endpoint: Endpoint,
): Usage {
  const { outputQuarters, sentBytes } = observed
  if (usage.outputTokens === 0 && outputQuarters > 0)
    return estimateUsage(request, { usage, ...observed }, endpoint)
  const most = Math.max(reasoningBudget(request, endpoint), endpoint.maxOutputTokens ?? OUTPUT_TOKENS)
  const outputMost = outputQuarters * TOKENS_PER_CHARACTER + most
  const isWithin =
    usage.inputTokens <= sentBytes + TEMPLATE_TOKENS &&
    usage.outputTokens <= outputMost &&
    usage.webSearchRequests <= SEARCHES
  if (isWithin) return usage
  const inputMost = sentBytes + TEMPLATE_TOKENS + fetched(usage, request)
  if (
    usage.inputTokens <= inputMost &&
    usage.outputTokens <= outputMost &&
    usage.webSearchRequests <= SEARCHES
  ) {
    return usage
  }
  const inputTokens = Math.min(usage.inputTokens, inputMost)
  const outputTokens = Math.min(usage.outputTokens, outputMost)
  const cachedTokens = Math.min(usage.cachedTokens, inputTokens)
  return {
    inputTokens,
    cachedTokens,
    cacheWriteTokens: Math.min(usage.cacheWriteTokens, inputTokens - cachedTokens),
    ...(usage.cacheWrite1hTokens === undefined ? {} : { cacheWrite1hTokens: usage.cacheWrite1hTokens }),
    ...(usage.audioTokens === undefined ? {} : { audioTokens: usage.audioTokens }),
    ...(usage.toolPromptTokens === undefined
      ? {}
      : { toolPromptTokens: Math.min(usage.toolPromptTokens, inputTokens) }),
    outputTokens,
    reasoningTokens: Math.min(usage.reasoningTokens, outputTokens),
    webSearchRequests: Math.min(usage.webSearchRequests, SEARCHES),
  }
}

/** Estimates for usage that a provider did not report, or reported incorrectly. */
export interface UsageEstimates {
  /** The best known usage of a call. */
  estimate(prompt: ResponsesRequest, said: Said, endpoint: Endpoint): Usage
  /** The usage itself if it is plausible, otherwise the nearest plausible one. */
  plausible(usage: Usage, prompt: ResponsesRequest, observed: Observed, endpoint: Endpoint): Usage
}

export const TEXT_ESTIMATES: UsageEstimates = { estimate: estimateUsage, plausible: plausibleUsage }

/** Tokens that the provider may have read in addition to the bytes of the request. */
function fetched({ webSearchRequests }: Usage, request: ResponsesRequest): number {
  const searches = webSearchRequests > 0 || hasToolsBeyond(request) || hasSearchFields(request)
  if (searches || hasLink(request.input)) return FETCHED_TOKENS
  // Media have fewer tokens than bytes.
  return inputTokensOf(request)
}

/** True for tools that may run anywhere but at the client, including tools that an item adds. */
function hasToolsBeyond({ tools, input }: ResponsesRequest): boolean {
  const isOther = ({ type }: { readonly type: string }): boolean => type !== 'function'
  if (tools?.some(isOther) === true) return true
  return (
    typeof input !== 'string' &&
    input.some(item => item.type === 'additional_tools' && item.tools.some(isOther))
  )
}

/** True if a part of the input names a file or an image by its address. */
function hasLink(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (Array.isArray(value)) return value.some(hasLink)
  return Object.entries(value).some(
    ([name, inner]) =>
      ((name === 'image_url' || name === 'file_url' || name === 'file_id') && inner != null) ||
      hasLink(inner),
  )
}

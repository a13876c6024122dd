/**
 * Bounds on the usage that a provider reports, so that a broken or hostile provider can neither drain a budget nor cause
 * a request to go uncharged. No bound is above what one model call can read or write. Pure.
 */
import type { Usage } from '../../formats/format.ts'
import { MARKED_FORMATS } from '../../formats/marks/own-marks.ts'
import { COMPACTS, type NotedRequest } from '../../protocol/json/request-notes.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { estimateUsage, inputTokensOf, type ObservedReply, reasoningBudget } from './estimate.ts'
import { hasOneHourMark } from './highest-price.ts'
import { audioIn } from './media.ts'
import { CONTEXT_TOKENS, mayFetch } from './outside-tokens.ts'

/** Allowance for text that providers add: templates, their own instructions, and tool instructions. */
const TEMPLATE_TOKENS = 4_096
/** Output limit if the catalogue states none: more than any current model writes. */
const MAX_OUTPUT_TOKENS = 262_144
/** No vocabulary needs more tokens than this for a character. */
const TOKENS_PER_CHARACTER = 4
/** Maximum number of searches in one reply. */
const MAX_SEARCHES = 1_000
/** Members with a cache mark, in the spelling of each API. */
const CACHE_MARK_FIELDS: ReadonlySet<string> = new Set([
  'cache_control',
  'prompt_cache_breakpoint',
  'cachePoint',
])

/** The part of a model call that the gateway knows itself. */
export interface KnownFigures {
  /** Quarters of tokens, at least one per character. */
  readonly outputQuarters: number
  readonly sentBytes: number
}

/** A model call, as the bounds on its usage depend on it. */
export interface BoundedCall {
  readonly request: ResponsesRequest
  readonly endpoint: Endpoint
  readonly figures: KnownFigures
  /** True if the gateway may have marked a prompt that it has seen before. */
  readonly isRemembered: boolean
}

/** Estimates for usage that a provider did not report, or reported incorrectly. */
export interface UsageEstimates {
  /** The best known usage of a call. */
  estimate(prompt: ResponsesRequest, output: ObservedReply, endpoint: Endpoint): Usage
  /** The usage itself if it is plausible, otherwise the nearest plausible one. */
  plausible(usage: Usage, call: BoundedCall): Usage
}

export const TEXT_ESTIMATES: UsageEstimates = {
  estimate: estimateUsage,
  plausible(usage, call) {
    const request = call.request as NotedRequest & { readonly context_management?: unknown }
    // A provider that compacts the conversation reads it twice.
    const compacts = request[COMPACTS] !== undefined || request.context_management != null
    return plausibleUsage(usage, call, compacts ? 2 : 1)
  },
}

/**
 * The usage itself if every count is plausible, otherwise the nearest plausible one. `contextReads`: how often the call may
 * read the model's whole context.
 */
export function plausibleUsage(usage: Usage, call: BoundedCall, contextReads: number): Usage {
  const { request, endpoint, figures } = call
  const { contextLength, maxOutputTokens } = endpoint
  const { outputQuarters, sentBytes } = figures
  const contextTokens = contextLength === null ? Number.POSITIVE_INFINITY : contextReads * contextLength
  const maxOutput = Math.max(reasoningBudget(request, endpoint), maxOutputTokens ?? MAX_OUTPUT_TOKENS)
  const outputBound = Math.min(
    outputQuarters * TOKENS_PER_CHARACTER + maxOutput,
    Math.max(maxOutput, contextLength ?? Number.POSITIVE_INFINITY),
  )
  const sentBound = Math.min(contextTokens, sentBytes + TEMPLATE_TOKENS)
  const { cacheWriteTokens, audioTokens, webSearchRequests } = usage
  const isPlain = cacheWriteTokens === 0 && audioTokens === undefined && webSearchRequests === 0
  if (isPlain && usage.inputTokens <= sentBound && usage.outputTokens <= outputBound) return usage
  const fetches = mayFetch(request, endpoint)
  const fetchedBound = fetches ? contextReads * (contextLength ?? CONTEXT_TOKENS) : 0
  // A small image may have more tokens than bytes.
  const inputBound =
    usage.inputTokens <= sentBound ? sentBound : Math.max(sentBound + inputTokensOf(request), fetchedBound)
  const inputTokens = Math.min(usage.inputTokens, contextTokens, inputBound)
  const outputTokens = Math.min(usage.outputTokens, outputBound)
  const cachedTokens = Math.min(usage.cachedTokens, inputTokens)
  const cacheWrites = mayWrite(call) ? Math.min(cacheWriteTokens, inputTokens - cachedTokens) : 0
  const oneHourWrites = mayWriteForAnHour(call) ? Math.min(usage.cacheWrite1hTokens ?? 0, cacheWrites) : 0
  const audioBound = audioTokens === undefined ? 0 : fetches ? inputTokens : audioIn(request.input).maxTokens
  const audio = Math.min(audioTokens ?? 0, inputTokens, audioBound)
  const bounded: Usage = {
    inputTokens,
    cachedTokens,
    cacheWriteTokens: cacheWrites,
    ...(oneHourWrites === 0 ? {} : { cacheWrite1hTokens: oneHourWrites }),
    ...(audio === 0 ? {} : { audioTokens: audio }),
    ...(usage.toolPromptTokens === undefined
      ? {}
      : { toolPromptTokens: Math.min(usage.toolPromptTokens, inputTokens) }),
    outputTokens,
    reasoningTokens: Math.min(usage.reasoningTokens, outputTokens),
    webSearchRequests: fetches ? Math.min(webSearchRequests, MAX_SEARCHES) : 0,
  }
  return isSame(bounded, usage) ? usage : bounded
}

function isSame(bounded: Usage, usage: Usage): boolean {
  return (
    bounded.inputTokens === usage.inputTokens &&
    bounded.outputTokens === usage.outputTokens &&
    bounded.cacheWriteTokens === usage.cacheWriteTokens &&
    (bounded.cacheWrite1hTokens ?? 0) === (usage.cacheWrite1hTokens ?? 0) &&
    (bounded.audioTokens ?? 0) === (usage.audioTokens ?? 0) &&
    bounded.webSearchRequests === usage.webSearchRequests
  )
}

/** True if the provider may have written to its cache: by itself, or because of a mark of the caller or the gateway. */
function mayWrite({ request, endpoint, isRemembered }: BoundedCall): boolean {
  if (!MARKED_FORMATS.has(endpoint.format) || isRemembered) return true
  return endsInResult(request) || hasMark(request)
}

/** The gateway marks the prompts of agents: they end in the result of a tool. */
function endsInResult({ input }: ResponsesRequest): boolean {
  return typeof input !== 'string' && (input.at(-1)?.type ?? '').endsWith('_output')
}

function hasMark(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (Array.isArray(value)) return value.some(hasMark)
  return Object.entries(value).some(([name, inner]) =>
    CACHE_MARK_FIELDS.has(name) ? inner != null : hasMark(inner),
  )
}

/** If there is only one price for cache writes, it applies to the provider's default lifetime. */
function mayWriteForAnHour({ request, endpoint: { pricing } }: BoundedCall): boolean {
  return pricing.inputCacheWrite === null || hasOneHourMark(request)
}

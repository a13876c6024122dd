/**
 * Context compression (middle-out): drops the middle of a conversation that is too long for the model. On by default
 * for models with a small context, which would refuse nearly every long conversation; by default it keeps at least half
 * of the prompt. When requested, by its name or by `truncation: auto`, it drops as much as necessary.
 */
import { GatewayError } from '../../base/errors.ts'
import type { AttemptRecord, Candidate, Exchange } from '../../exchange/exchange.ts'
import type { ActivePlugin, Fitting, Plugin } from '../../exchange/plugin.ts'
import type { InputItem } from '../../protocol/items.ts'
import { ASSUMED_OUTPUT_TOKENS, MIN_TOKENS_SHARE, SMALL_CONTEXT_TOKENS } from '../../protocol/limits.ts'
import { itemsOf, type ResponsesRequest } from '../../protocol/request.ts'
import { isVisibleTool } from '../../protocol/tools.ts'
import { compressContext } from '../tasks/compress-context.ts'
import type { ModelFacts, PluginDeps } from './plugin-deps.ts'

interface ContextCompressionDeps extends Pick<PluginDeps, 'tokensOf' | 'truncates'> {
  readonly modelFacts: Pick<ModelFacts, 'hasSmallContext'>
}

type Endpoint = AttemptRecord['endpoint']

export function createContextCompression(deps: ContextCompressionDeps): Plugin<'context-compression'> {
  return {
    id: 'context-compression',
    alwaysOn: true,
    // A provider that finds an input too long does not know what the gateway can do about it.
    advise: ({ code }) =>
      code === 'context_length_exceeded' ? 'Shorten the input, or add the context-compression plugin.' : null,
    activate(settings, { model, models, truncation }) {
      if (settings !== null) return new ActiveCompression(deps, 'named')
      if (truncation === 'auto') return new ActiveCompression(deps, 'truncation')
      return namesSmallContext(deps, model, models) ? new ActiveCompression(deps, 'unasked') : null
    },
  }
}

function namesSmallContext(
  { modelFacts: { hasSmallContext } }: ContextCompressionDeps,
  model: string | undefined,
  models: readonly string[] | null | undefined,
): boolean {
  return (model !== undefined && hasSmallContext(model)) || models?.some(hasSmallContext) === true
}

/** The reason that the plugin is active: the request names it, `truncation` is `auto`, or a model has a small context. */
type Trigger = 'named' | 'truncation' | 'unasked'

/** The share of a prompt that is always kept if compression was not requested. */
const UNASKED_SHARE = 0.5

class ActiveCompression implements ActivePlugin {
  readonly id = 'context-compression'
  readonly skipsRescan = true
  readonly isRepeatable = true
  readonly #deps: ContextCompressionDeps
  readonly #trigger: Trigger
  /** The prompt that was measured last. */
  #lastMeasured: { readonly prompt: ResponsesRequest; readonly tokens: number } | null = null
  removedTokens = 0
  /** The last cut, which an attempt at another endpoint replaces. */
  #lastCut: {
    readonly original: ResponsesRequest
    readonly prompt: ResponsesRequest
    readonly tokens: number
  } | null = null

  constructor(deps: ContextCompressionDeps, trigger: Trigger) {
    this.#deps = deps
    this.#trigger = trigger
  }

  /**
   * Puts the candidates first whose context has room for half of the prompt and its output limit. If no candidate has,
   * the one with the largest context is first.
   */
  order<Ranked extends Candidate>(candidates: readonly Ranked[], { prompt }: Exchange): readonly Ranked[] {
    const neededTokens = this.#tokens(prompt) + (prompt.max_output_tokens ?? 0)
    const takesHalf = ({ endpoint }: Ranked) => contextOf(endpoint) >= neededTokens / 2
    if (candidates.every(takesHalf)) return candidates
    if (!candidates.some(takesHalf))
      return candidates.toSorted((a, b) => contextOf(b.endpoint) - contextOf(a.endpoint))
    return [...candidates.filter(takesHalf), ...candidates.filter(candidate => !takesHalf(candidate))]
  }

  fitting(endpoint: Endpoint, prompt: ResponsesRequest): Fitting {
    const contextTokens = contextOf(endpoint)
    const isRequested = this.#trigger !== 'unasked'
    if (!isRequested && contextTokens > SMALL_CONTEXT_TOKENS) return 'whole'
    if (isRequested && exceedsMessages(endpoint, prompt)) return 'cut'
    const tokensLeft = roomFor(prompt, endpoint)
    const tokens = this.#tokens(prompt)
    if (tokens <= tokensLeft) return 'whole'
    return isRequested || (tokensLeft >= tokens * UNASKED_SHARE && !isPinned(prompt)) ? 'cut' : 'refused'
  }

  /** Undoes the cut for an endpoint that has failed. */
  unfit({ pipeline, prompt }: Exchange): ResponsesRequest | undefined {
    const lastCut = this.#lastCut
    this.#lastCut = null
    if (lastCut === null || prompt !== lastCut.prompt) return undefined
    this.removedTokens -= lastCut.tokens
    pipeline.splice(
      pipeline.findLastIndex(({ type }) => type === 'context_compression'),
      1,
    )
    return lastCut.original
  }

  fitTo(exchange: Exchange, endpoint: Endpoint): ResponsesRequest | undefined {
    const { prompt } = exchange
    const fit = this.fitting(endpoint, prompt)
    if (fit === 'whole') return undefined
    const contextTokens = contextOf(endpoint)
    if (fit === 'refused') {
      // Refused only if even the lowest count is too long: the provider counts more precisely than this estimate.
      if (this.#tokens(prompt) * MIN_TOKENS_SHARE > contextTokens)
        throw tooLongError(endpoint, SHORTEN_YOURSELF)
      return undefined
    }
    if (this.#trigger === 'truncation' && this.#deps.truncates(endpoint.format)) return undefined
    return this.#compress(exchange, endpoint)
  }

  #compress({ pipeline, prompt }: Exchange, endpoint: Endpoint): ResponsesRequest | undefined {
    const items = itemsOf(prompt)
    const fixed = this.#fixedTokens(prompt)
    const { messagesMax } = endpoint.provider
    const compressed = compressContext({
      items,
      tokensMax: roomFor(prompt, endpoint) - fixed,
      tokensOf: item => this.#deps.tokensOf([item]),
      ...(exceedsMessages(endpoint, prompt) ? { itemsMax: messagesMax } : {}),
    })
    if (!compressed.fits)
      throw tooLongError(
        endpoint,
        'even with its middle left out: shorten the instructions, the tools or the last message',
      )
    if (!compressed.changed) return undefined
    const before = this.#tokens(prompt)
    const shortened = { ...prompt, input: [...compressed.items] }
    const tokens = this.#tokens(shortened)
    if (this.#trigger === 'unasked' && tokens < before * UNASKED_SHARE)
      throw tooLongError(endpoint, SHORTEN_YOURSELF)
    const isPrompt = typeof prompt.input === 'string'
    this.removedTokens += before - tokens
    this.#lastCut = { original: prompt, prompt: shortened, tokens: before - tokens }
    pipeline.push({
      type: 'context_compression',
      name: 'context-compression',
      summary: 'the middle of the input was left out',
      data: {
        engine: 'middle-out',
        input_type: isPrompt ? 'prompt' : 'messages',
        original_count: isPrompt ? lengthOf(items) : items.length,
        compressed_count: isPrompt ? lengthOf(compressed.items) : compressed.items.length,
      },
    })
    return shortened
  }

  #tokens(prompt: ResponsesRequest): number {
    if (this.#lastMeasured?.prompt !== prompt) {
      const tokens = this.#fixedTokens(prompt) + this.#deps.tokensOf([prompt.input])
      this.#lastMeasured = { prompt, tokens }
    }
    return this.#lastMeasured.tokens
  }

  /** Tokens that are never cut. */
  #fixedTokens({ instructions, tools }: ResponsesRequest): number {
    return this.#deps.tokensOf([instructions, tools?.filter(isVisibleTool)])
  }
}

const SHORTEN_YOURSELF =
  'and shortening it automatically would lose too much: shorten it, choose a model with a longer context, or add the context-compression plugin'

function tooLongError({ modelId, contextLength }: Endpoint, reason: string): GatewayError {
  return new GatewayError(
    'context_length_exceeded',
    `input: is too long for the ${contextLength}-token context of ${modelId}, ${reason}`,
  )
}

/** True if the caller accepts only the endpoints in `provider.order`. */
function isPinned({ provider }: ResponsesRequest): boolean {
  return provider?.allow_fallbacks === false && (provider.order?.length ?? 0) > 0
}

/** True if the input has more messages than the provider accepts; consecutive items of one side are one message. */
function exceedsMessages({ provider: { messagesMax } }: Endpoint, { input }: ResponsesRequest): boolean {
  if (messagesMax === undefined || typeof input === 'string' || input.length <= messagesMax) return false
  let messages = 0
  let wasSaid: boolean | null = null
  for (const { type = 'message', ...item } of input as readonly { type?: string; role?: unknown }[]) {
    const isFromCaller = type === 'message' ? item.role !== 'assistant' : type.endsWith('_output')
    if (isFromCaller !== wasSaid) messages++
    wasSaid = isFromCaller
  }
  return messages > messagesMax
}

function contextOf({ contextLength }: Endpoint): number {
  return contextLength ?? Number.POSITIVE_INFINITY
}

/** Tokens available for the prompt. Infinite if the context is unknown. */
function roomFor(prompt: ResponsesRequest, endpoint: Endpoint): number {
  const context = contextOf(endpoint)
  return context === Number.POSITIVE_INFINITY ? context : context - answerTokens(prompt, endpoint, context)
}

/** Tokens reserved for the answer: at most half of the context, so that a prompt still fits. */
function answerTokens(prompt: ResponsesRequest, { maxOutputTokens }: Endpoint, context: number): number {
  const requestedTokens = prompt.max_output_tokens ?? Math.min(ASSUMED_OUTPUT_TOKENS, context / 4)
  return Math.floor(Math.min(requestedTokens, maxOutputTokens ?? requestedTokens, context / 2))
}

/** Characters of a string prompt, which was converted to one item. */
function lengthOf([item]: readonly InputItem[]): number {
  return item !== undefined && 'content' in item && typeof item.content === 'string' ? item.content.length : 0
}

/**
 * Context compression, middle-out: leaves out the middle of a conversation that is too long for the model. On by
 * default for models with a small context, which would refuse nearly every long conversation.
 */
import { GatewayError } from '../errors.ts'
import type { AttemptRecord, Candidate, Exchange } from '../gateway/exchange.ts'
import type { InputItem } from '../protocol/items.ts'
import { ORDINARY_OUTPUT_TOKENS, SMALL_CONTEXT_TOKENS } from '../protocol/limits.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import { compressContext } from '../tasks/compress-context.ts'
import type { ActivePlugin, ModelFacts, Plugin, PluginDeps } from './plugin.ts'

export interface ContextCompressionDeps extends Pick<PluginDeps, 'tokensOf'> {
  readonly modelFacts: Pick<ModelFacts, 'hasSmallContext'>
}

type Endpoint = AttemptRecord['endpoint']

export function createContextCompression(deps: ContextCompressionDeps): Plugin<'context-compression'> {
  return {
    id: 'context-compression',
    alwaysOn: true,
    // A provider that finds an input too long does not know the remedies of the gateway.
    advise: ({ code }) =>
      code === 'context_length_exceeded' ? 'Shorten the input, or add the plugin context-compression.' : null,
    activate(settings, { model, models }) {
      if (settings === null && !namesSmall(deps, model, models)) return null
      return new ActiveCompression(deps, settings !== null)
    },
  }
}

function namesSmall(
  { modelFacts: { hasSmallContext } }: ContextCompressionDeps,
  model: string | undefined,
  models: readonly string[] | null | undefined,
): boolean {
  return (model !== undefined && hasSmallContext(model)) || models?.some(hasSmallContext) === true
}

class ActiveCompression implements ActivePlugin {
  readonly id = 'context-compression'
  readonly skipsRescan = true
  readonly isRepeatable = true
  readonly #deps: ContextCompressionDeps
  readonly #asked: boolean

  constructor(deps: ContextCompressionDeps, asked: boolean) {
    this.#deps = deps
    this.#asked = asked
  }

  /** Puts candidates that fit half of the prompt first; if none does, orders them by context size. */
  order<Each extends Candidate>(candidates: readonly Each[], { prompt }: Exchange): readonly Each[] {
    const needed = this.#tokens(prompt) + (prompt.max_output_tokens ?? 0)
    const takesHalf = ({ endpoint }: Each) => contextOf(endpoint) >= needed / 2
    if (candidates.every(takesHalf)) return candidates
    if (!candidates.some(takesHalf))
      return candidates.toSorted((a, b) => contextOf(b.endpoint) - contextOf(a.endpoint))
    return [...candidates.filter(takesHalf), ...candidates.filter(candidate => !takesHalf(candidate))]
  }

  shortens(endpoint: Endpoint): boolean {
    const context = contextOf(endpoint)
    return context !== Number.POSITIVE_INFINITY && (this.#asked || context <= SMALL_CONTEXT_TOKENS)
  }

  fitTo(exchange: Exchange, endpoint: Endpoint): void {
    if (!this.shortens(endpoint)) return
    const context = contextOf(endpoint)
    const { prompt } = exchange
    const room = context - answerTokens(prompt, endpoint, context)
    if (this.#tokens(prompt) <= room) return
    const items = itemsOf(prompt)
    const fixed = this.#deps.tokensOf([prompt.instructions, prompt.tools])
    const compressed = compressContext({
      items,
      tokensMax: room - fixed,
      tokensOf: item => this.#deps.tokensOf([item]),
    })
    if (!compressed.fits) {
      throw new GatewayError(
        'context_length_exceeded',
        `input: is too long for the ${context} tokens of ${endpoint.modelId}, even without its middle: shorten the instructions, the tools or the last message`,
      )
    }
    if (!compressed.changed) return
    const isPrompt = typeof prompt.input === 'string'
    exchange.prompt = { ...prompt, input: [...compressed.items] }
    exchange.pipeline.push({
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
  }

  #tokens({ instructions, input, tools }: ResponsesRequest): number {
    return this.#deps.tokensOf([instructions, input, tools])
  }
}

function contextOf({ contextLength }: Endpoint): number {
  return contextLength ?? Number.POSITIVE_INFINITY
}

/** Tokens reserved for the answer: at most half of the context, so that a prompt still fits. */
function answerTokens(prompt: ResponsesRequest, { maxOutputTokens }: Endpoint, context: number): number {
  const wanted = prompt.max_output_tokens ?? Math.min(ORDINARY_OUTPUT_TOKENS, context / 4)
  return Math.floor(Math.min(wanted, maxOutputTokens ?? wanted, context / 2))
}

function itemsOf({ input }: ResponsesRequest): readonly InputItem[] {
  return typeof input === 'string' ? [{ type: 'message', role: 'user', content: input }] : input
}

/** Characters of a string prompt, which has become one item. */
function lengthOf([item]: readonly InputItem[]): number {
  return item !== undefined && 'content' in item && typeof item.content === 'string' ? item.content.length : 0
}

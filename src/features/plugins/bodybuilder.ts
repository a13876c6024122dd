/**
 * Body builder: `gateway/bodybuilder` turns plain language into requests that a client can send, `{"requests": [...]}`.
 * A model in the catalogue writes them, at the service's expense; all other output of that model is withheld.
 */
import { GatewayError } from '../../base/errors.ts'
import type { Exchange, Turn } from '../../exchange/exchange.ts'
import type { ActivePlugin, BuiltInRouter, RouterChoice, Verdict } from '../../exchange/plugin.ts'
import { isObject } from '../../protocol/json/schema.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { routerOf } from '../../protocol/routers.ts'
import { answerText } from './question.ts'
import { compare } from './routers/bands.ts'
import { readObject } from './routers/classifier.ts'
import { userWords } from './routers/conversation.ts'
import { noModels, type PoolDeps, poolOf, priceSum } from './routers/pool.ts'
import type { RouterSettings } from './settings.ts'

interface BodyBuilderDeps extends PoolDeps {
  readonly config: { readonly routers: RouterSettings }
}

/** Models that may write: the first choice and two fallbacks. */
const MAX_MODELS = 3
/** The service pays, so input and output are short. */
const MAX_WISH_CHARS = 8_000
const MAX_ANSWER_TOKENS = 4_000
/** Number of ids that the model may choose from. */
const MAX_OFFERED_IDS = 100
const MAX_REQUESTS = 16
/** Calls of the model: after a wrong answer it is called once more. */
const MAX_MODEL_CALLS = 2

export function createBodyBuilder(deps: BodyBuilderDeps): BuiltInRouter {
  return {
    id: 'bodybuilder',
    routers: ['bodybuilder'],
    activate: (_, request) => new ActiveBodyBuilder(routerOf(request)?.slug ?? 'gateway/bodybuilder', deps),
  }
}

class ActiveBodyBuilder implements ActivePlugin {
  readonly id = 'bodybuilder'
  readonly strategy = 'bodybuilder'
  readonly holds = true
  readonly maxCalls = MAX_MODEL_CALLS
  readonly isRepeatable = false
  readonly #slug: string
  readonly #deps: BodyBuilderDeps
  ids: readonly string[] = []
  #calls = 0

  constructor(slug: string, deps: BodyBuilderDeps) {
    this.#slug = slug
    this.#deps = deps
  }

  async route(exchange: Exchange): Promise<RouterChoice> {
    exchange.bill.waive()
    const pool = await poolOf(this.#deps, exchange, { include: null, exclude: null, variants: '' })
    const classifierModel = this.#deps.config.routers.classifier?.model
    const classifierModels =
      classifierModel === undefined ? [] : await this.#deps.models.of(exchange, [classifierModel], '')
    const byPrice = pool.toSorted((a, b) => compare(priceSum(a), priceSum(b)))
    const names = [...new Set([...classifierModels, ...byPrice].map(({ id }) => id))].slice(0, MAX_MODELS)
    if (names.length === 0) throw noModels(this.#slug)
    this.ids = pool.slice(0, MAX_OFFERED_IDS).map(({ id }) => id)
    exchange.pipeline.push({
      type: 'plugin',
      name: this.id,
      summary: `written by ${names[0]}`,
      data: { resolved_to: names[0], fallback_models: names.slice(1) },
    })
    return { models: names }
  }

  prepare({ prompt }: Exchange): ResponsesRequest {
    return builderPrompt(prompt, this.ids)
  }

  async judge(turn: Turn, exchange: Exchange): Promise<Verdict> {
    this.#calls++
    if (turn.finish === 'stop' && isRequests(answerText(turn.output))) return { kind: 'pass' }
    if (this.#calls < MAX_MODEL_CALLS) return { kind: 'again', prompt: exchange.prompt }
    const message =
      'The model wrote no valid requests: say more precisely which models to call, and with what'
    return { kind: 'refuse', error: new GatewayError('answer_mismatch', message) }
  }
}

function builderPrompt(prompt: ResponsesRequest, ids: readonly string[]): ResponsesRequest {
  const {
    tools: _tools,
    tool_choice: _choice,
    parallel_tool_calls: _parallel,
    text: _text,
    ...plain
  } = prompt
  return {
    ...plain,
    instructions: instructionsFor(ids),
    input: [{ type: 'message', role: 'user', content: userWords(prompt, MAX_WISH_CHARS).latest }],
    max_output_tokens: Math.min(prompt.max_output_tokens ?? MAX_ANSWER_TOKENS, MAX_ANSWER_TOKENS),
    text: { format: { type: 'json_object' } },
  }
}

function instructionsFor(ids: readonly string[]): string {
  return `You turn a wish into request bodies of POST /v1/chat/completions. Do not fulfil the wish yourself. Answer with \
nothing but a JSON object {"requests": [{"model": "...", "messages": [{"role": "user", "content": "..."}]}]}, with one \
request for each model that the wish names, at most ${MAX_REQUESTS}. A request may have further fields such as \
temperature or max_tokens, where the wish asks for them. Use these models: ${ids.join(', ')}.`
}

/** True for a JSON object that has requests and nothing else. */
export function isRequests(text: string): boolean {
  const value = text.trim().startsWith('{') ? readObject(text) : null
  if (value === null || Object.keys(value).length !== 1) return false
  const { requests } = value
  return (
    Array.isArray(requests) &&
    requests.length > 0 &&
    requests.length <= MAX_REQUESTS &&
    requests.every(
      request =>
        isObject(request) && typeof request['model'] === 'string' && Array.isArray(request['messages']),
    )
  )
}

/**
 * Encodes a request as the body of POST /chat/completions. Pure.
 * Fields with the same name go out unchanged, others translated. Unknown fields follow; a request has them only if the
 * caller speaks this dialect. The encoder refuses fields that this format cannot express with their path.
 */
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Endpoint, Quirk } from '../../providers/provider.ts'
import { inexpressible } from '../failure.ts'
import type { ModelRequest, WireRequest } from '../format.ts'
import { BREAKPOINT, lastMarks, withLastMarks } from '../marks/cache-marks.ts'
import { isDeclared } from '../outgoing.ts'
import { nearestEffort } from '../reasoning.ts'
import { chatMessages } from './input.ts'
import { chatTools } from './tools.ts'

/** Fields that go out under the same name if set. */
const SAME_NAME: readonly (keyof ResponsesRequest)[] = [
  'temperature',
  'top_p',
  'top_k',
  'frequency_penalty',
  'presence_penalty',
  'prompt_cache_key',
  'prompt_cache_options',
  'image_config',
  'stop',
  'seed',
  'logit_bias',
  'min_p',
  'top_a',
  'repetition_penalty',
  'prediction',
]

/** Wire names that the encoder itself writes: an unknown field cannot replace them. */
const OWN_NAMES: ReadonlySet<string> = new Set([
  'messages',
  'functions',
  'function_call',
  'stream_options',
  'n',
])

/** The chat names of `max_output_tokens`; a client's unknown field cannot replace them. */
const LIMITS: ReadonlySet<string> = new Set(['max_tokens', 'max_completion_tokens'])

/** The tier names on the wire; omitting the field means `auto`. */
const TIERS: Readonly<Record<string, string | undefined>> = {
  auto: undefined,
  fast: 'priority',
  ultrafast: 'priority',
}

const VERBOSITY: Readonly<Record<string, string>> = { xhigh: 'high', max: 'high' }

/** The efforts that can replace a budget. */
const EFFORTS = ['minimal', 'low', 'medium', 'high', 'xhigh'] as const

/** @throws GatewayError `unprocessable` that names the field without a form in this format. */
export function encodeChat(model: ModelRequest, endpoint: Endpoint): WireRequest {
  const { request } = model
  const quirks: ReadonlySet<Quirk> = new Set(endpoint.provider.quirks)
  refuse(request)
  const { tools, toolChoice } = chatTools(request, quirks)
  const hasTools = tools.length > 0
  const fields: [string, unknown][] = [
    ...unknownFields(request),
    ...SAME_NAME.map((name): [string, unknown] => [name, request[name]]),
    ['model', endpoint.upstreamModel],
    ['messages', chatMessages(request, quirks)],
    ['stream', model.stream ? true : undefined],
    ['stream_options', model.stream && !quirks.has('no-stream-usage') ? { include_usage: true } : undefined],
    ['tools', hasTools ? tools : undefined],
    ['tool_choice', hasTools ? toolChoice : undefined],
    ['parallel_tool_calls', hasTools ? request.parallel_tool_calls : undefined],
    limit(request, quirks),
    ...reasoning(request, endpoint, quirks),
    ['response_format', responseFormat(request)],
    ['verbosity', verbosity(request)],
    ['modalities', request.modalities?.includes('image') === true ? request.modalities : undefined],
    ['service_tier', tier(request)],
    ['user', quirks.has('no-user') ? undefined : model.endUser],
  ]
  if (typeof request.top_logprobs === 'number') {
    fields.push(['logprobs', true], ['top_logprobs', request.top_logprobs])
  }
  // fromEntries defines properties: a foreign key cannot reach a prototype. Later entries win.
  const body = Object.fromEntries(fields.filter(([, value]) => value !== undefined && value !== null))
  return { path: '/chat/completions', body: withTakenMarks(body, quirks) }
}

function withTakenMarks(body: Record<string, unknown>, quirks: ReadonlySet<Quirk>): Record<string, unknown> {
  if (quirks.has('cache-control')) return withLastMarks(body)
  const kept = quirks.has('cache-breakpoints') ? lastMarks([body['messages']], BREAKPOINT) : null
  return kept === null ? body : { ...body, messages: kept[0] }
}

function refuse(request: ResponsesRequest): void {
  if (request.prompt !== undefined && request.prompt !== null) {
    throw inexpressible('prompt', 'stored prompts cannot be sent to this provider')
  }
  const n: unknown = (request as Record<string, unknown>)['n']
  if (typeof n === 'number' && n > 1) throw inexpressible('n', 'must be 1: this gateway returns one answer')
}

function unknownFields(request: ResponsesRequest): [string, unknown][] {
  const limited = typeof request.max_output_tokens === 'number'
  return Object.entries(request).filter(
    ([name]) => !isDeclared(name) && !OWN_NAMES.has(name) && !(limited && LIMITS.has(name)),
  )
}

function limit(request: ResponsesRequest, quirks: ReadonlySet<Quirk>): [string, unknown] {
  return [quirks.has('max-tokens') ? 'max_tokens' : 'max_completion_tokens', request.max_output_tokens]
}

function reasoning(
  request: ResponsesRequest,
  endpoint: Endpoint,
  quirks: ReadonlySet<Quirk>,
): [string, unknown][] {
  const wanted = request.reasoning
  if (wanted === undefined || wanted === null) return []
  if (quirks.has('reasoning-object')) {
    const { effort, max_tokens, enabled, summary } = wanted
    const object = Object.fromEntries(
      Object.entries({ effort, max_tokens, enabled, summary }).filter(
        ([, value]) => value !== undefined && value !== null,
      ),
    )
    return Object.keys(object).length === 0 ? [] : [['reasoning', object]]
  }
  const effort = wanted.effort ?? effortOf(wanted, request.max_output_tokens ?? endpoint.maxOutputTokens)
  if (effort === null) return []
  return [['reasoning_effort', effort === 'max' ? 'xhigh' : effort]]
}

/** The effort for a switch or a token budget. */
function effortOf(wanted: NonNullable<ResponsesRequest['reasoning']>, most: number | null): string | null {
  if (wanted.enabled === false) return 'none'
  const budget = wanted.max_tokens ?? null
  if (budget === 0) return 'none'
  if (budget !== null && most !== null) return nearestEffort(budget / most, EFFORTS)
  return budget !== null || wanted.enabled === true ? 'medium' : null
}

function responseFormat(request: ResponsesRequest): Record<string, unknown> | undefined {
  const format = request.text?.format
  if (format === undefined || format === null || format.type === 'text') return undefined
  if (format.type === 'json_object') return { type: 'json_object' }
  const { name, schema, description, strict } = format
  return {
    type: 'json_schema',
    json_schema: {
      name,
      schema,
      ...(typeof description === 'string' ? { description } : {}),
      ...(typeof strict === 'boolean' ? { strict } : {}),
    },
  }
}

function verbosity(request: ResponsesRequest): string | undefined {
  const wanted = request.text?.verbosity
  return wanted === undefined || wanted === null ? undefined : (VERBOSITY[wanted] ?? wanted)
}

function tier(request: ResponsesRequest): string | undefined {
  const wanted = request.service_tier
  if (wanted === undefined || wanted === null) return undefined
  return Object.hasOwn(TIERS, wanted) ? TIERS[wanted] : wanted
}

/**
 * Encodes a request as the body of POST /chat/completions. Pure. Fields with the same name are sent unchanged, others
 * translated. Unknown fields are appended; a request has them only if the caller uses this dialect. If this format
 * cannot express a field, the encoder refuses it and names its path.
 */

import type { EffortName } from '../../protocol/efforts.ts'
import type { Endpoint, Quirk } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { inexpressible } from '../failure.ts'
import type { Change, ModelRequest, WireRequest } from '../format.ts'
import { BREAKPOINT, lastMarks, withLastMarks } from '../marks/cache-marks.ts'
import { preparingEncoder, unknownFields } from '../outgoing.ts'
import { preconditionsOf } from '../preconditions/table.ts'
import { acceptedEffort, fieldThatStops, nearestEffort } from '../reasoning.ts'
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

/** Wire names that an unknown field cannot set: the encoder writes them, or the fields that replaced them. */
const OWN_NAMES: ReadonlySet<string> = new Set([
  'messages',
  'functions',
  'function_call',
  'stream_options',
  'n',
])

/** The same, with the chat names of `max_output_tokens`, where the request has that. */
const LIMITED_NAMES: ReadonlySet<string> = new Set([...OWN_NAMES, 'max_tokens', 'max_completion_tokens'])

/** Tiers with another name on the wire; omitting the field means `auto`. */
const SERVICE_TIERS: Readonly<Record<string, string | undefined>> = {
  auto: undefined,
  fast: 'priority',
  ultrafast: 'priority',
}

const VERBOSITY: Readonly<Record<string, string>> = { xhigh: 'high', max: 'high' }

/** The efforts that can replace a budget. */
const BUDGET_EFFORTS = ['minimal', 'low', 'medium', 'high', 'xhigh'] as const

/**
 * Writes field by field, because a table of fields would cost time for each field that is not set.
 * @throws GatewayError `unprocessable` that names the field without a form in this format.
 */
function writeChat(model: ModelRequest, endpoint: Endpoint): WireRequest {
  const { request } = model
  const quirks: ReadonlySet<Quirk> = new Set(endpoint.provider.quirks)
  refuseUnsupported(request)
  const { tools, toolChoice } = chatTools(request, quirks)
  // Later fields win.
  const body = unknownFields(request, request.max_output_tokens == null ? OWN_NAMES : LIMITED_NAMES)
  for (const name of SAME_NAME) if (request[name] != null) body[name] = request[name]
  body['model'] = endpoint.upstreamModel
  const omissions: Change[] = []
  body['messages'] = chatMessages(request, quirks, omissions)
  if (model.stream) {
    body['stream'] = true
    if (!quirks.has('no-stream-usage')) body['stream_options'] = { include_usage: true }
  }
  if (tools.length > 0) {
    body['tools'] = tools
    if (toolChoice != null) body['tool_choice'] = toolChoice
    if (request.parallel_tool_calls != null) body['parallel_tool_calls'] = request.parallel_tool_calls
  }
  const maxTokens = request.max_output_tokens
  if (maxTokens != null) body[quirks.has('max-tokens') ? 'max_tokens' : 'max_completion_tokens'] = maxTokens
  if (request.reasoning != null) addReasoning(body, request, request.reasoning, endpoint, quirks)
  if (quirks.has('thinking-switch') && isForced(toolChoice)) stopThinking(body, request, omissions)
  if (request.text != null) addText(body, request.text)
  if (request.modalities?.includes('image') === true) body['modalities'] = request.modalities
  const requestedTier = request.service_tier
  const tier =
    requestedTier != null && Object.hasOwn(SERVICE_TIERS, requestedTier)
      ? SERVICE_TIERS[requestedTier]
      : requestedTier
  if (tier != null) body['service_tier'] = tier
  if (model.endUser != null && !quirks.has('no-user')) body['user'] = model.endUser
  if (typeof request.top_logprobs === 'number') {
    body['logprobs'] = true
    body['top_logprobs'] = request.top_logprobs
  }
  const path = '/chat/completions'
  const acceptedBody = withMarks(body, quirks)
  return omissions.length === 0
    ? { path, body: acceptedBody }
    : { path, body: acceptedBody, changes: omissions }
}

export const encodeChat = preparingEncoder('openai-chat', writeChat)

function withMarks(body: Record<string, unknown>, quirks: ReadonlySet<Quirk>): Record<string, unknown> {
  if (quirks.has('cache-control')) return withLastMarks(body)
  const marks = quirks.has('cache-breakpoints') ? lastMarks([body['messages']], BREAKPOINT) : null
  return marks === null ? body : { ...body, messages: marks[0] }
}

function refuseUnsupported(request: ResponsesRequest): void {
  if (request.prompt !== undefined && request.prompt !== null) {
    throw inexpressible('prompt', 'stored prompts cannot be sent to this provider')
  }
  const count: unknown = (request as Record<string, unknown>)['n']
  if (typeof count === 'number' && count > 1)
    throw inexpressible('n', 'must be 1: this gateway returns one answer')
}

function addReasoning(
  body: Record<string, unknown>,
  request: ResponsesRequest,
  reasoning: NonNullable<ResponsesRequest['reasoning']>,
  endpoint: Endpoint,
  quirks: ReadonlySet<Quirk>,
): void {
  const { efforts } = preconditionsOf('openai-chat', endpoint)
  if (quirks.has('reasoning-object')) {
    const { max_tokens, enabled, summary } = reasoning
    const hasEffort =
      reasoning.effort != null && (reasoning.effort === 'none' || fieldThatStops(reasoning) === null)
    const effort = hasEffort ? acceptedEffort(reasoning.effort as EffortName, efforts) : null
    const reasoningFields = Object.fromEntries(
      Object.entries({ effort, max_tokens, enabled, summary }).filter(
        ([, value]) => value !== undefined && value !== null,
      ),
    )
    if (Object.keys(reasoningFields).length > 0) body['reasoning'] = reasoningFields
    return
  }
  const wantedEffort = effortOf(reasoning, request.max_output_tokens ?? endpoint.maxOutputTokens)
  const effort = wantedEffort === null ? null : acceptedEffort(wantedEffort, efforts)
  if (effort === 'none' && quirks.has('thinking-switch')) body['thinking'] = { type: 'disabled' }
  else if (effort !== null) body['reasoning_effort'] = effort
}

function isForced(choice: unknown): boolean {
  return choice != null && choice !== 'auto' && choice !== 'none'
}

/** Providers with a switch refuse to think before a call that is forced. */
function stopThinking(
  body: Record<string, unknown>,
  { reasoning }: ResponsesRequest,
  changes: Change[],
): void {
  if (body['reasoning_effort'] !== undefined) {
    delete body['reasoning_effort']
    const field = reasoning?.effort == null ? 'reasoning' : 'reasoning.effort'
    changes.push({ field, action: 'dropped', reason: THINKING_OFF_REASON })
  } else if (body['thinking'] === undefined)
    changes.push({ field: 'tool_choice', action: 'added', reason: THINKING_OFF_REASON })
  body['thinking'] = { type: 'disabled' }
}

const THINKING_OFF_REASON = 'thinking is off, because the provider does not think before a forced tool call'

/** The effort, also for a switch or a token budget. */
function effortOf(
  reasoning: NonNullable<ResponsesRequest['reasoning']>,
  maxTokens: number | null,
): EffortName | null {
  if (fieldThatStops(reasoning) !== null) return 'none'
  if (reasoning.effort != null) return reasoning.effort
  const budget = reasoning.max_tokens ?? null
  if (budget !== null && maxTokens !== null) return nearestEffort(budget / maxTokens, BUDGET_EFFORTS)
  return budget !== null || reasoning.enabled === true ? 'medium' : null
}

function addText(
  body: Record<string, unknown>,
  { format, verbosity }: NonNullable<ResponsesRequest['text']>,
): void {
  if (format != null && format.type !== 'text') body['response_format'] = responseFormat(format)
  if (verbosity != null) body['verbosity'] = VERBOSITY[verbosity] ?? verbosity
}

function responseFormat(
  format: Exclude<NonNullable<NonNullable<ResponsesRequest['text']>['format']>, { type: 'text' }>,
): Record<string, unknown> {
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

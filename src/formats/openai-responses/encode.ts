/**
 * Encodes a request in the Responses wire format, whose vocabulary is nearly the gateway's own. Pure. Fields named here
 * are sent, and unknown fields are appended; a request has them only if the caller uses this dialect.
 */
import { type Json, recordOrEmpty, records, remainder } from '../../base/json.ts'
import type { EffortName } from '../../protocol/efforts.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Change, ModelRequest, WireRequest } from '../format.ts'
import { isUnknownField, preparingEncoder } from '../outgoing.ts'
import { preconditionsOf } from '../preconditions/table.ts'
import { acceptedEffort, fieldThatStops, nearestEffort } from '../reasoning.ts'
import { encodeInput } from './input.ts'
import { encodeToolChoice, encodeTools, runsAtProvider } from './tools.ts'

type FieldEncoder = (value: unknown, model: ModelRequest, endpoint: Endpoint) => unknown

/** Fields that go out unchanged. Those of the chat dialect are present only if a Responses caller sent them. */
const COPIED_FIELDS = [
  'max_output_tokens',
  'temperature',
  'top_p',
  'frequency_penalty',
  'presence_penalty',
  'top_logprobs',
  'parallel_tool_calls',
  'include',
  'metadata',
  'prompt',
  'prompt_cache_key',
  'prompt_cache_options',
  'truncation',
  'image_config',
  'stop',
  'seed',
  'logit_bias',
  'min_p',
  'top_a',
  'repetition_penalty',
  'prediction',
] as const satisfies readonly (keyof ResponsesRequest)[]

/** Encodes a field by name. The encoder omits a field with the value `undefined`, and known fields without a row. */
const FIELD_ENCODERS: ReadonlyMap<string, FieldEncoder> = new Map<string, FieldEncoder>([
  ...COPIED_FIELDS.map((name): [string, FieldEncoder] => [name, copyField]),
  [
    'instructions',
    (value, _, endpoint) => (typeof value === 'string' ? value : encodeInput(value, endpoint)),
  ],
  ['tools', (value, _, endpoint) => encodeTools(records(value), 'tools', endpoint.provider.quirks)],
  ['tool_choice', (value, _, endpoint) => encodeToolChoice(value, endpoint.provider.quirks)],
  ['max_tool_calls', maxToolCalls],
  ['reasoning', encodeReasoning],
  ['text', encodeText],
  // Text alone is the default, and not every provider of this format knows the field.
  ['modalities', value => (Array.isArray(value) && value.includes('image') ? value : undefined)],
  ['service_tier', value => SERVICE_TIERS.get(value) ?? value],
  ['stream_options', (value, model) => (model.stream ? value : undefined)],
  // No provider of this format is known to support it; a row can say that one does.
  [
    'top_k',
    (value, _, endpoint) => (endpoint.supportedParameters?.has('top_k') === true ? value : undefined),
  ],
])

/** Tiers with another name on the wire; `ultrafast` becomes the next best. */
const SERVICE_TIERS: ReadonlyMap<unknown, string> = new Map([
  ['fast', 'priority'],
  ['ultrafast', 'priority'],
])

const VERBOSITIES: ReadonlyMap<unknown, string> = new Map([
  ['xhigh', 'high'],
  ['max', 'high'],
])

/** The efforts that can replace a budget. Few models know higher ones. */
const BUDGET_EFFORTS = ['minimal', 'low', 'medium', 'high'] as const

/** The output limit for the share of a reasoning budget if neither caller nor endpoint sets one. */
const USUAL_OUTPUT_TOKENS = 32_768

const LOGPROBS_INCLUDE = 'message.output_text.logprobs'
const NOT_IN_REASONING: ReadonlySet<string> = new Set(['max_tokens', 'enabled', 'exclude', 'effort'])
const NOT_IN_TEXT: ReadonlySet<string> = new Set(['format', 'verbosity'])
const NO_FIELDS: ReadonlySet<string> = new Set()

/** @throws GatewayError `unprocessable` for a tool or an item that this provider cannot take. */
function writeResponses(model: ModelRequest, endpoint: Endpoint): WireRequest {
  const body: Record<string, unknown> = { model: endpoint.upstreamModel }
  const omissions: Change[] = []
  for (const [name, value] of Object.entries(model.request)) {
    // An assignment to `__proto__` would not create a field.
    if (value == null || name === 'model' || name === 'stream' || name === '__proto__') continue
    if (name === 'input') {
      body['input'] = typeof value === 'string' ? value : encodeInput(value, endpoint, omissions)
      continue
    }
    const encodeField = FIELD_ENCODERS.get(name) ?? (isUnknownField(name) ? copyField : undefined)
    const wireValue = encodeField?.(value, model, endpoint)
    if (wireValue !== undefined) body[name] = wireValue
  }
  if (body['top_logprobs'] !== undefined) askForLogprobs(body)
  body['stream'] = model.stream
  body['store'] = false
  if (model.endUser !== null) body['safety_identifier'] = model.endUser
  return omissions.length === 0
    ? { path: '/responses', body }
    : { path: '/responses', body, changes: omissions }
}

export const encodeResponses = preparingEncoder('openai-responses', writeResponses)

/** Adds `include` for log probabilities; without it, the API refuses their number. */
function askForLogprobs(body: Record<string, unknown>): void {
  const { top_logprobs: count, include } = body
  if (typeof count !== 'number' || count === 0) return
  const entries: readonly unknown[] = Array.isArray(include) ? include : []
  if (!entries.includes(LOGPROBS_INCLUDE)) body['include'] = [...entries, LOGPROBS_INCLUDE]
}

function copyField(value: unknown): unknown {
  return value
}

/**
 * The limit counts steps of the gateway's loop; it goes out only if the provider runs tools too, and no stop conditions
 * of that loop are set.
 */
function maxToolCalls(value: unknown, { request }: ModelRequest): unknown {
  if (request.stop_server_tools_when != null) return undefined
  return records(request.tools).some(runsAtProvider) ? value : undefined
}

function encodeText(value: unknown): Json | undefined {
  const config = recordOrEmpty(value)
  const { format, verbosity } = config
  const wire: Record<string, unknown> = { ...remainder(config, NOT_IN_TEXT) }
  if (format != null) wire['format'] = remainder(recordOrEmpty(format), NO_FIELDS)
  if (verbosity != null) wire['verbosity'] = VERBOSITIES.get(verbosity) ?? verbosity
  return Object.keys(wire).length === 0 ? undefined : wire
}

function encodeReasoning(value: unknown, { request }: ModelRequest, endpoint: Endpoint): Json | undefined {
  const config = recordOrEmpty(value)
  const limit = request.max_output_tokens ?? endpoint.maxOutputTokens ?? USUAL_OUTPUT_TOKENS
  const wantedEffort = effortOf(request.reasoning, limit)
  const effort =
    wantedEffort === null
      ? null
      : acceptedEffort(wantedEffort, preconditionsOf('openai-responses', endpoint).efforts)
  const wire: Record<string, unknown> = { ...remainder(config, NOT_IN_REASONING) }
  if (effort != null) wire['effort'] = effort
  return Object.keys(wire).length === 0 ? undefined : wire
}

/** The effort, also for a switch or a budget: this format has efforts only. */
function effortOf(reasoning: ResponsesRequest['reasoning'], limit: number): EffortName | null {
  if (reasoning == null) return null
  if (fieldThatStops(reasoning) !== null) return 'none'
  if (reasoning.effort != null) return reasoning.effort
  const budget = reasoning.max_tokens ?? null
  if (budget !== null) return nearestEffort(budget / limit, BUDGET_EFFORTS)
  return reasoning.enabled === true ? 'medium' : null
}

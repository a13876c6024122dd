/**
 * Translates a POST /messages body to a request. Pure. Hot path: the check of the body, one walk over its fields and
 * one over its messages. Errors name fields of the client's body and never repeat what it sent.
 */
import { GatewayError, refuseField } from '../../base/errors.ts'
import { bodyCheck } from '../../protocol/json/body.ts'
import { type Offering, refusal, useDefaultModel } from '../../protocol/json/request-parser.ts'
import type { ResponsesRequest, TextConfig } from '../../protocol/request.ts'
import type { Dialect } from '../dialect.ts'
import { spellingCheck } from '../field-names.ts'
import { isStrict } from '../strict-schema.ts'
import { type ForeignField, fieldsWithout, refuseForeign } from '../translation.ts'
import { MessagesBody, type Thinking } from './body-schema.ts'
import { MessagesConversation } from './messages.ts'
import { type FieldOrigin, inMessagesNames, withOrigin } from './paths.ts'
import { hubTool, hubToolChoice } from './tools.ts'

/** Fields that have another name or form in a request. */
const TRANSLATED_FIELDS: ReadonlySet<string> = new Set([
  'messages',
  'system',
  'max_tokens',
  'stop_sequences',
  'thinking',
  'output_config',
  'output_format',
  'tools',
  'tool_choice',
  'metadata',
  'service_tier',
  'speed',
  'fallbacks',
])

/**
 * Fields of other APIs, with their equivalents in this one. Passing them on as unknown fields would lose them silently.
 */
const FOREIGN_FIELDS: readonly ForeignField[] = [
  ['input', 'use messages'],
  ['instructions', 'use system'],
  ['prompt', 'use messages'],
  ['max_output_tokens', 'use max_tokens'],
  ['max_completion_tokens', 'use max_tokens'],
  ['stop', 'use stop_sequences'],
  ['text', 'use output_config.format'],
  ['response_format', 'use output_config.format'],
  ['reasoning', 'use thinking and output_config.effort'],
  ['reasoning_effort', 'use output_config.effort'],
  ['include', 'it belongs to POST /responses'],
  ['generate', 'it belongs to POST /responses'],
  ['truncation', 'use the context-compression plugin'],
  ['previous_response_id', 'send the full conversation in messages'],
  ['logprobs', 'this API has no field for them in the answer'],
  ['top_logprobs', 'this API has no field for them in the answer'],
  ['functions', 'use tools'],
  ['function_call', 'use tool_choice'],
]

/** Tiers by the names of this API; all others are named as in a request. */
const SERVICE_TIERS: ReadonlyMap<string, string> = new Map([
  ['standard_only', 'default'],
  ['standard', 'default'],
])
const FAST_TIERS: ReadonlySet<string | undefined> = new Set([undefined, 'auto', 'priority', 'fast'])

const checkBody = bodyCheck(MessagesBody)
const checkSpelling = spellingCheck(MessagesBody, { moreNames: FOREIGN_FIELDS.map(([name]) => name) })

/** Creates the parser of these bodies. It throws GatewayError `invalid_request` that names a field of the body. */
export function createMessagesParser(offering: Offering): Dialect['parse'] {
  return (value, headers) => parseMessages(value, offering, headers ?? NO_HEADERS)
}

const NO_HEADERS: ReadonlyMap<string, string> = new Map()

function parseMessages(
  value: unknown,
  offering: Offering,
  headers: ReadonlyMap<string, string>,
): ResponsesRequest {
  const betas = headers.get(BETA_HEADER) ?? ''
  refuseThread(value)
  checkSpelling(value)
  const body = checkBody(value)
  refuseForeign(body, FOREIGN_FIELDS, 'messages')
  const fields = fieldsWithout(body, TRANSLATED_FIELDS)
  const conversation = new MessagesConversation()
  if (typeof body.system === 'string') fields['instructions'] = body.system
  else if (body.system != null) conversation.addSystem(body.system)
  for (const [index, message] of body.messages.entries()) conversation.add(message, index)
  fields['input'] = conversation.items
  if (betas.trim() !== '') fields['betas'] = [...(body.betas ?? []), ...betasIn(betas)]
  fields[WORKSPACE_FIELD] = workspaceIn(headers)
  translateFields(body, fields)
  const origin: FieldOrigin = {
    positions: conversation.positions,
    format: body.output_config?.format == null ? 'output_format' : 'output_config.format',
    models: body.fallbacks == null ? 'models' : 'fallbacks',
  }
  const request = withOrigin(fields as unknown as ResponsesRequest, origin)
  useDefaultModel(request, offering)
  const problem = refusal(request, offering)
  if (problem !== null) throw new GatewayError('invalid_request', inMessagesNames(problem, request))
  return request
}

/** Flags for beta features, which are passed on to providers of this API. */
const BETA_HEADER = 'anthropic-beta'
const BETA_NAME = /^[\x21-\x2b\x2d-\x7e]{1,100}$/
const BETAS_MAX = 64

function betasIn(header: string): readonly string[] {
  const names = header
    .split(',')
    .map(name => name.trim())
    .filter(name => name !== '')
  if (names.length > BETAS_MAX || !names.every(name => BETA_NAME.test(name)))
    throw refuseField(
      BETA_HEADER,
      `must be at most ${BETAS_MAX} names of at most 100 visible characters, separated by commas`,
    )
  return names
}

/** A workspace of an account at Anthropic, for requests with a BYOK credential. */
const WORKSPACE_HEADER = 'anthropic-workspace-id'
/** Only the header sets it: a body field of this name is overwritten. */
const WORKSPACE_FIELD = 'anthropic_workspace_id'

function workspaceIn(headers: ReadonlyMap<string, string>): string | undefined {
  const workspace = headers.get(WORKSPACE_HEADER)
  return workspace !== undefined && /^[\x21-\x7e]{1,200}$/.test(workspace) ? workspace : undefined
}

/**
 * A client whose field is refused sends the whole conversation instead. Ignoring the field would lose the conversation
 * silently.
 */
function refuseThread(value: unknown): void {
  if (typeof value !== 'object' || value === null || (value as { thread?: unknown }).thread == null) return
  throw new GatewayError(
    'invalid_request',
    'thread: must be left out: send the whole conversation in messages',
    {
      metadata: { error_code: 'thread_unsupported_request' },
    },
  )
}

/** With this flag, the budget covers all thoughts between calls, so it may exceed the limit of one answer. */
const INTERLEAVED_BETA = 'interleaved-thinking-'

function translateFields(body: MessagesBody, fields: Record<string, unknown>): void {
  fields['max_output_tokens'] = body.max_tokens
  if (body.stop_sequences != null) fields['stop'] = body.stop_sequences
  const isInterleaved = (fields['betas'] as MessagesBody['betas'])?.some(beta =>
    beta.startsWith(INTERLEAVED_BETA),
  )
  const reasoning = reasoningConfig(body, isInterleaved === true)
  if (reasoning !== null) fields['reasoning'] = reasoning
  // A client of this API expects to send every thought back.
  if (reasoning?.['enabled'] === true) fields['include'] = ['reasoning.encrypted_content']
  const text = textConfig(body)
  if (text !== null) fields['text'] = text
  const tools = (body.tools ?? []).map(hubTool)
  if (body.tools != null) fields['tools'] = tools
  if (body.tool_choice != null) {
    const { choice, isParallel } = hubToolChoice(body.tool_choice, tools)
    fields['tool_choice'] = choice
    if (isParallel !== null) fields['parallel_tool_calls'] = isParallel
  }
  const user = body.metadata?.user_id
  // For the provider, which gets its hash; `user` is for the records of the gateway.
  if (user != null && body.safety_identifier == null) fields['safety_identifier'] = user
  const tier = serviceTier(body)
  if (tier !== null) fields['service_tier'] = tier
  if (body.fallbacks != null && body.fallbacks.length > 0) fields['models'] = fallbackModels(body)
}

function fallbackModels({ fallbacks, models }: MessagesBody): readonly string[] {
  if (models != null && models.length > 0)
    throw refuseField('fallbacks', 'must not be set together with models')
  return (fallbacks ?? []).map(({ model }) => model)
}

/**
 * `thinking` also stays in the configuration as the client sent it (null if absent): a provider of this API gets it
 * instead of the translation for others.
 */
function reasoningConfig(
  { thinking, output_config: output, max_tokens }: MessagesBody,
  isInterleaved: boolean,
): Record<string, unknown> | null {
  const effort = output?.effort ?? null
  if (thinking == null) return effort === null ? null : { effort, thinking: null }
  if (thinking.type === 'enabled' && thinking.budget_tokens >= max_tokens && !isInterleaved)
    throw refuseField('max_tokens', 'must be greater than thinking.budget_tokens')
  return { ...hubThinking(thinking), ...(effort === null ? {} : { effort }), thinking }
}

function hubThinking(thinking: Thinking): Record<string, unknown> {
  if (thinking.type === 'disabled') return { enabled: false }
  const isShown = thinking.type === 'between_tools' || thinking.display !== 'omitted'
  return {
    enabled: true,
    ...(thinking.type === 'enabled' ? { max_tokens: thinking.budget_tokens } : {}),
    // Some providers report no thinking unless a summary is requested.
    ...(isShown ? { summary: 'auto' } : {}),
  }
}

function textConfig({ output_config: output, output_format: olderFormat }: MessagesBody): TextConfig | null {
  if (output?.format != null && olderFormat != null)
    throw refuseField('output_format', 'must not be set together with output_config.format')
  const format = output?.format ?? olderFormat
  if (format == null) return null
  const { schema } = format
  // The API has no name for it, and others demand one.
  return {
    format: { type: 'json_schema', name: 'output', schema, ...(isStrict(schema) ? { strict: true } : {}) },
  }
}

function serviceTier({ service_tier: tier, speed }: MessagesBody): string | null {
  if (speed !== 'fast') return tier == null ? null : (SERVICE_TIERS.get(tier) ?? tier)
  if (!FAST_TIERS.has(tier ?? undefined))
    throw refuseField('speed', 'must not be fast if service_tier asks for another tier')
  return 'priority'
}

/**
 * Encodes a request as the body of Converse and ConverseStream, which accept the same body. Pure. Only fields named
 * here are sent. Parameters that only tune a reply are dropped if the API lacks them (penalties, log probabilities,
 * seeds).
 */
import { recordOrEmpty, records } from '../../base/json.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { BETAS_OF_CLOUDS } from '../anthropic-messages/clouds.ts'
import { refuseUnknownModes, stopSequences } from '../anthropic-messages/encode.ts'
import { generation } from '../anthropic-messages/generation.ts'
import type { ModelRequest, WireRequest } from '../format.ts'
import { CACHE_POINT, lastMarks } from '../marks/cache-marks.ts'
import { mayPay, withOwnPoints } from '../marks/own-marks.ts'
import { preparingEncoder } from '../outgoing.ts'
import { JSON_HINT } from '../preconditions/schemas.ts'
import { CONTINUE, CONTINUE_ADDED, preconditionsOf } from '../preconditions/table.ts'
import { EFFORT_SHARES, type Effort, nearestEffort } from '../reasoning.ts'
import { type ConverseBlock, cachePoint } from './content.ts'
import { type ConverseConversation, type ConverseMessage, encodeConversation } from './input.ts'
import { type Family, familyOf, modelPath, takesAllPoints, takesCachePoints } from './model.ts'
import { encodeTools } from './tools.ts'

/** Service tiers by the caller's name. */
const SERVICE_TIERS: ReadonlyMap<string, string> = new Map([
  ['default', 'default'],
  ['flex', 'flex'],
  ['priority', 'priority'],
  ['fast', 'priority'],
])

/** @throws GatewayError `unprocessable` naming what Converse cannot express */
function writeConverse(model: ModelRequest, endpoint: Endpoint): WireRequest {
  const { request, stream } = model
  refuseUnknownModes(request)
  const family = familyOf(endpoint.upstreamModel)
  const talk = encodeConversation(request, family)
  const needsUserTurn =
    talk.messages.at(-1)?.role === 'assistant' &&
    preconditionsOf('bedrock-converse', endpoint).lastTurn === 'user'
  const messages = needsUserTurn
    ? [...talk.messages, { role: 'user' as const, content: [{ text: CONTINUE }] }]
    : talk.messages
  const { config, isForced } = encodeTools(request, talk.calledNames, family)
  const { inference, additional } = settings({ request, endpoint, family, talk, forced: isForced })
  const body: ConverseBlock = { messages: withRequestMark(messages, request, family) }
  const set = (name: string, value: unknown): void => {
    if (value !== null && value !== undefined) body[name] = value
  }
  const hint = request.text?.format?.type === 'json_object' ? [{ text: JSON_HINT }] : []
  const system = [...talk.system, ...hint]
  set('system', system.length === 0 ? null : system)
  set('inferenceConfig', Object.keys(inference).length === 0 ? null : inference)
  set('toolConfig', config)
  if (family === 'claude') addBetas(additional, model.betas)
  set('additionalModelRequestFields', Object.keys(additional).length === 0 ? null : additional)
  set('outputConfig', outputConfig(request))
  const tier = SERVICE_TIERS.get(request.service_tier ?? '')
  set('serviceTier', tier === undefined ? null : { type: tier })
  const path = `${modelPath(endpoint.upstreamModel)}/${stream ? 'converse-stream' : 'converse'}`
  const bodyWithAcceptedPoints = withAcceptedPoints(body)
  const bodyWithPoints = takesAllPoints(family)
    ? bodyWithAcceptedPoints
    : withShortPoints(bodyWithAcceptedPoints)
  const isMarked = takesCachePoints(family) && mayPay(model, endpoint)
  return {
    path,
    body: isMarked ? withOwnPoints(bodyWithPoints, takesAllPoints(family), model.isSeen) : bodyWithPoints,
    ...(needsUserTurn || talk.omissions.length > 0
      ? { changes: needsUserTurn ? [...CONTINUE_ADDED, ...talk.omissions] : talk.omissions }
      : undefined),
  }
}

export const encodeConverse = preparingEncoder('bedrock-converse', writeConverse)

/** Adds the features of the Messages API that Bedrock has too. */
function addBetas(additional: ConverseBlock, betas: readonly string[] = []): void {
  const accepted = betas.filter(beta => BETAS_OF_CLOUDS.some(prefix => beta.startsWith(prefix)))
  if (accepted.length > 0) additional['anthropic_beta'] = [...new Set(accepted)]
}

/** The body with only the cache points that Converse accepts. */
function withAcceptedPoints(body: ConverseBlock): ConverseBlock {
  const config = recordOrEmpty(body['toolConfig'])
  const marks = lastMarks([config['tools'], body['system'], body['messages']], CACHE_POINT)
  if (marks === null) return body
  const [tools, system, messages] = marks
  return {
    ...body,
    messages,
    ...(system === undefined ? {} : { system }),
    ...(tools === undefined ? {} : { toolConfig: { ...config, tools } }),
  }
}

/** The body with only cache points of the default lifetime. */
function withShortPoints(body: ConverseBlock): ConverseBlock {
  const withShort = (blocks: unknown): unknown =>
    records(blocks).map(block =>
      block['cachePoint'] === undefined ? block : { cachePoint: { type: 'default' } },
    )
  const messages = records(body['messages']).map(message => ({
    ...message,
    content: withShort(message['content']),
  }))
  return { ...body, messages, ...(body['system'] === undefined ? {} : { system: withShort(body['system']) }) }
}

/** A cache mark on the whole request applies to everything up to its end. */
function withRequestMark(
  messages: readonly ConverseMessage[],
  request: ResponsesRequest,
  family: Family,
): readonly ConverseMessage[] {
  const point = takesCachePoints(family) ? cachePoint({ cache_control: request.cache_control }) : null
  const last = messages.at(-1)
  if (point === null || last === undefined || last.content.at(-1)?.['cachePoint'] !== undefined)
    return messages
  return [...messages.slice(0, -1), { ...last, content: [...last.content, point] }]
}

interface Settings {
  readonly inference: ConverseBlock
  /** Fields of the model's own API. */
  readonly additional: ConverseBlock
}

interface SettingsTerms {
  readonly request: ResponsesRequest
  readonly endpoint: Endpoint
  readonly family: Family
  readonly talk: ConverseConversation
  readonly forced: boolean
}

function settings(terms: SettingsTerms): Settings {
  const { request, family } = terms
  if (family === 'claude') return claudeSettings(terms)
  const inference = inferenceConfig(request, {
    maxTokens: request.max_output_tokens,
    temperature: request.temperature,
    topP: request.top_p,
  })
  const effort = effortOf(terms)
  if (effort === null || family === 'other') return { inference, additional: topK(request, family) }
  if (family === 'gpt-oss') {
    const nearest = nearestEffort(EFFORT_SHARES[effort], ['low', 'medium', 'high'])
    return { inference, additional: { reasoning_effort: nearest } }
  }
  return novaSettings(inference, effort)
}

function inferenceConfig(
  request: ResponsesRequest,
  numbers: Readonly<Record<string, number | null | undefined>>,
): ConverseBlock {
  const config: ConverseBlock = {}
  for (const [name, value] of Object.entries(numbers)) if (value != null) config[name] = value
  const sequences = stopSequences(request)
  if (sequences !== null) config['stopSequences'] = sequences
  return config
}

/** The API names three sampling parameters; the model's own field has the fourth. */
function topK({ top_k }: ResponsesRequest, family: Family): ConverseBlock {
  if (top_k == null || top_k <= 0) return {}
  return family === 'nova' ? { inferenceConfig: { topK: top_k } } : { top_k }
}

/**
 * With its highest effort, Nova accepts no output limit and no sampling parameters. A limit lowers the effort; sampling
 * parameters are left out beside any effort.
 */
function novaSettings(inference: ConverseBlock, effort: Effort): Settings {
  const nearest = nearestEffort(EFFORT_SHARES[effort], ['low', 'medium', 'high'])
  const { temperature: _temperature, topP: _topP, ...otherSettings } = inference
  const hasOutputLimit = otherSettings['maxTokens'] !== undefined
  return {
    inference: otherSettings,
    additional: {
      reasoningConfig: {
        type: 'enabled',
        maxReasoningEffort: nearest === 'high' && hasOutputLimit ? 'medium' : nearest,
      },
    },
  }
}

/** Settings of Anthropic's own API, which Converse passes on. */
function claudeSettings({ request, endpoint, talk, forced }: SettingsTerms): Settings {
  const { max_tokens, thinking, effort, sampling } = generation({
    request,
    effort: talk.effort,
    upstreamModel: endpoint.upstreamModel,
    efforts: preconditionsOf('bedrock-converse', endpoint).efforts,
    isInterleaved: false,
    maxOutputTokens: endpoint.maxOutputTokens,
    isThoughtMissing: () => isThoughtMissing(talk.messages),
    isToolForced: forced,
  })
  const { temperature, top_p, ...otherSettings } = sampling
  const additional: ConverseBlock = { ...otherSettings }
  if (thinking !== null) additional['thinking'] = thinking
  if (effort !== null) additional['output_config'] = { effort }
  const inference = inferenceConfig(request, { maxTokens: max_tokens, temperature, topP: top_p })
  return { inference, additional }
}

/** True if the last turns lack a thought that Claude demands where a budget is set. */
function isThoughtMissing(messages: readonly ConverseMessage[]): boolean {
  let index = messages.length - 1
  let firstMessage: ConverseMessage | undefined
  if (messages[index]?.role === 'assistant') firstMessage = messages[index--]
  while (index > 0 && messages[index]?.content.some(block => block['toolResult'] !== undefined) === true) {
    firstMessage = messages[index - 1]
    index -= 2
  }
  return firstMessage !== undefined && firstMessage.content[0]?.['reasoningContent'] === undefined
}

/** The requested thinking effort; null for none. */
function effortOf({ request, endpoint, talk }: SettingsTerms): Effort | null {
  const { reasoning } = request
  const level = talk.effort === undefined ? reasoning?.effort : talk.effort
  if (reasoning?.enabled === false || level === 'none') return null
  if (reasoning?.max_tokens != null) {
    if (reasoning.max_tokens === 0) return null
    const outputTokens = request.max_output_tokens ?? endpoint.maxOutputTokens ?? 4 * reasoning.max_tokens
    return nearestEffort(reasoning.max_tokens / outputTokens, ['low', 'medium', 'high'])
  }
  return level ?? (reasoning?.enabled === true ? 'medium' : null)
}

function outputConfig({ text }: ResponsesRequest): ConverseBlock | null {
  const format = text?.format
  if (format?.type !== 'json_schema') return null
  const jsonSchema: ConverseBlock = { schema: JSON.stringify(format.schema), name: format.name }
  if (format.description != null) jsonSchema['description'] = format.description
  return { textFormat: { type: 'json_schema', structure: { jsonSchema } } }
}

/**
 * Translates a POST /chat/completions body to a request. Pure. Hot path: the check of the body, one walk over its
 * fields and one over its messages. Errors name fields of the chat body and never repeat what the client sent.
 */
import { GatewayError, refuseField } from '../../base/errors.ts'
import { serverToolName } from '../../protocol/gateway-tools.ts'
import { bodyCheck } from '../../protocol/json/body.ts'
import { type Offering, refusal, useDefaultModel } from '../../protocol/json/request-parser.ts'
import { elementPath } from '../../protocol/json/schema.ts'
import type { ReasoningConfig, ResponsesRequest, TextConfig, TextFormat } from '../../protocol/request.ts'
import type { Tool, ToolChoice } from '../../protocol/tools.ts'
import { spellingCheck } from '../field-names.ts'
import { type ForeignField, fieldsWithout, refuseForeign } from '../translation.ts'
import { ChatBody, type ChatTool, type ChatToolChoice, type ResponseFormat } from './body-schema.ts'
import { ChatConversation } from './messages.ts'
import { inChatNames, withChosenNames } from './paths.ts'

/** Fields that have another name or form in a request, or mean nothing there. */
const TRANSLATED_FIELDS: ReadonlySet<string> = new Set([
  'messages',
  'max_tokens',
  'max_completion_tokens',
  'logprobs',
  'top_logprobs',
  'reasoning',
  'reasoning_effort',
  'include_reasoning',
  'response_format',
  'verbosity',
  'tools',
  'tool_choice',
  'transforms',
  'stream_options',
  'n',
  'best_of',
  'audio',
  'functions',
  'function_call',
])

/**
 * Fields of POST /responses, with their equivalents in this API. Passing them on as unknown fields would lose them
 * silently.
 */
const RESPONSES_FIELDS: readonly ForeignField[] = [
  ['input', 'use messages'],
  ['prompt', 'use messages'],
  ['instructions', 'use a system message'],
  ['max_output_tokens', 'use max_completion_tokens'],
  ['text', 'use response_format and verbosity'],
  ['include', 'it belongs to POST /responses'],
  ['generate', 'it belongs to POST /responses'],
  ['truncation', 'use the context-compression plugin'],
]

const checkBody = bodyCheck(ChatBody)
const checkSpelling = spellingCheck(ChatBody, {
  moreNames: [...TRANSLATED_FIELDS, ...RESPONSES_FIELDS.map(([name]) => name)],
})

/** Creates the parser of chat bodies. It throws GatewayError `invalid_request` that names a field of the chat body. */
export function createChatParser(offering: Offering): (value: unknown) => ResponsesRequest {
  return value => parseChat(value, offering)
}

function parseChat(value: unknown, offering: Offering): ResponsesRequest {
  checkSpelling(value)
  const body = checkBody(value)
  refuseUnsupported(body)
  const fields = fieldsWithout(body, TRANSLATED_FIELDS)
  const conversation = new ChatConversation()
  for (const [index, message] of body.messages.entries()) conversation.add(message, index)
  fields['input'] = conversation.items
  translateFields(body, fields, offering.tools)
  const request = withChosenNames(fields as unknown as ResponsesRequest, {
    limit:
      body.max_completion_tokens == null && body.max_tokens != null ? 'max_tokens' : 'max_completion_tokens',
    effort: body.reasoning_effort == null ? 'reasoning.effort' : 'reasoning_effort',
  })
  useDefaultModel(request, offering)
  const problem = refusal(request, offering)
  if (problem !== null) throw new GatewayError('invalid_request', inChatNames(problem, request))
  return request
}

function refuseUnsupported(body: ChatBody): void {
  const fields = body as unknown as Readonly<Record<string, unknown>>
  refuseForeign(body, RESPONSES_FIELDS, 'chat completions')
  for (const name of ['n', 'best_of']) {
    if (fields[name] != null && fields[name] !== 1)
      throw refuseField(name, 'must be 1: only one answer is returned')
  }
  if (fields['functions'] != null) throw refuseField('functions', 'must be null: use tools')
  if (fields['function_call'] != null) throw refuseField('function_call', 'must be null: use tool_choice')
  const audio = body.modalities?.indexOf('audio') ?? -1
  if (audio !== -1)
    throw refuseField(
      elementPath('modalities', audio),
      'must be text or image: audio output is not offered by this gateway',
    )
  if (fields['audio'] != null)
    throw refuseField('audio', 'must be null: audio output is not offered by this gateway')
}

function translateFields(body: ChatBody, fields: Record<string, unknown>, tools: ReadonlySet<string>): void {
  const limit = outputLimit(body)
  if (limit !== null) fields['max_output_tokens'] = limit
  const logprobs = topLogprobs(body)
  if (logprobs !== null) fields['top_logprobs'] = logprobs
  const reasoning = reasoningConfig(body)
  if (reasoning !== null) fields['reasoning'] = reasoning
  const text = textConfig(body)
  if (text !== null) fields['text'] = text
  if (body.tools != null) fields['tools'] = body.tools.map(hubTool)
  if (body.tool_choice != null) fields['tool_choice'] = hubToolChoice(body.tool_choice, tools)
  if (body.transforms != null) {
    const plugins = withTransforms(body.transforms, body.plugins ?? [])
    if (plugins.length > 0) fields['plugins'] = plugins
  }
}

function outputLimit({ max_tokens: older, max_completion_tokens: newer }: ChatBody): number | null {
  if (older != null && newer != null && older !== newer)
    throw refuseField('max_tokens', 'must be equal to max_completion_tokens if both are set')
  return newer ?? older ?? null
}

/** Log probabilities without alternatives are a request for 0 alternatives. */
function topLogprobs({ logprobs, top_logprobs: top }: ChatBody): number | null {
  if (logprobs === false) {
    if (top != null && top > 0) throw refuseField('top_logprobs', 'must not be set if logprobs is false')
    return null
  }
  return top ?? (logprobs === true ? 0 : null)
}

/** `exclude` stays in the configuration, because it decides what the answer in this dialect contains. */
function reasoningConfig(body: ChatBody): (ReasoningConfig & { exclude?: boolean | null }) | null {
  const { reasoning, reasoning_effort: effort, include_reasoning: include } = body
  if (effort != null && reasoning?.effort != null && reasoning.effort !== effort)
    throw refuseField('reasoning_effort', 'must be equal to reasoning.effort if both are set')
  const isExcluded = include === false && reasoning?.exclude == null
  if (effort == null && !isExcluded) return reasoning ?? null
  return {
    ...reasoning,
    ...(effort == null ? {} : { effort }),
    ...(isExcluded ? { exclude: true } : {}),
  }
}

function textConfig({ response_format: format, verbosity }: ChatBody): TextConfig | null {
  if (format == null && verbosity == null) return null
  return {
    ...(format == null ? {} : { format: textFormat(format) }),
    ...(verbosity == null ? {} : { verbosity }),
  }
}

function textFormat(format: ResponseFormat): TextFormat {
  if (format.type !== 'json_schema') return { type: format.type }
  const { name, schema, description, strict } = format.json_schema
  return {
    type: 'json_schema',
    name,
    schema: schema ?? {},
    ...(description == null ? {} : { description }),
    ...(strict == null ? {} : { strict }),
  }
}

/**
 * The older way to turn context compression on or, with an empty list, off. Settings of the plugin itself take
 * precedence.
 */
function withTransforms(
  transforms: readonly string[],
  plugins: NonNullable<ChatBody['plugins']>,
): NonNullable<ChatBody['plugins']> {
  if (plugins.some(plugin => plugin.id === 'context-compression')) return plugins
  const engine = { id: 'context-compression' as const, engine: 'middle-out' as const }
  return [...plugins, transforms.length > 0 ? engine : { id: 'context-compression', enabled: false }]
}

// Tools

type CustomFormat = Extract<ChatTool, { type: 'custom' }>['custom']['format']

/** Functions and custom tools have their fields in an object of their own; every other tool is the same in both. */
function hubTool(tool: ChatTool): Tool {
  switch (tool.type) {
    case 'function': {
      const { function: fields, ...otherFields } = tool
      const { name, description, parameters, strict } = fields
      return {
        ...otherFields,
        name,
        ...(description == null ? {} : { description }),
        ...(parameters == null ? {} : { parameters }),
        ...(strict == null ? {} : { strict }),
      }
    }
    case 'custom': {
      const { custom, ...otherFields } = tool
      const { name, description, format } = custom
      return {
        ...otherFields,
        name,
        ...(description == null ? {} : { description }),
        ...(format == null ? {} : { format: hubFormat(format) }),
      }
    }
    default:
      return tool as Tool
  }
}

function hubFormat(format: NonNullable<CustomFormat>) {
  return format.type === 'text' ? format : { type: format.type, ...format.grammar }
}

/** @throws GatewayError `invalid_request` for a server tool that is not offered. */
function hubToolChoice(choice: ChatToolChoice, offeredTools: ReadonlySet<string>): ToolChoice {
  if (typeof choice === 'string') return choice
  switch (choice.type) {
    case 'function':
      return { type: 'function', name: choice.function.name }
    case 'custom':
      return { type: 'custom', name: choice.custom.name }
    case 'allowed_tools': {
      const { mode, tools } = choice.allowed_tools
      return { type: 'allowed_tools', mode, tools: tools.map(allowedTool) }
    }
    default: {
      const toolName = serverToolName(choice.type)
      if (toolName !== null && !offeredTools.has(toolName))
        throw refuseField(
          'tool_choice.type',
          `the ${toolName} server tool is not offered by this gateway yet`,
        )
      return choice as ToolChoice
    }
  }
}

function allowedTool(
  tool: Extract<ChatToolChoice, { type: 'allowed_tools' }>['allowed_tools']['tools'][number],
): Record<string, unknown> {
  if (tool.type === 'function') return { type: 'function', name: tool.function.name }
  if (tool.type === 'custom') return { type: 'custom', name: tool.custom.name }
  return tool
}

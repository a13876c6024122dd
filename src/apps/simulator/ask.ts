/** Parses requests to the simulated provider, in any of the four formats, into one form. Pure. */

/** The formats the simulated provider speaks, named as in the configuration. */
export type SimFormat = 'openai-responses' | 'openai-chat' | 'anthropic-messages' | 'google-gemini'

interface OfferedTool {
  readonly name: string
  /** JSON schema of the arguments; without fields for a custom tool. */
  readonly schema: SimFields
  /** Takes free text instead of JSON. */
  readonly custom: boolean
}

/** A request in a form that is the same for all formats. */
export interface SimAsk {
  readonly model: string
  readonly stream: boolean
  /** Text of all instructions, system and developer messages. */
  readonly system: string
  readonly lastUser: string
  /** Outputs of tools after the last user text. */
  readonly toolOutputs: readonly string[]
  /** The tools that the tool choice allows. */
  readonly tools: readonly OfferedTool[]
  /** The requested JSON document; an empty schema for any object, null for plain text. */
  readonly json: { readonly name: string; readonly schema: SimFields } | null
  readonly maxTokens: number | null
  /** Number of words in instructions, messages and outputs of tools. */
  readonly inputTokens: number
  /** Chat only: true if the client requests a last chunk with usage. */
  readonly streamUsage: boolean
  readonly body: SimFields
}

/** One step of the conversation, in a common form. */
interface Step {
  readonly by: 'system' | 'user' | 'assistant' | 'tool'
  readonly text: string
}

/** Number of words; the tokens of this provider. */
export function countWords(text: string): number {
  let count = 0
  for (const _ of text.matchAll(/\S+/g)) count++
  return count
}

/** Parsers of bodies by format. `path`: model and streaming, for the format that has them in the URL. */
export const READERS: Readonly<Record<SimFormat, (body: SimFields, path: PathFacts) => SimAsk>> = {
  'openai-responses': body =>
    ask(body, {
      model: textOf(body['model']),
      stream: body['stream'] === true,
      parts: [{ by: 'system', text: textOf(body['instructions']) }, ...responsesInput(body['input'])],
      tools: choose(listOf(body['tools']).flatMap(responsesTool), body['tool_choice']),
      json: jsonFormat(fieldsOf(fieldsOf(body['text'])['format'])),
      maxTokens: numberOf(body['max_output_tokens']),
    }),
  'openai-chat': body =>
    ask(body, {
      model: textOf(body['model']),
      stream: body['stream'] === true,
      parts: listOf(body['messages']).map(chatMessage),
      tools: choose(listOf(body['tools']).flatMap(chatTool), body['tool_choice']),
      json: chatJson(fieldsOf(body['response_format'])),
      maxTokens: numberOf(body['max_completion_tokens']) ?? numberOf(body['max_tokens']),
    }),
  'anthropic-messages': body =>
    ask(body, {
      model: textOf(body['model']),
      stream: body['stream'] === true,
      parts: [
        { by: 'system', text: partsText(body['system']) },
        ...listOf(body['messages']).flatMap(anthropicMessage),
      ],
      tools: choose(listOf(body['tools']).flatMap(anthropicTool), body['tool_choice']),
      json: jsonFormat(anthropicFormat(body)),
      maxTokens: numberOf(body['max_tokens']),
    }),
  'google-gemini': (body, path) =>
    ask(body, {
      model: path.model,
      stream: path.stream,
      parts: [
        {
          by: 'system',
          text: partsText(fieldsOf(body['systemInstruction'] ?? body['system_instruction'])['parts']),
        },
        ...listOf(body['contents']).flatMap(geminiContent),
      ],
      tools: geminiTools(body),
      json: geminiJson(fieldsOf(body['generationConfig'])),
      maxTokens: numberOf(fieldsOf(body['generationConfig'])['maxOutputTokens']),
    }),
}

/** Model and streaming from the URL; only one format uses them. */
interface PathFacts {
  readonly model: string
  readonly stream: boolean
}

type ParsedBody = Pick<SimAsk, 'model' | 'stream' | 'tools' | 'json' | 'maxTokens'> & {
  readonly parts: readonly Step[]
}

function ask(body: SimFields, { parts, ...otherFields }: ParsedBody): SimAsk {
  const lastUserAt = parts.findLastIndex(step => step.by === 'user')
  return {
    ...otherFields,
    system: parts
      .filter(step => step.by === 'system')
      .map(step => step.text)
      .join('\n'),
    lastUser: parts[lastUserAt]?.text ?? '',
    toolOutputs: parts
      .slice(lastUserAt + 1)
      .filter(step => step.by === 'tool')
      .map(step => step.text),
    inputTokens: parts.reduce((sum, step) => sum + countWords(step.text), 0),
    streamUsage: fieldsOf(body['stream_options'])['include_usage'] === true,
    body,
  }
}

/** The text of a string, or of a list of parts that carry `text` in any format. */
function partsText(content: unknown): string {
  if (typeof content === 'string') return content
  return listOf(content)
    .map(part => (typeof part === 'string' ? part : textOf(fieldsOf(part)['text'])))
    .join('')
}

function speaker(role: unknown): Step['by'] {
  if (role === 'system' || role === 'developer') return 'system'
  return role === 'assistant' || role === 'model' ? 'assistant' : 'user'
}

function responsesInput(input: unknown): Step[] {
  if (typeof input === 'string') return [{ by: 'user', text: input }]
  return listOf(input).flatMap((raw): Step[] => {
    const item = fieldsOf(raw)
    const type = item['type'] ?? 'message'
    if (type === 'message') return [{ by: speaker(item['role']), text: partsText(item['content']) }]
    if (type === 'function_call_output' || type === 'custom_tool_call_output') {
      return [{ by: 'tool', text: partsText(item['output']) }]
    }
    if (type === 'function_call') return [{ by: 'assistant', text: textOf(item['arguments']) }]
    return []
  })
}

function chatMessage(raw: unknown): Step {
  const message = fieldsOf(raw)
  if (message['role'] === 'tool') return { by: 'tool', text: partsText(message['content']) }
  return { by: speaker(message['role']), text: partsText(message['content']) }
}

function anthropicMessage(raw: unknown): Step[] {
  const message = fieldsOf(raw)
  const parts: Step[] = listOf(message['content'])
    .map(fieldsOf)
    .filter(part => part['type'] === 'tool_result')
    .map(part => ({ by: 'tool', text: partsText(part['content']) }))
  const text = partsText(message['content'])
  // Tool results are sent as a user message, which is not a user turn if it has no text.
  if (text !== '' || parts.length === 0) parts.unshift({ by: speaker(message['role']), text })
  return parts
}

function geminiContent(raw: unknown): Step[] {
  const content = fieldsOf(raw)
  const parts: Step[] = listOf(content['parts'])
    .map(part => fieldsOf(fieldsOf(part)['functionResponse']))
    .filter(part => 'response' in part)
    .map(part => ({ by: 'tool', text: geminiOutput(fieldsOf(part['response'])) }))
  const text = partsText(content['parts'])
  if (text !== '' || parts.length === 0) parts.unshift({ by: speaker(content['role']), text })
  return parts
}

function geminiOutput(response: SimFields): string {
  const output = response['output'] ?? response['result'] ?? response['content']
  return typeof output === 'string' ? output : JSON.stringify(response)
}

function responsesTool(raw: unknown): OfferedTool[] {
  const tool = fieldsOf(raw)
  if (tool['type'] !== 'function' && tool['type'] !== 'custom') return []
  return [
    { name: textOf(tool['name']), schema: fieldsOf(tool['parameters']), custom: tool['type'] === 'custom' },
  ]
}

function chatTool(raw: unknown): OfferedTool[] {
  const tool = fieldsOf(raw)
  const custom = tool['type'] === 'custom'
  const inner = fieldsOf(custom ? tool['custom'] : tool['function'])
  return typeof inner['name'] === 'string'
    ? [{ name: inner['name'], schema: fieldsOf(inner['parameters']), custom }]
    : []
}

function anthropicTool(raw: unknown): OfferedTool[] {
  const tool = fieldsOf(raw)
  return 'input_schema' in tool
    ? [{ name: textOf(tool['name']), schema: fieldsOf(tool['input_schema']), custom: false }]
    : []
}

function geminiTools(body: SimFields): readonly OfferedTool[] {
  const declared = listOf(body['tools'])
    .flatMap(tool =>
      listOf(fieldsOf(tool)['functionDeclarations'] ?? fieldsOf(tool)['function_declarations']),
    )
    .map(fieldsOf)
    .map(tool => ({
      name: textOf(tool['name']),
      schema: fieldsOf(tool['parametersJsonSchema'] ?? tool['parameters']),
      custom: false,
    }))
  const callingConfig = fieldsOf(fieldsOf(body['toolConfig'])['functionCallingConfig'])
  if (callingConfig['mode'] === 'NONE') return []
  const allowedNames = listOf(callingConfig['allowedFunctionNames'])
  return allowedNames.length === 0 ? declared : declared.filter(tool => allowedNames.includes(tool.name))
}

function choose(tools: readonly OfferedTool[], choice: unknown): readonly OfferedTool[] {
  const fields = fieldsOf(choice)
  if (choice === 'none' || fields['type'] === 'none') return []
  const name = fields['name'] ?? fieldsOf(fields['function'])['name'] ?? fieldsOf(fields['custom'])['name']
  return typeof name === 'string' ? tools.filter(tool => tool.name === name) : tools
}

function jsonFormat(format: SimFields): SimAsk['json'] {
  if (format['type'] === 'json_object') return { name: '', schema: {} }
  if (format['type'] !== 'json_schema') return null
  return { name: textOf(format['name']), schema: fieldsOf(format['schema']) }
}

function chatJson(format: SimFields): SimAsk['json'] {
  return jsonFormat(
    format['type'] === 'json_schema' ? { ...fieldsOf(format['json_schema']), type: 'json_schema' } : format,
  )
}

function anthropicFormat(body: SimFields): SimFields {
  const settings = fieldsOf(body['output_config'])
  return fieldsOf(settings['format'] ?? body['output_format'])
}

function geminiJson(settings: SimFields): SimAsk['json'] {
  if (settings['responseMimeType'] !== 'application/json') return null
  const schema = fieldsOf(settings['responseJsonSchema'] ?? settings['responseSchema'])
  return { name: textOf(schema['title']), schema }
}

// Safe reading of JSON: a missing field, or one of another type, is empty

export type SimFields = Readonly<Record<string, unknown>>

const NO_FIELDS: SimFields = Object.freeze(Object.create(null))

/** The object, or one without fields. */
export function fieldsOf(value: unknown): SimFields {
  return value !== null && typeof value === 'object' && !Array.isArray(value)
    ? (value as SimFields)
    : NO_FIELDS
}

/** The array, or an empty one. */
export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

/** The string, or an empty one. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

/** The number, or null. */
export function numberOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null
}

/** The two interfaces under test: how to send each a request, and how to read its replies and streams. Pure. */
import { chatViolations } from './chat-grammar.ts'
import { isTerminal, responsesViolations, textIn, type Violation } from './responses-grammar.ts'
import { type ShapeRow, shapeFaults } from './shape.ts'
import { DONE, fields, list, type SeenEvent, type SeenStream, string } from './sse.ts'

export type TestedDialectName = 'responses' | 'chat'

/** A request to a model, independent of the dialect. */
export interface Question {
  readonly model: string
  readonly prompt: string
  readonly stream: boolean
  readonly maxTokens: number
  /** The field of chat completions with the token limit; newer models refuse the older one. */
  readonly maxTokensField: 'max_tokens' | 'max_completion_tokens'
  /** Offers one function, and asks for a call of it. */
  readonly calls?: true
}

export interface UnderstoodCall {
  readonly id: string
  readonly name: string
  readonly arguments: string
}

/** The content of a reply that a client reads. */
export interface Understood {
  readonly text: string
  /** In the order of the reply. */
  readonly calls: readonly UnderstoodCall[]
  /** `ended`: a complete answer; `failed`: an error was reported; `open`: neither. */
  readonly end: 'ended' | 'failed' | 'open'
  /** Input, output and total tokens; null: no usage. */
  readonly usage: readonly [number, number, number] | null
}

export interface Dialect {
  readonly name: TestedDialectName
  /** Its common name. */
  readonly title: string
  readonly path: string
  body(question: Question): Readonly<Record<string, unknown>>
  wholeFaults(document: unknown): readonly string[]
  violations(events: readonly SeenEvent[]): readonly Violation[]
  whole(document: unknown): Understood
  stream(stream: SeenStream): Understood
}

export const FUNCTION_NAME = 'get_weather'
const FUNCTION = {
  name: FUNCTION_NAME,
  description: 'Get the current weather for a location',
  parameters: {
    type: 'object',
    properties: { location: { type: 'string' } },
    required: ['location'],
    additionalProperties: false,
  },
}

const RESPONSE_SHAPE: readonly ShapeRow[] = [
  ['id', 'text'],
  ['object', "'response'"],
  ['created_at', 'integer'],
  ['model', 'string'],
  ['status', "'completed'", "'incomplete'"],
  ['error', 'null'],
  ['output', 'filled'],
  ['output[].id', 'text'],
  ['output[].type', 'text'],
  ['usage', 'object'],
  ['usage.input_tokens', 'count'],
  ['usage.output_tokens', 'count'],
  ['usage.total_tokens', 'count'],
]
const MESSAGE_SHAPE: readonly ShapeRow[] = [
  ['role', "'assistant'"],
  ['status', "'completed'", "'incomplete'"],
  ['content', 'array'],
  ['content[].type', "'output_text'", "'refusal'"],
]
const CALL_SHAPE: readonly ShapeRow[] = [
  ['call_id', 'text'],
  ['name', 'text'],
  ['arguments', 'string'],
]
const OUTPUT_TEXT_SHAPE: readonly ShapeRow[] = [
  ['text', 'string'],
  ['annotations', 'array'],
]

export const responses: Dialect = {
  name: 'responses',
  title: 'Responses',
  path: '/responses',
  body: ({ model, prompt, stream, maxTokens, calls }) => ({
    model,
    input: prompt,
    max_output_tokens: maxTokens,
    stream,
    ...(calls === true
      ? {
          tools: [{ type: 'function', ...FUNCTION, strict: true }],
          tool_choice: { type: 'function', name: FUNCTION_NAME },
        }
      : {}),
  }),
  wholeFaults(document) {
    const items = list(fields(document)['output'])
    return [
      ...shapeFaults(document, RESPONSE_SHAPE),
      ...items.flatMap((item, index) => {
        const type = fields(item)['type']
        const rows = type === 'message' ? MESSAGE_SHAPE : type === 'function_call' ? CALL_SHAPE : []
        const texts = type === 'message' ? list(fields(item)['content']) : []
        return [
          ...shapeFaults(item, rows),
          ...texts.flatMap(part =>
            fields(part)['type'] === 'output_text' ? shapeFaults(part, OUTPUT_TEXT_SHAPE) : [],
          ),
        ].map(fault => `output[${index}].${fault}`)
      }),
    ]
  },
  violations: responsesViolations,
  whole(document) {
    const response = fields(document)
    const items = list(response['output']).map(fields)
    return {
      text: items
        .filter(({ type }) => type === 'message')
        .map(textIn)
        .join(''),
      calls: items.filter(({ type }) => type === 'function_call').map(callOf),
      end: response['object'] !== 'response' || response['status'] === 'failed' ? 'failed' : 'ended',
      usage: usageOf(response['usage'], 'input_tokens', 'output_tokens'),
    }
  },
  stream({ events }) {
    const documents = events.flatMap(({ json }) => (json === undefined ? [] : [json]))
    const last = documents.findLast(({ type }) => isTerminal(string(type)))
    const isFailed = documents.some(({ type }) => type === 'error' || type === 'response.failed')
    return {
      text: joinTexts(
        documents.filter(({ type }) => type === 'response.output_text.delta').map(({ delta }) => delta),
      ),
      calls: documents
        .filter(({ type }) => type === 'response.output_item.done')
        .map(event => fields(event['item']))
        .filter(({ type }) => type === 'function_call')
        .map(callOf),
      end: isFailed ? 'failed' : last === undefined ? 'open' : 'ended',
      usage: usageOf(fields(last?.['response'])['usage'], 'input_tokens', 'output_tokens'),
    }
  },
}

const COMPLETION_SHAPE: readonly ShapeRow[] = [
  ['id', 'text'],
  ['object', "'chat.completion'"],
  ['created', 'integer'],
  ['model', 'string'],
  ['choices', 'filled'],
  ['choices[].index', 'integer'],
  ['choices[].finish_reason', "'stop'", "'length'", "'tool_calls'", "'content_filter'"],
  ['choices[].message', 'object'],
  ['choices[].message.role', "'assistant'"],
  ['choices[].message.content', 'string', 'null'],
  ['choices[].message.tool_calls[].id', 'text'],
  ['choices[].message.tool_calls[].type', "'function'"],
  ['choices[].message.tool_calls[].function.name', 'text'],
  ['choices[].message.tool_calls[].function.arguments', 'string'],
  ['usage', 'object'],
  ['usage.prompt_tokens', 'count'],
  ['usage.completion_tokens', 'count'],
  ['usage.total_tokens', 'count'],
]

const chat: Dialect = {
  name: 'chat',
  title: 'chat completions',
  path: '/chat/completions',
  body: ({ model, prompt, stream, maxTokens, maxTokensField, calls }) => ({
    model,
    messages: [{ role: 'user', content: prompt }],
    [maxTokensField]: maxTokens,
    stream,
    ...(stream ? { stream_options: { include_usage: true } } : {}),
    ...(calls === true
      ? {
          tools: [{ type: 'function', function: FUNCTION }],
          tool_choice: { type: 'function', function: { name: FUNCTION_NAME } },
        }
      : {}),
  }),
  wholeFaults: document => shapeFaults(document, COMPLETION_SHAPE),
  violations: chatViolations,
  whole(document) {
    const completion = fields(document)
    const message = fields(fields(list(completion['choices'])[0])['message'])
    return {
      text: string(message['content']),
      calls: list(message['tool_calls'])
        .map(fields)
        .map(call => callOf({ ...fields(call['function']), call_id: call['id'] })),
      end: Array.isArray(completion['choices']) ? 'ended' : 'failed',
      usage: usageOf(completion['usage'], 'prompt_tokens', 'completion_tokens'),
    }
  },
  stream({ events }) {
    const documents = events.flatMap(({ json }) => (json === undefined ? [] : [json]))
    const choices = documents.flatMap(document => list(document['choices']).map(fields))
    const isFailed = documents.some(document => document['error'] !== undefined && document['error'] !== null)
    const isFinished = choices.some(choice => string(choice['finish_reason']) !== '')
    const isDone = events.some(({ data }) => data === DONE)
    return {
      text: joinTexts(choices.map(choice => fields(choice['delta'])['content'])),
      calls: callsOfChunks(
        choices.flatMap(choice => list(fields(choice['delta'])['tool_calls']).map(fields)),
      ),
      end: isFailed ? 'failed' : isFinished || isDone ? 'ended' : 'open',
      usage: usageOf(
        documents.findLast(({ usage }) => usage !== undefined && usage !== null)?.['usage'],
        'prompt_tokens',
        'completion_tokens',
      ),
    }
  },
}

export const DIALECTS: readonly Dialect[] = [responses, chat]

/** A call in the form of Responses. */
function callOf(item: Readonly<Record<string, unknown>>): UnderstoodCall {
  return { id: string(item['call_id']), name: string(item['name']), arguments: string(item['arguments']) }
}

/** The pieces of calls, joined by their index as OpenAI's client does it. */
function callsOfChunks(pieces: readonly Readonly<Record<string, unknown>>[]): readonly UnderstoodCall[] {
  const indexes = [...new Set(pieces.map(({ index }) => index))]
  return indexes.map(index => {
    const ownPieces = pieces.filter(piece => piece['index'] === index)
    const functions = ownPieces.map(piece => fields(piece['function']))
    return {
      id: ownPieces.map(({ id }) => string(id)).find(id => id !== '') ?? '',
      name: joinTexts(functions.map(({ name }) => name)),
      arguments: joinTexts(functions.map(piece => piece['arguments'])),
    }
  })
}

function usageOf(usage: unknown, input: string, output: string): readonly [number, number, number] | null {
  const { [input]: inputTokens, [output]: outputTokens, total_tokens: total } = fields(usage)
  return typeof inputTokens === 'number' && typeof outputTokens === 'number' && typeof total === 'number'
    ? [inputTokens, outputTokens, total]
    : null
}

function joinTexts(texts: readonly unknown[]): string {
  return texts.map(string).join('')
}

/**
 * Clients whose recorded traffic is replayed: their requests, and what they read from the answers. The requests come
 * from real programs; texts are shortened, and reasoning is omitted, because only the provider that wrote it can read
 * it.
 */
import { readFileSync } from 'node:fs'
import { fields, list, type SeenStream, string } from '../sse.ts'
import type { ProvedClientName } from './names.ts'

type Fields = Readonly<Record<string, unknown>>

interface RecordedRequest {
  readonly method: string
  /** From the root of the gateway; `MODEL` stands for the model. */
  readonly path: string
  readonly headers: Fields
  /** Null: no body. */
  readonly body: Fields | null
}

interface ClientCall {
  readonly id: string
  /** With its namespace before a `/`, if it has one. */
  readonly name: string
  readonly arguments: string
}

/** One reply as the client reads it. */
export interface ClientReply {
  /** Missing fields that the client needs, or fields that break it. */
  readonly faults: readonly string[]
  readonly calls: readonly ClientCall[]
  /** Input and output tokens; null: none. */
  readonly usage: readonly [number, number] | null
}

export interface ProvedClient {
  readonly name: ProvedClientName
  /** The name that its makers use, with the recorded version. */
  readonly title: string
  readonly requests: readonly RecordedRequest[]
  readonly keyHeader: 'authorization' | 'x-goog-api-key'
  /** The same body with this model and token limit. */
  bodyFor(body: Fields, model: string, maxTokens: number): Fields
  /** Tools that the request declares, with the names of `ClientCall`. */
  declared(body: Fields): readonly string[]
  read(stream: SeenStream): ClientReply
  /** Null: the client can show its user the error. */
  errorFault(document: unknown): string | null
}

type Grammar = Omit<ProvedClient, 'name' | 'title' | 'requests'>

const MODEL = /\bMODEL\b/g

/** @throws Error of the file system, if the package lacks its recordings */
export function provedClient(name: ProvedClientName): ProvedClient {
  const file = new URL(`recordings/${name}.json`, import.meta.url)
  const { client, version, requests } = JSON.parse(readFileSync(file, 'utf8')) as {
    readonly client: string
    readonly version: string
    readonly requests: readonly (RecordedRequest & { readonly dropped?: readonly string[] })[]
  }
  let currentBody: Fields = {}
  return {
    name,
    title: `${client} ${version}`,
    requests: requests.map(({ dropped = [], body, ...otherFields }) => {
      if (body === null) return { ...otherFields, body }
      currentBody = Object.fromEntries(
        Object.entries({ ...currentBody, ...body }).filter(([field]) => !dropped.includes(field)),
      )
      return { ...otherFields, body: currentBody }
    }),
    ...GRAMMARS[name],
  }
}

/** The path or header with the model filled in. */
export function named(text: string, model: string): string {
  return text.replaceAll(MODEL, () => model)
}

const count = (value: unknown): number | null =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 ? value : null

function usageOf(input: unknown, output: unknown): ClientReply['usage'] {
  const counts = [count(input), count(output)] as const
  return counts[0] === null || counts[1] === null ? null : [counts[0], counts[1]]
}

const openaiError = (document: unknown): string | null =>
  string(fields(fields(document)['error'])['message']) === '' ? 'the body has no error.message' : null

function messagesReply(stream: SeenStream): ClientReply {
  const faults: string[] = []
  const open = new Map<unknown, { readonly block: Fields; text: string }>()
  const calls: ClientCall[] = []
  let input: unknown
  let output: unknown
  let isStopped = false
  let hasReason = false
  for (const [position, { name, json }] of stream.events.entries()) {
    const event = fields(json)
    const type = string(event['type'])
    if (name !== type)
      faults.push(`event: ${name ?? 'none'} carries type ${type || 'none'}: its SDK reads the name`)
    if (position === 0 && type !== 'message_start')
      faults.push(`the first event is ${type}, not message_start`)
    const index = event['index']
    const block = open.get(index)
    if (type === 'error')
      faults.push(`the stream reports an error: ${string(fields(event['error'])['message'])}`)
    else if (type === 'message_start') {
      const message = fields(event['message'])
      if (string(message['id']) === '') faults.push('message_start has no message.id')
      if (!Array.isArray(message['content'])) faults.push('message_start has no message.content')
      input = fields(message['usage'])['input_tokens']
    } else if (type === 'content_block_start') {
      open.set(index, { block: fields(event['content_block']), text: '' })
    } else if (type === 'content_block_delta') {
      const delta = fields(event['delta'])
      if (block === undefined) faults.push(`a delta for the block ${String(index)}, which is not open`)
      else if (delta['type'] === 'input_json_delta') block.text += string(delta['partial_json'])
    } else if (type === 'content_block_stop') {
      if (block?.block['type'] === 'tool_use') {
        const { id, name: tool } = block.block
        calls.push({ id: string(id), name: string(tool), arguments: block.text || '{}' })
      }
      open.delete(index)
    } else if (type === 'message_delta') {
      hasReason ||= string(fields(event['delta'])['stop_reason']) !== ''
      const usage = fields(event['usage'])
      output = usage['output_tokens'] ?? output
      input = usage['input_tokens'] ?? input
    } else if (type === 'message_stop') isStopped = true
  }
  if (open.size > 0) faults.push('a content block has no content_block_stop')
  if (!hasReason) faults.push('no message_delta has a stop_reason')
  if (!isStopped) faults.push('there is no message_stop')
  return { faults, calls, usage: usageOf(input, output) }
}

function responsesReply(stream: SeenStream): ClientReply {
  const events = stream.events.map(({ json }) => fields(json))
  const ofType = (...types: readonly string[]): readonly Fields[] =>
    events.filter(({ type }) => types.includes(string(type)))
  const faults: string[] = []
  const [failure] = ofType('response.failed', 'error')
  const [end] = ofType('response.completed', 'response.incomplete')
  if (failure !== undefined) faults.push('the stream reports a failure')
  if (ofType('response.created').length === 0) faults.push('there is no response.created')
  if (end === undefined) faults.push('there is no response.completed: the client treats the stream as broken')
  const response = fields(end?.['response'])
  if (end !== undefined && string(response['id']) === '') faults.push('response.completed has no response.id')
  const items = ofType('response.output_item.done').map(({ item }) => fields(item))
  if (items.length === 0)
    faults.push('there is no response.output_item.done: the client reads items from there alone')
  const usage = fields(response['usage'])
  return {
    faults,
    calls: items
      .filter(({ type }) => type === 'function_call' || type === 'custom_tool_call')
      .map(({ call_id: id, namespace, name, arguments: text, type }) => ({
        id: string(id),
        name: typeof namespace === 'string' ? `${namespace}/${string(name)}` : string(name),
        arguments: type === 'custom_tool_call' ? '{}' : string(text),
      })),
    usage: usageOf(usage['input_tokens'], usage['output_tokens']),
  }
}

function geminiReply(stream: SeenStream): ClientReply {
  const faults: string[] = []
  const calls: ClientCall[] = []
  let isFinished = false
  let usage: Fields = {}
  for (const { name, json, data } of stream.events) {
    if (name !== null) faults.push(`a chunk has event: ${name}`)
    if (json === undefined)
      faults.push(`a chunk is not a JSON object, which crashes its SDK: ${data.slice(0, 40)}`)
    const chunk = fields(json)
    if (chunk['error'] !== undefined) faults.push('the stream reports an error')
    const candidate = fields(list(chunk['candidates'])[0])
    isFinished ||= string(candidate['finishReason']) !== ''
    usage = { ...usage, ...fields(chunk['usageMetadata']) }
    for (const part of list(fields(candidate['content'])['parts']).map(fields)) {
      const call = fields(part['functionCall'])
      if (part['functionCall'] === undefined) continue
      const id = string(call['id']) || `call ${calls.length}`
      calls.push({ id, name: string(call['name']), arguments: JSON.stringify(call['args'] ?? {}) })
    }
  }
  if (!isFinished) faults.push('no chunk has a finishReason: the client sends the request again')
  return { faults, calls, usage: usageOf(usage['promptTokenCount'], usage['candidatesTokenCount'] ?? 0) }
}

function chatReply(stream: SeenStream): ClientReply {
  const faults: string[] = []
  const calls = new Map<unknown, { id: string; name: string; arguments: string }>()
  let isFinished = false
  let usage: Fields = {}
  for (const { json } of stream.events) {
    const chunk = fields(json)
    if (chunk['error'] !== undefined) faults.push('the stream reports an error')
    const choice = fields(list(chunk['choices'])[0])
    isFinished ||= string(choice['finish_reason']) !== ''
    usage = { ...usage, ...fields(chunk['usage']) }
    for (const call of list(fields(choice['delta'])['tool_calls']).map(fields)) {
      const { index } = call
      const inner = fields(call['function'])
      const earlier = calls.get(index)
      if (earlier === undefined) {
        if (count(index) === null) faults.push('a tool call has no index')
        calls.set(index, {
          id: string(call['id']),
          name: string(inner['name']),
          arguments: string(inner['arguments']),
        })
      } else earlier.arguments += string(inner['arguments'])
    }
  }
  if (!isFinished) faults.push('no chunk has a finish_reason')
  return {
    faults,
    calls: [...calls.values()].map(call => ({ ...call, arguments: call.arguments || '{}' })),
    usage: usageOf(usage['prompt_tokens'], usage['completion_tokens']),
  }
}

const toolNames = (tools: unknown): readonly string[] => list(tools).map(tool => string(fields(tool)['name']))

const GRAMMARS: Readonly<Record<ProvedClientName, Grammar>> = {
  'claude-code': {
    keyHeader: 'authorization',
    bodyFor: (body, model, maxTokens) => ({ ...body, model, max_tokens: maxTokens }),
    declared: body => toolNames(body['tools']),
    read: messagesReply,
    errorFault(document) {
      const { type, error } = fields(document)
      if (type !== 'error') return 'the body has no type "error"'
      return string(fields(error)['type']) === '' ? 'the body has no error.type' : openaiError(document)
    },
  },
  codex: {
    keyHeader: 'authorization',
    bodyFor: (body, model, maxTokens) => ({ ...body, model, max_output_tokens: maxTokens }),
    declared: body =>
      list(body['tools'])
        .map(fields)
        .flatMap(tool =>
          tool['type'] === 'namespace'
            ? toolNames(tool['tools']).map(name => `${string(tool['name'])}/${name}`)
            : toolNames([tool]),
        ),
    read: responsesReply,
    errorFault: openaiError,
  },
  'gemini-cli': {
    keyHeader: 'x-goog-api-key',
    bodyFor: (body, _, maxTokens) => ({
      ...body,
      generationConfig: { ...fields(body['generationConfig']), maxOutputTokens: maxTokens },
    }),
    declared: body => list(body['tools']).flatMap(tool => toolNames(fields(tool)['functionDeclarations'])),
    read: geminiReply,
    errorFault(document) {
      const error = fields(fields(document)['error'])
      if (count(error['code']) === null) return 'the body has no error.code that is a number'
      return string(error['status']) === '' ? 'the body has no error.status' : openaiError(document)
    },
  },
  opencode: {
    keyHeader: 'authorization',
    bodyFor: (body, model, maxTokens) => ({ ...body, model, max_tokens: maxTokens }),
    declared: body => list(body['tools']).flatMap(tool => toolNames([fields(tool)['function']])),
    read: chatReply,
    errorFault: openaiError,
  },
}

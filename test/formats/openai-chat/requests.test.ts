/** Recorded Chat Completions requests, brought into the Responses vocabulary and back. */
import t from 'tap'
import { openaiChat } from '../../../src/formats/openai-chat.ts'
import type { Endpoint, Quirk } from '../../../src/protocol/provider.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { type Differences, endpointOf } from '../../support/endpoint.ts'
import { recordings, withoutRecordings } from '../../support/recordings.ts'

type Body = Readonly<Record<string, unknown>>

function endpoint(quirks: readonly Quirk[] = [], more: Differences = {}): Endpoint {
  return endpointOf('openai-chat', { ...more, quirks })
}

interface ChatMessage {
  role: 'system' | 'developer' | 'user' | 'assistant' | 'tool'
  content?: string | ChatPart[] | null
  tool_calls?: { id: string; index?: number; function: { name: string; arguments: string } }[] | null
  tool_call_id?: string
  [field: string]: unknown
}
interface ChatPart {
  type: string
  text?: string
  image_url?: { url: string }
  [field: string]: unknown
}
interface ChatTool {
  type: string
  function?: { name: string; description?: string; parameters?: object; strict?: boolean }
}

/** Parts that the Responses vocabulary has; null for vendor forms. */
function inputPart(part: ChatPart): Body | null {
  if (part.type === 'text') return { ...part, type: 'input_text' }
  if (part.type === 'image_url' && part.image_url !== undefined)
    return { type: 'input_image', detail: 'auto', image_url: part.image_url.url }
  if (part.type === 'file') return { type: 'input_file', ...(part['file'] as object) }
  if (part.type === 'video_url')
    return { type: 'input_video', video_url: (part['video_url'] as { url: string }).url }
  return null
}

/** A recorded chat request in the Responses vocabulary; null where that has no word for something in it. */
function toResponses(chat: Body): Body | null {
  const {
    messages,
    tools,
    tool_choice,
    response_format,
    max_tokens,
    max_completion_tokens,
    reasoning_effort,
    logprobs,
    stream,
    stream_options,
    ...rest
  } = chat
  if (rest['functions'] !== undefined || (rest['n'] as number) > 1) return null
  const input: Body[] = []
  for (const message of messages as ChatMessage[]) {
    const { role, content, tool_calls, tool_call_id, reasoning_content, ...more } = message
    if (Object.values(more).some(value => value !== null)) return null
    if (role === 'tool') {
      input.push({ type: 'function_call_output', call_id: tool_call_id, output: content })
      continue
    }
    if (typeof reasoning_content === 'string' && reasoning_content !== '') {
      input.push({ type: 'reasoning', content: [{ type: 'reasoning_text', text: reasoning_content }] })
    }
    const parts = Array.isArray(content) ? content.map(inputPart) : content
    if (Array.isArray(parts) && parts.includes(null)) return null
    if (content !== undefined && content !== null && !(role === 'assistant' && content === ''))
      input.push({ role, content: parts })
    for (const call of tool_calls ?? []) {
      input.push({
        type: 'function_call',
        call_id: call.id,
        name: call.function.name,
        arguments: call.function.arguments,
      })
    }
  }
  const format = response_format as { type: string; json_schema?: object } | undefined
  const choice = tool_choice as string | { function: { name: string } } | undefined
  return {
    ...rest,
    input,
    ...(tools === undefined
      ? {}
      : { tools: (tools as ChatTool[]).map(tool => ({ type: 'function', ...tool.function })) }),
    ...(choice === undefined
      ? {}
      : {
          tool_choice:
            typeof choice === 'string'
              ? choice === 'any'
                ? 'required'
                : choice
              : { type: 'function', ...choice.function },
        }),
    ...(format == null ? {} : { text: { format: { type: format.type, ...format.json_schema } } }),
    ...((max_tokens ?? max_completion_tokens) == null
      ? {}
      : { max_output_tokens: max_tokens ?? max_completion_tokens }),
    ...(reasoning_effort === undefined ? {} : { reasoning: { effort: reasoning_effort } }),
    ...(logprobs == null ? {} : { top_logprobs: chat['top_logprobs'] ?? 0 }),
  }
}

/** The recorded request without the freedoms of spelling: nulls, single text parts, indexes, empty words. */
function plain(chat: Body): Body {
  const dropped = new Set(['n', 'provider', 'models', 'stream', 'metadata', 'user'])
  const entries = Object.entries(chat).filter(([name, value]) => value !== null && !dropped.has(name))
  const messages = (chat['messages'] as ChatMessage[]).map(message => {
    const [only] = Array.isArray(message.content) ? message.content : []
    const single =
      Array.isArray(message.content) &&
      message.content.length === 1 &&
      only?.type === 'text' &&
      Object.keys(only).length === 2
    const content = single ? only?.text : message.content
    const calls = message.tool_calls?.map(call => ({
      id: call.id,
      type: 'function',
      function: call.function,
    }))
    return {
      role: message.role,
      content: calls === undefined || (content !== '' && content !== undefined) ? content : null,
      ...(calls === undefined ? {} : { tool_calls: calls }),
      ...(message['reasoning_content'] === undefined || message['reasoning_content'] === ''
        ? {}
        : { reasoning_content: message['reasoning_content'] }),
      ...(message.tool_call_id === undefined ? {} : { tool_call_id: message.tool_call_id }),
    }
  })
  const tools = (chat['tools'] as ChatTool[] | undefined)?.map(tool => ({
    type: 'function',
    function: {
      ...tool.function,
      parameters: tool.function?.parameters ?? { type: 'object', properties: {} },
    },
  }))
  return {
    ...Object.fromEntries(entries),
    messages,
    ...(tools === undefined ? {} : { tools }),
    ...(chat['stream'] === true ? { stream: true } : {}),
  }
}

/** What clients in typed languages send for what is unset: nulls, and an empty list of tools. */
function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .filter(
        ([name, field]) =>
          field !== null && !(name === 'tools' && Array.isArray(field) && field.length === 0),
      )
      .map(([name, field]) => [name, withoutNulls(field)]),
  )
}

/** Null when a field has a value of the vendor alone, e.g. a service tier. */
function checked(responses: Body): ResponsesRequest | null {
  try {
    return parseResponsesRequest(responses)
  } catch {
    return null
  }
}

t.test(
  'recorded requests survive the way through the Responses vocabulary',
  { skip: withoutRecordings },
  async t => {
    let same = 0
    let without = 0
    for (const recording of recordings('openai-chat')) {
      const recorded = recording.request()
      if (recorded === null) continue
      const chat = withoutNulls(recorded) as Body
      const responses = toResponses(chat)
      const request = responses === null ? null : checked(responses)
      if (request === null) {
        without++
        continue
      }
      const quirks: Quirk[] = []
      if (JSON.stringify(chat).includes('"reasoning_content"')) quirks.push('replay-reasoning')
      if ('max_tokens' in chat) quirks.push('max-tokens')
      if (!('stream_options' in chat)) quirks.push('no-stream-usage')
      if (chat['tool_choice'] === 'any') quirks.push('any-tool-choice')
      if ('reasoning' in chat) quirks.push('reasoning-object')
      const got = openaiChat.encode(
        { request, stream: chat['stream'] === true, endUser: null, isOwnApi: true },
        endpoint(quirks, { upstreamModel: String(chat['model']) }),
      )
      if (t.same(plain(got.body), plain(chat), recording.name)) same++
    }
    t.comment(
      `${same} recorded requests come back equal; ${without} use a form that the Responses vocabulary lacks`,
    )
    t.ok(same > 90, 'most of them')
  },
)

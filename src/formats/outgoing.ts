/**
 * The parts of a request that may go out to a provider: its fields, and items of earlier turns. Pure. Hot path.
 * `outgoingRequest` removes the gateway's own fields, and unknown fields unless the provider speaks the caller's
 * dialect.
 */

import type { GatewayError } from '../errors.ts'
import { DONE_BY_PROVIDER } from '../protocol/hosted-items.ts'
import type { InputItem } from '../protocol/items.ts'
import type { DialectName, ResponsesRequest } from '../protocol/request.ts'
import { functionName, hostedTools } from '../protocol/tools.ts'
import { inexpressible } from './failure.ts'
import type { Format } from './format.ts'
import { filled, isRecord, type Json, parseJson } from './json.ts'

// Fields

/**
 * - `encoded`: encoders may read it;
 * - `gateway`: it never goes out;
 * - `chat`: a sampling field of the chat dialect. No Responses provider documents it, so such a provider gets it only
 *   from a caller who speaks the Responses dialect and sent it anyway.
 */
type Fate = 'encoded' | 'gateway' | 'chat'

/** The compiler asks for a row for each field of a request. */
const FATES: Readonly<Record<keyof ResponsesRequest, Fate>> = {
  model: 'encoded',
  models: 'gateway',
  input: 'encoded',
  instructions: 'encoded',
  max_output_tokens: 'encoded',
  // It goes out where the provider runs tools itself; see `goesOut`.
  max_tool_calls: 'encoded',
  temperature: 'encoded',
  top_p: 'encoded',
  top_k: 'encoded',
  top_logprobs: 'encoded',
  frequency_penalty: 'encoded',
  presence_penalty: 'encoded',
  parallel_tool_calls: 'encoded',
  background: 'gateway',
  include: 'encoded',
  metadata: 'encoded',
  modalities: 'encoded',
  plugins: 'gateway',
  previous_response_id: 'gateway',
  store: 'gateway',
  stream: 'encoded',
  service_tier: 'encoded',
  session_id: 'gateway',
  // Encoders get a hash of the end user apart from the request.
  user: 'gateway',
  safety_identifier: 'gateway',
  prompt_cache_key: 'encoded',
  prompt_cache_options: 'encoded',
  cache_control: 'encoded',
  debug: 'gateway',
  image_config: 'encoded',
  provider: 'gateway',
  reasoning: 'encoded',
  route: 'gateway',
  prompt: 'encoded',
  stop_server_tools_when: 'gateway',
  text: 'encoded',
  tool_choice: 'encoded',
  tools: 'encoded',
  trace: 'gateway',
  truncation: 'encoded',
  preset: 'gateway',
  stop: 'chat',
  seed: 'chat',
  logit_bias: 'chat',
  min_p: 'chat',
  top_a: 'chat',
  repetition_penalty: 'chat',
  prediction: 'chat',
}

/** Fields that clients of gateways send although no request schema declares them. */
const UNDECLARED = ['transforms', 'usage', 'conversation'] as const

const FATE_OF: ReadonlyMap<string, Fate> = new Map<string, Fate>([
  ...Object.entries(FATES),
  ...UNDECLARED.map(name => [name, 'gateway'] as const),
])

/** True for a field of the validated request. */
export function isDeclared(name: string): boolean {
  return Object.hasOwn(FATES, name)
}

/** True for a field that neither the request nor the gateway knows. */
export function isUnknownField(name: string): boolean {
  return !FATE_OF.has(name)
}

/**
 * The request for an encoder: a copy without fields that must not go out, or the request itself if it has none.
 * @throws GatewayError `unprocessable` for a tool that only the caller's own API knows, at a provider of another one
 */
export function outgoingRequest(
  given: ResponsesRequest,
  format: Pick<Format, 'dialect'>,
  callerDialect: DialectName,
): ResponsesRequest {
  // Clients of other dialects have no such words either, whatever their unknown fields are called.
  const isForeign = (callerDialect === 'messages') !== (format.dialect === 'messages')
  const request = isForeign ? withoutNative(given) : given
  const fields = request as ResponsesRequest & Readonly<Record<string, unknown>>
  for (const name in fields) {
    // Encoders skip nulls.
    if (fields[name] == null || goesOut(name, request, format.dialect, callerDialect)) continue
    const kept = Object.entries(request).filter(([each]) =>
      goesOut(each, request, format.dialect, callerDialect),
    )
    return Object.fromEntries(kept) as unknown as ResponsesRequest
  }
  return request
}

function goesOut(
  name: string,
  request: ResponsesRequest,
  spoken: DialectName | null,
  callerDialect: DialectName,
): boolean {
  switch (FATE_OF.get(name)) {
    case 'encoded':
      // Documented to be ignored beside conditions of the gateway's own tool loop.
      return name !== 'max_tool_calls' || request.stop_server_tools_when == null
    case 'gateway':
      return false
    case 'chat':
      return spoken !== 'responses' || spoken === callerDialect
    case undefined:
      return spoken === callerDialect
  }
}

// Fields that only the caller's own API knows (protocol/native.ts). Formats of that API read them; all others pass on
// fields of parts, items and tools that they do not know, so it is removed before they see it.

type Fields = Readonly<Record<string, unknown>>

function withoutNative(request: ResponsesRequest): ResponsesRequest {
  const { input, tools, tool_choice: choice, reasoning } = request
  const cleaned = {
    input: typeof input === 'string' ? input : mapped(input, cleanItem),
    tools: tools == null ? tools : mapped(tools, cleanTool),
    tool_choice: typeof choice === 'object' ? cleanPart(choice as Fields) : choice,
    reasoning: reasoning == null ? reasoning : without(reasoning, 'thinking'),
  }
  const isSame = (Object.keys(cleaned) as (keyof typeof cleaned)[]).every(
    name => cleaned[name] === request[name],
  )
  return isSame ? request : ({ ...request, ...cleaned } as ResponsesRequest)
}

/** The list itself where nothing changes. */
function mapped(
  list: readonly unknown[],
  clean: (value: Fields, index: number) => Fields,
): readonly unknown[] {
  let isSame = true
  const cleaned = list.map((value, index) => {
    const result = isRecord(value) ? clean(value, index) : value
    if (result !== value) isSame = false
    return result
  })
  return isSame ? list : cleaned
}

function cleanItem(item: Fields): Fields {
  const cleaned = cleanPart(item)
  for (const name of ['content', 'output']) {
    const parts = cleaned[name]
    if (!Array.isArray(parts)) continue
    const clean = mapped(parts, cleanPart)
    if (clean !== parts) return { ...cleaned, [name]: clean }
  }
  return cleaned
}

function cleanPart(part: Fields): Fields {
  return without(part, 'native')
}

/** A tool without a form that other providers know says its own type. */
function cleanTool(tool: Fields, index: number): Fields {
  const { native } = tool
  if (isRecord(native) && typeof native['type'] === 'string' && !KNOWN_TOOLS.has(tool['type']))
    throw inexpressible(`tools[${index}]`, 'this provider has no tool of this type')
  return cleanPart(tool)
}

const KNOWN_TOOLS: ReadonlySet<unknown> = new Set(['function', ...Object.keys(hostedTools)])

function without(fields: Fields, name: string): Fields {
  if (!Object.hasOwn(fields, name)) return fields
  const { [name]: _, ...rest } = fields
  return rest
}

// Items of earlier turns: an output item that a client sends back, where the format has no form of its own for it. One
// rule holds for all formats, so that a conversation can go on at another provider:
// - an encoder omits an item that a provider or the gateway ran by itself (`isSpent`);
// - the time that the gateway reported becomes a function call and its output, because later turns may ask for it;
// - an encoder refuses any other item with its path. The client or its tools said or did something there, or it is
//   sealed history, and omitting it would change the conversation.
// Reasoning is neither: each encoder sends back reasoning that its provider can verify and omits the rest.

const SPENT: ReadonlySet<string> = new Set([...DONE_BY_PROVIDER, 'tool_search_call', 'tool_search_output'])

/** Both prefixes of tools and items that run on the gateway. */
const OURS = /^(gateway|openrouter):/

/** Prefixes of ids that the gateway or Anthropic gives to hosted items. */
const IDS_OF_OTHERS = /^(st|srvtoolu|mcptoolu)_/

/** True for a type of tool or item that runs on the gateway; no provider knows it. */
export function isOurs(type: string): boolean {
  return OURS.test(type)
}

/**
 * True if an encoder may omit an item of this type where its format has no form for it: a provider or the gateway ran
 * the tool, and the model's own words after it hold the result.
 */
export function isSpent(type: string): boolean {
  return SPENT.has(type) || isOurs(type)
}

/**
 * True for a spent item that has the form of the Responses format but comes from another provider. A Responses provider
 * would look up its id, or miss fields that only its own items have. Gemini signs its items.
 */
export function isSpentElsewhere(type: string, id: unknown, signature: unknown): boolean {
  return (
    SPENT.has(type) && (typeof signature === 'string' || (typeof id === 'string' && IDS_OF_OTHERS.test(id)))
  )
}

type Call = Extract<InputItem, { type: 'function_call' }>
type Output = Extract<InputItem, { type: 'function_call_output' }>

/** The fields of a replayed item that this file reads. */
interface Replayed {
  readonly type?: unknown
  readonly id?: unknown
  readonly datetime?: unknown
  readonly timezone?: unknown
  readonly status?: unknown
}

/**
 * A replayed item as a function call and its output, which every format can express: of `datetime`, and of an MCP tool
 * that the gateway has called. Empty for questions of the gateway and their answers: the call, or its refusal, says the
 * same. Null for others.
 */
export function replayAsCall(item: Replayed, index: number): readonly (Call | Output)[] | null {
  if (item.type === 'mcp_call') return replayMcpCall(item as Fields)
  if (item.type === 'mcp_approval_request') return isIdOfOurs(item.id) ? [] : null
  if (item.type === 'mcp_approval_response')
    return isIdOfOurs((item as Fields)['approval_request_id']) ? [] : null
  if (item.type !== 'gateway:datetime' && item.type !== 'openrouter:datetime') return null
  const { datetime, timezone, status } = item
  if (status === 'incomplete') return null
  const call_id = callIdOf(item, index)
  return [
    { type: 'function_call', call_id, name: 'datetime', arguments: JSON.stringify({ timezone }) },
    { type: 'function_call_output', call_id, output: JSON.stringify({ datetime, timezone }) },
  ]
}

/** True for the id of an item of a server tool. */
function isIdOfOurs(id: unknown): id is string {
  return typeof id === 'string' && id.startsWith('st_')
}

function replayMcpCall({ id, name, arguments: said, output, error }: Fields): readonly [Call, Output] | null {
  // Those of providers have other ids, and forms of their own where the format has one.
  if (!isIdOfOurs(id)) return null
  const text = typeof said === 'string' && isRecord(parseJson(said)) ? said : '{}'
  const result = filled(output) ?? (error == null ? '' : JSON.stringify({ error }))
  return [
    { type: 'function_call', call_id: id, name: functionName(String(name)), arguments: text },
    { type: 'function_call_output', call_id: id, output: result },
  ]
}

/** The call id for a replayed item of a gateway tool. Any id works if call and output share it. */
export function callIdOf(item: { readonly call_id?: unknown; readonly id?: unknown }, index: number): string {
  return filled(item.call_id) ?? filled(item.id) ?? `call_${index}`
}

/** The error for an item that an encoder must not omit. */
export function refuseItem(type: string, path: string): GatewayError {
  return inexpressible(`${path}.type`, `an item ${type} cannot be sent to this provider`)
}

/**
 * Arguments of a replayed call, for APIs that take them as an object.
 * @throws GatewayError `unprocessable` for another text
 */
export function callArguments(text: string, path: string): Json {
  if (text.trim() === '') return {}
  const value = parseJson(text)
  if (value === undefined) throw inexpressible(path, 'must be JSON')
  if (!isRecord(value)) throw inexpressible(path, 'must be a JSON object')
  return value
}

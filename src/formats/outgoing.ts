/**
 * The parts of a request that may be sent to a provider: its fields, and items of earlier turns. Pure. Hot path.
 * `outgoingRequest` removes the gateway's own fields, and unknown and native fields unless the provider speaks the
 * caller's dialect.
 */
import { isRecord } from '../base/json.ts'
import { DIALECT_ABILITIES } from '../protocol/dialect-abilities.ts'
import type { FormatName } from '../protocol/provider.ts'
import type { DialectName, ResponsesRequest } from '../protocol/request.ts'
import { hostedTools } from '../protocol/tools.ts'
import { knownChoice, knownFunction } from './anthropic-messages/known-tools.ts'
import { inexpressible } from './failure.ts'
import type { Format } from './format.ts'
import { type Encode, preparedPrompt } from './preconditions/prepare.ts'
import { MIN_OUTPUT_MAX } from './preconditions/table.ts'

// Fields

/**
 * - `encoded`: encoders may read it;
 * - `gateway`: it never goes out;
 * - `chat`: a sampling field of the chat dialect. No Responses provider documents it, so such a provider gets it only
 *   from a caller who speaks the Responses dialect and sent it anyway.
 */
type FieldUse = 'encoded' | 'gateway' | 'chat'

/** The type requires a row for each field of a request. */
const FIELD_USES: Readonly<Record<keyof ResponsesRequest, FieldUse>> = {
  model: 'encoded',
  models: 'gateway',
  input: 'encoded',
  instructions: 'encoded',
  max_output_tokens: 'encoded',
  // It goes out where the provider runs tools itself; see `isSent`.
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
  generate: 'gateway',
  service_tier: 'encoded',
  session_id: 'gateway',
  // Encoders get a hash of the end user separately from the request.
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
const UNDECLARED_FIELDS = ['transforms', 'usage', 'conversation'] as const

const USE_BY_NAME: ReadonlyMap<string, FieldUse> = new Map<string, FieldUse>([
  ...Object.entries(FIELD_USES),
  ...UNDECLARED_FIELDS.map(name => [name, 'gateway'] as const),
])

/** True for a field that neither the request nor the gateway knows. */
export function isUnknownField(name: string): boolean {
  return !USE_BY_NAME.has(name)
}

/** Fields of a caller that no request declares, without those that the encoder itself writes. */
export function unknownFields(request: object, ownNames: ReadonlySet<string>): Record<string, unknown> {
  const fields = request as Fields
  let entries: [string, unknown][] | null = null
  for (const name in fields) {
    if (fields[name] == null || Object.hasOwn(FIELD_USES, name) || ownNames.has(name)) continue
    entries ??= []
    entries.push([name, fields[name]])
  }
  // fromEntries defines properties: a foreign key cannot reach a prototype.
  return entries === null ? {} : Object.fromEntries(entries)
}

/**
 * The request for an encoder: a copy without fields that must not go out, or the request itself if it has none.
 * @throws GatewayError `unprocessable` for a tool that only the caller's own API knows, at a provider of another one
 */
export function outgoingRequest(
  callerRequest: ResponsesRequest,
  format: Pick<Format, 'dialect'>,
  callerDialect: DialectName,
): ResponsesRequest {
  // Clients of other dialects have no native fields: one with such a name is unknown, so it is removed too.
  const isForeign =
    format.dialect !== callerDialect &&
    (DIALECT_ABILITIES[callerDialect].nativeFields ||
      (format.dialect !== null && DIALECT_ABILITIES[format.dialect].nativeFields))
  const request = isForeign ? withoutNative(callerRequest) : callerRequest
  const fields = request as ResponsesRequest & Readonly<Record<string, unknown>>
  for (const name in fields) {
    // Encoders skip nulls.
    if (fields[name] == null || (USE_BY_NAME.get(name) === 'encoded' && name !== 'max_tool_calls')) continue
    if (isSent(name, request, format.dialect, callerDialect)) continue
    const entries = Object.entries(request).filter(([field]) =>
      isSent(field, request, format.dialect, callerDialect),
    )
    return Object.fromEntries(entries) as unknown as ResponsesRequest
  }
  return request
}

/** Names of a caller's fields that are meant for a provider but are not sent. */
export function leftOutFields(request: ResponsesRequest, outgoing: ResponsesRequest): readonly string[] {
  if (request === outgoing) return NO_NAMES
  const [beforeFields, afterFields] = [request, outgoing] as unknown as [Fields, Fields]
  return Object.keys(beforeFields).filter(
    name => beforeFields[name] != null && afterFields[name] == null && USE_BY_NAME.get(name) !== 'gateway',
  )
}

const NO_NAMES: readonly string[] = []

function isSent(
  name: string,
  request: ResponsesRequest,
  formatDialect: DialectName | null,
  callerDialect: DialectName,
): boolean {
  switch (USE_BY_NAME.get(name)) {
    case 'encoded':
      // The documentation says that it is ignored if conditions for the gateway's own tool loop are set.
      return name !== 'max_tool_calls' || request.stop_server_tools_when == null
    case 'gateway':
      return false
    case 'chat':
      return (
        formatDialect === null ||
        formatDialect === callerDialect ||
        DIALECT_ABILITIES[formatDialect].takesChatFields
      )
    case undefined:
      return formatDialect === callerDialect
  }
}

// Fields that only the caller's own API knows (protocol/json/native.ts). Formats of that API read them; all others
// pass on fields of parts, items and tools that they do not know, so these fields are removed first.

type Fields = Readonly<Record<string, unknown>>

function withoutNative(request: ResponsesRequest): ResponsesRequest {
  const { input, tools, tool_choice: choice, reasoning } = request
  const cleanFields = {
    input: typeof input === 'string' ? input : mapList(input, cleanItem),
    tools: tools == null ? tools : mapList(tools, cleanTool),
    tool_choice: typeof choice === 'object' ? cleanChoice(choice as Fields, tools ?? []) : choice,
    reasoning: reasoning == null ? reasoning : without(reasoning, 'thinking'),
  }
  const isSame = (Object.keys(cleanFields) as (keyof typeof cleanFields)[]).every(
    name => cleanFields[name] === request[name],
  )
  return isSame ? request : ({ ...request, ...cleanFields } as ResponsesRequest)
}

/** The list itself where nothing changes. */
function mapList(
  list: readonly unknown[],
  cleanValue: (value: Fields, index: number) => Fields,
): readonly unknown[] {
  let isSame = true
  const copy = list.map((value, index) => {
    const result = isRecord(value) ? cleanValue(value, index) : value
    if (result !== value) isSame = false
    return result
  })
  return isSame ? list : copy
}

function cleanItem(item: Fields): Fields {
  const copy = cleanPart(item)
  for (const name of ['content', 'output']) {
    const parts = copy[name]
    if (!Array.isArray(parts)) continue
    const cleanParts = mapList(parts, cleanPart)
    if (cleanParts !== parts) return { ...copy, [name]: cleanParts }
  }
  return copy
}

function cleanPart(part: Fields): Fields {
  return without(part, 'native')
}

function cleanChoice(choice: Fields, tools: readonly unknown[]): Fields {
  return knownChoice(choice, tools) ?? cleanPart(choice)
}

/**
 * The tool as a function if the gateway knows its form, else without `native`.
 * @throws GatewayError `unprocessable` for a tool that only the caller's own API has
 */
function cleanTool(tool: Fields, index: number): Fields {
  const { native } = tool
  const functionTool = isRecord(native) && native['type'] === tool['type'] ? knownFunction(native) : null
  if (functionTool !== null) return functionTool
  const isOwn = GOOGLE_TOOL.test(String(tool['type']))
  if (isOwn || (isRecord(native) && typeof native['type'] === 'string' && !KNOWN_TOOLS.has(tool['type'])))
    throw inexpressible(`tools[${index}]`, 'this provider has no tool of this type')
  return cleanPart(tool)
}

/** Google's tools that no other API can express. */
const GOOGLE_TOOL = /^google_/
const KNOWN_TOOLS: ReadonlySet<unknown> = new Set(['function', ...Object.keys(hostedTools)])

function without(fields: Fields, name: string): Fields {
  if (!Object.hasOwn(fields, name)) return fields
  const { [name]: _, ...otherFields } = fields
  return otherFields
}

/** The encoder of a format, which gets only requests that the receiver takes (preconditions/). */
export function preparingEncoder(format: FormatName, encode: Encode): Encode {
  return (model, endpoint) => {
    const { request } = model
    const { input, text, tools, max_output_tokens: maxTokens } = request
    // Inlined, so that a plain request costs no call.
    const isPlain =
      typeof input === 'string' &&
      tools == null &&
      text == null &&
      request.stop == null &&
      request.temperature == null &&
      request.top_p == null &&
      request.top_k == null &&
      request.min_p == null &&
      request.top_a == null &&
      request.repetition_penalty == null &&
      request.presence_penalty == null &&
      request.frequency_penalty == null &&
      request.logit_bias == null &&
      request.top_logprobs == null &&
      request.seed == null
    if (isPlain && (maxTokens ?? MIN_OUTPUT_MAX) >= MIN_OUTPUT_MAX) return encode(model, endpoint)
    const prompt = preparedPrompt(model, format, endpoint)
    return prompt === null ? encode(model, endpoint) : prompt.encodeWith(model, endpoint, encode)
  }
}

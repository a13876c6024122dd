/**
 * The request as an encoder may see it: without what means something to this gateway alone, and without unknown
 * fields that only a provider of the caller's own dialect could understand. Pure. Hot path.
 */

import type { GatewayError } from '../errors.ts'
import type { DialectName } from '../protocol/dialect-name.ts'
import { DONE_BY_PROVIDER } from '../protocol/hosted-items.ts'
import type { InputItem } from '../protocol/items.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import { inexpressible } from './failure.ts'
import type { Format } from './format.ts'
import { filled } from './json.ts'

// Fields

/**
 * - `encoded`: an encoder may read it; `model`, `stream` and the like it writes anew;
 * - `gateway`: it never leaves;
 * - `chat`: a sampling field of the chat dialect. No Responses provider documents it, so one gets it only from
 *   callers of that dialect, who sent it as it is.
 */
type Fate = 'encoded' | 'gateway' | 'chat'

/** Typed over the request, so that no new field can be forgotten. */
const FATES: Readonly<Record<keyof ResponsesRequest, Fate>> = {
  model: 'encoded',
  models: 'gateway',
  input: 'encoded',
  instructions: 'encoded',
  max_output_tokens: 'encoded',
  // It goes along where the provider runs tools itself; see `goesOut`.
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
  // The end user goes out hashed, beside the request, or not at all.
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

/** Fields that clients of such gateways send although the request does not declare them. */
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

/** The request itself when nothing has to be removed, else a copy without it. */
export function outgoingRequest(
  request: ResponsesRequest,
  format: Pick<Format, 'dialect'>,
  callerDialect: DialectName,
): ResponsesRequest {
  const fields = request as ResponsesRequest & Readonly<Record<string, unknown>>
  for (const name in fields) {
    // A null says nothing, and no encoder writes one.
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

// Items of earlier turns

const SPENT: ReadonlySet<string> = new Set([...DONE_BY_PROVIDER, 'tool_search_call', 'tool_search_output'])

/** Both spellings of tools and items that run on our side. */
const OURS = /^(gateway|openrouter):/

/** The beginnings of ids that the gateway or Anthropic gives to hosted items. */
const IDS_OF_OTHERS = /^(st|srvtoolu|mcptoolu)_/

/** Whether the type is one that runs on our side; no provider knows it. */
export function isOurs(type: string): boolean {
  return OURS.test(type)
}

/** Whether an item of this type may be left out where there is no form for it. */
export function isSpent(type: string): boolean {
  return SPENT.has(type) || isOurs(type)
}

/**
 * Whether a spent item cannot be from a provider of the Responses format, although it has the form of one: such a
 * provider would look its id up, or miss fields that only its own items have. Gemini signs what it ran.
 */
export function isSpentElsewhere(type: string, id: unknown, signature: unknown): boolean {
  return (
    SPENT.has(type) && (typeof signature === 'string' || (typeof id === 'string' && IDS_OF_OTHERS.test(id)))
  )
}

type Call = Extract<InputItem, { type: 'function_call' }>
type Output = Extract<InputItem, { type: 'function_call_output' }>

/** The fields that are read of an item that a client sends back. */
interface Replayed {
  readonly type?: unknown
  readonly id?: unknown
  readonly datetime?: unknown
  readonly timezone?: unknown
}

/** A replayed time as the call that asked for it and its output, in every format's vocabulary; null for the rest. */
export function replayAsCall(item: Replayed, index: number): readonly [Call, Output] | null {
  if (item.type !== 'gateway:datetime' && item.type !== 'openrouter:datetime') return null
  const { datetime, timezone } = item
  const call_id = callIdOf(item, index)
  return [
    { type: 'function_call', call_id, name: 'datetime', arguments: JSON.stringify({ timezone }) },
    { type: 'function_call_output', call_id, output: JSON.stringify({ datetime, timezone }) },
  ]
}

/** The id under which the call of a tool of ours goes back: any will do that call and output share. */
export function callIdOf(item: { readonly call_id?: unknown; readonly id?: unknown }, index: number): string {
  return filled(item.call_id) ?? filled(item.id) ?? `call_${index}`
}

/** The refusal of an item that must not be left out. */
export function refuseItem(type: string, path: string): GatewayError {
  return inexpressible(`${path}.type`, `an item ${type} cannot be sent to this provider`)
}

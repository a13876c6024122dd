/**
 * The request as an encoder may see it: without what means something to this gateway alone, and without unknown
 * fields that only a provider of the caller's own dialect could understand. Pure. Hot path.
 */
import type { DialectName, ResponsesRequest } from '../protocol/request.ts'
import type { Format } from './format.ts'

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

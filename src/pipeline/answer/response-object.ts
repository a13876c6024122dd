/** The response object: initially with the fields of the request, null where unset; finally with the result. Pure. */
import { type GatewayError, INTERNAL_MESSAGE } from '../../base/errors.ts'
import { CONTINUES, type NotedRequest } from '../../protocol/json/request-notes.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type {
  GatewayMetadata,
  ResponseErrorCode,
  ResponseResource,
  ResponseUsage,
} from '../../protocol/response.ts'
import { withoutSecrets } from '../../protocol/tool-secrets.ts'
import type { Tool } from '../../protocol/tools.ts'
import type { DebugNotes } from './debug.ts'

interface ResponseFrame {
  readonly id: string
  /** Unix seconds. */
  readonly createdAt: number
  /** Catalogue id of the model that answers. */
  readonly model: string
}

/** Builds a response in progress, without output and usage. */
export function echoRequest(
  request: ResponsesRequest & NotedRequest,
  frame: ResponseFrame,
): ResponseResource {
  return {
    id: frame.id,
    object: 'response',
    created_at: frame.createdAt,
    completed_at: null,
    status: 'in_progress',
    error: null,
    incomplete_details: null,
    instructions: request.instructions ?? null,
    model: frame.model,
    output: [],
    parallel_tool_calls: request.parallel_tool_calls ?? true,
    tool_choice: request.tool_choice ?? 'auto',
    tools: (request.tools ?? []).map(echoTool),
    text: { ...request.text, format: request.text?.format ?? { type: 'text' } },
    temperature: request.temperature ?? null,
    top_p: request.top_p ?? null,
    frequency_penalty: request.frequency_penalty ?? null,
    presence_penalty: request.presence_penalty ?? null,
    top_logprobs: request.top_logprobs ?? null,
    max_output_tokens: request.max_output_tokens ?? null,
    max_tool_calls: request.max_tool_calls ?? null,
    metadata: request.metadata ?? null,
    background: false,
    previous_response_id: request[CONTINUES] ?? null,
    prompt_cache_key: request.prompt_cache_key ?? null,
    reasoning: request.reasoning == null ? null : echoReasoning(request.reasoning),
    safety_identifier: request.safety_identifier ?? null,
    service_tier: request.service_tier ?? 'auto',
    store: false,
    truncation: request.truncation ?? 'disabled',
    user: request.user ?? null,
    usage: null,
  }
}

/** Function tools show all their fields, because strict clients require them. Secrets are not repeated. */
function echoTool(tool: Tool): Tool {
  if (tool.type !== 'function') return withoutSecrets(tool)
  return {
    ...tool,
    description: tool.description ?? null,
    parameters: tool.parameters ?? null,
    strict: tool.strict ?? null,
  }
}

function echoReasoning(reasoning: NonNullable<ResponsesRequest['reasoning']>): ResponseResource['reasoning'] {
  return {
    effort: reasoning.effort ?? null,
    summary: reasoning.summary ?? null,
    ...(reasoning.context == null ? {} : { context: reasoning.context }),
    ...(reasoning.mode == null ? {} : { mode: reasoning.mode }),
  }
}

/** Fields that the terminal event adds to the response object. */
export interface Ending {
  /** Unix seconds. */
  readonly completedAt: number
  readonly usage: ResponseUsage | null
  readonly serviceTier: string | null
  readonly metadata: GatewayMetadata | null
  /** Catalogue id of the model that answered last; absent: the first model. */
  readonly model?: string
  /** Display name of the provider that answered last. */
  readonly provider?: string
  /** The provider's own word for the finish reason. */
  readonly nativeFinish?: string | null
  /** The stop sequence that the provider found. */
  readonly stopSequence?: string | null
  /** Absent if the caller requested none. */
  readonly debug?: DebugNotes
  /** True if the answer is the result of a batch line. */
  readonly isBatched?: boolean
  /** Fields of plugins. */
  readonly fields?: Partial<ResponseResource>
}

/** Maps canonical error types to the closed list of `response.error.code`; all others become `server_error`. */
const RESPONSE_ERROR_CODES: Readonly<Record<string, ResponseErrorCode>> = {
  rate_limit_exceeded: 'rate_limit_exceeded',
  context_length_exceeded: 'context_length_exceeded',
  invalid_request: 'invalid_prompt',
  invalid_prompt: 'invalid_prompt',
  content_policy_violation: 'image_content_policy_violation',
  invalid_image: 'invalid_image',
}

/** Builds the response with its output, however it ended. */
export function endedResponse(
  opening: ResponseResource,
  output: ResponseResource['output'],
  ending: Ending,
): ResponseResource {
  const response: ResponseResource = {
    ...opening,
    model: ending.model ?? opening.model,
    completed_at: ending.completedAt,
    output,
    service_tier: ending.serviceTier ?? 'default',
    usage: ending.usage,
  }
  if (ending.provider !== undefined) response.provider = ending.provider
  if (ending.nativeFinish != null) response.native_finish_reason = ending.nativeFinish
  if (ending.stopSequence != null) response.stop_sequence = ending.stopSequence
  if (ending.metadata !== null) response.gateway_metadata = ending.metadata
  return response
}

/** Turns an ended response into a failed one. */
export function failedResponse(response: ResponseResource, error: GatewayError): ResponseResource {
  const { errorType, message, metadata, status } = error
  const isOurs = status === 500
  return {
    ...response,
    status: 'failed',
    completed_at: null,
    error: {
      code: RESPONSE_ERROR_CODES[errorType] ?? 'server_error',
      message: isOurs ? INTERNAL_MESSAGE : message,
      ...(metadata === undefined || isOurs ? {} : { metadata }),
    },
    error_type: errorType,
  }
}

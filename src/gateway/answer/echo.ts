/** The initial response object: the fields of the request, null where unset. Pure. */
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { ResponseResource } from '../../protocol/response.ts'
import { withoutSecrets } from '../../protocol/tool-secrets.ts'
import type { Tool } from '../../protocol/tools.ts'

export interface ResponseFrame {
  readonly id: string
  /** Unix seconds. */
  readonly createdAt: number
  /** Catalogue id of the model that answers. */
  readonly model: string
}

/** A response in progress, without output and usage. */
export function echoRequest(request: ResponsesRequest, frame: ResponseFrame): ResponseResource {
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
    previous_response_id: null,
    prompt_cache_key: request.prompt_cache_key ?? null,
    reasoning: echoReasoning(request),
    safety_identifier: request.safety_identifier ?? null,
    service_tier: request.service_tier ?? 'auto',
    store: false,
    truncation: request.truncation ?? 'disabled',
    user: request.user ?? null,
    usage: null,
  }
}

/** Function tools show all their fields, so that strict clients find what they require. Secrets are not repeated. */
function echoTool(tool: Tool): Tool {
  if (tool.type !== 'function') return withoutSecrets(tool)
  return {
    ...tool,
    description: tool.description ?? null,
    parameters: tool.parameters ?? null,
    strict: tool.strict ?? null,
  }
}

function echoReasoning(request: ResponsesRequest): ResponseResource['reasoning'] {
  const reasoning = request.reasoning
  if (reasoning == null) return null
  return {
    effort: reasoning.effort ?? null,
    summary: reasoning.summary ?? null,
    ...(reasoning.context == null ? {} : { context: reasoning.context }),
    ...(reasoning.mode == null ? {} : { mode: reasoning.mode }),
  }
}

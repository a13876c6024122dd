/**
 * Names of span attributes: those of one version of the OpenTelemetry conventions for generative AI, and our own
 * (`gateway.*`) where the conventions have none. Pure. Leaf.
 */

/** The version of the conventions that the names come from. */
export const SCHEMA_URL = 'https://opentelemetry.io/schemas/gen-ai/1.42.0'

export const NAMES = {
  method: 'http.request.method',
  route: 'http.route',
  statusCode: 'http.response.status_code',
  userAgent: 'user_agent.name',
  errorType: 'error.type',
  serverAddress: 'server.address',
  serverPort: 'server.port',
  operation: 'gen_ai.operation.name',
  providerName: 'gen_ai.provider.name',
  requestModel: 'gen_ai.request.model',
  requestStream: 'gen_ai.request.stream',
  requestTemperature: 'gen_ai.request.temperature',
  requestTopP: 'gen_ai.request.top_p',
  requestMaxTokens: 'gen_ai.request.max_tokens',
  responseModel: 'gen_ai.response.model',
  responseId: 'gen_ai.response.id',
  finishReasons: 'gen_ai.response.finish_reasons',
  timeToFirstChunk: 'gen_ai.response.time_to_first_chunk',
  inputTokens: 'gen_ai.usage.input_tokens',
  outputTokens: 'gen_ai.usage.output_tokens',
  cacheReadTokens: 'gen_ai.usage.cache_read.input_tokens',
  cacheWriteTokens: 'gen_ai.usage.cache_creation.input_tokens',
  reasoningTokens: 'gen_ai.usage.reasoning.output_tokens',
  conversation: 'gen_ai.conversation.id',
  toolName: 'gen_ai.tool.name',
  toolCallId: 'gen_ai.tool.call.id',
  toolType: 'gen_ai.tool.type',
  endUser: 'enduser.pseudo.id',
  costPicoUsd: 'gateway.cost_picousd',
  costUsd: 'gateway.cost_usd',
  generation: 'gateway.generation_id',
  requestId: 'gateway.request_id',
  outcome: 'gateway.outcome',
  key: 'gateway.key',
  workspace: 'gateway.workspace_id',
  organization: 'gateway.organization_id',
  field: 'gateway.error_field',
  timeToFirstToken: 'gateway.time_to_first_token',
  timePerOutputToken: 'gateway.time_per_output_token',
  provider: 'gateway.provider',
  region: 'gateway.region',
  attempt: 'gateway.attempt',
  turn: 'gateway.turn',
  isByok: 'gateway.byok',
  isOutrun: 'gateway.outrun',
  serverTool: 'gateway.server_tool',
  leftOut: 'gateway.spans_left_out',
} as const

/** Names of providers in the conventions, by slug; others keep their slug. */
export const PROVIDER_NAMES: ReadonlyMap<string, string> = new Map([
  ['amazon-bedrock', 'aws.bedrock'],
  ['azure', 'azure.ai.openai'],
  ['google-ai-studio', 'gcp.gemini'],
  ['google-vertex', 'gcp.vertex_ai'],
  ['mistral', 'mistral_ai'],
  ['moonshotai', 'moonshot_ai'],
  ['xai', 'x_ai'],
  ['ibm', 'ibm.watsonx.ai'],
])

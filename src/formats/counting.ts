/** Token counting by providers before a request is sent: the counting call of each format that has one. Pure. */
import { count, type Json, recordOrEmpty } from '../base/json.ts'
import { VERTEX, VERTEX_COUNTING } from './anthropic-messages/clouds.ts'
import type { TokenCounting } from './format.ts'

/** Fields of a message that the counting API accepts; it refuses all others. */
const COUNTED_OF_MESSAGE: ReadonlySet<string> = new Set([
  'model',
  'messages',
  'system',
  'tools',
  'tool_choice',
  'thinking',
  'mcp_servers',
  'context_management',
  'output_config',
  'output_format',
  'cache_control',
])

/** `POST /messages/count_tokens` of the Messages API. */
export const MESSAGES_COUNTING: TokenCounting = {
  request({ headers, body, raw }, { provider, upstreamModel }) {
    const isVertex = provider.quirks.includes('raw-predict')
    const counted = only(body, COUNTED_OF_MESSAGE)
    return {
      path: isVertex ? VERTEX_COUNTING : '/messages/count_tokens',
      ...(headers === undefined ? {} : { headers }),
      body: isVertex ? { anthropic_version: VERTEX.version, model: upstreamModel, ...counted } : counted,
      ...(raw == null ? {} : { raw }),
    }
  },
  tokens: reply => count(reply['input_tokens']),
}

const COUNTED_OF_VERTEX: ReadonlySet<string> = new Set([
  'contents',
  'systemInstruction',
  'tools',
  'generationConfig',
])

/** Gemini's `:countTokens` takes a whole request; Vertex's takes its parts. */
export const GEMINI_COUNTING: TokenCounting = {
  request({ path, body }, { provider }) {
    const model = path.slice(0, path.lastIndexOf(':'))
    return {
      path: `${model}:countTokens`,
      body: provider.quirks.includes('counts-contents')
        ? only(body, COUNTED_OF_VERTEX)
        : { generateContentRequest: { model: decodeURIComponent(model.slice(1)), ...body } },
    }
  },
  tokens: reply => count(reply['totalTokens']),
}

const COUNTED_OF_CONVERSE: ReadonlySet<string> = new Set([
  'messages',
  'system',
  'toolConfig',
  'additionalModelRequestFields',
])

/** `CountTokens` of Bedrock. */
export const CONVERSE_COUNTING: TokenCounting = {
  request: ({ path, body }) => ({
    path: `${path.slice(0, path.lastIndexOf('/'))}/count-tokens`,
    body: { input: { converse: only(recordOrEmpty(body), COUNTED_OF_CONVERSE) } },
  }),
  tokens: reply => count(reply['inputTokens']),
}

function only(body: Json, names: ReadonlySet<string>): Json {
  return Object.fromEntries(Object.entries(body).filter(([name]) => names.has(name)))
}

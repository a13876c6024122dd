/** Token counting by providers before a request is sent: the counting call of each format that has one. Pure. */
import { count, type Json, recordOrEmpty } from '../base/json.ts'
import { VERTEX, VERTEX_COUNTING } from './anthropic-messages/clouds.ts'
import type { TokenCounting } from './format.ts'

/** Fields of a request that the counting API accepts; it refuses all others. */
const MESSAGES_FIELDS: ReadonlySet<string> = new Set([
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
    const countedFields = pick(body, MESSAGES_FIELDS)
    return {
      path: isVertex ? VERTEX_COUNTING : '/messages/count_tokens',
      ...(headers === undefined ? {} : { headers }),
      body: isVertex
        ? { anthropic_version: VERTEX.version, model: upstreamModel, ...countedFields }
        : countedFields,
      ...(raw == null ? {} : { raw }),
    }
  },
  tokens: reply => count(reply['input_tokens']),
}

const VERTEX_FIELDS: ReadonlySet<string> = new Set([
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
        ? pick(body, VERTEX_FIELDS)
        : { generateContentRequest: { model: decodeURIComponent(model.slice(1)), ...body } },
    }
  },
  tokens: reply => count(reply['totalTokens']),
}

const CONVERSE_FIELDS: ReadonlySet<string> = new Set([
  'messages',
  'system',
  'toolConfig',
  'additionalModelRequestFields',
])

/** `CountTokens` of Bedrock. */
export const CONVERSE_COUNTING: TokenCounting = {
  request: ({ path, body }) => ({
    path: `${path.slice(0, path.lastIndexOf('/'))}/count-tokens`,
    body: { input: { converse: pick(recordOrEmpty(body), CONVERSE_FIELDS) } },
  }),
  tokens: reply => count(reply['inputTokens']),
}

function pick(body: Json, names: ReadonlySet<string>): Json {
  return Object.fromEntries(Object.entries(body).filter(([name]) => names.has(name)))
}

/**
 * The Messages API on other clouds: Claude on Vertex (`rawPredict`) and on Bedrock (`InvokeModel`). Each has the model
 * in the path and its own version in the body, and accepts only some betas and fields. Pure.
 */
import { filled, type Json, records } from '../../base/json.ts'
import type { Endpoint } from '../../protocol/provider.ts'
import { inexpressible } from '../failure.ts'
import type { ModelRequest, WireRequest } from '../format.ts'
import { encodeMessages } from './encode.ts'

const BETA_HEADER = 'anthropic-beta'

export interface CloudFormat {
  /** The value of `anthropic_version`. */
  readonly version: string
  /** @throws GatewayError `unprocessable` for a name that cannot be part of a path */
  path(model: string, stream: boolean): string
  /** The beginnings of the names of supported betas. The cloud refuses all others. */
  readonly betas: readonly string[]
  /** True: the betas are a list in the body; false: a header. */
  readonly betasInBody: boolean
  /** Fields that the cloud does not accept, in addition to the model. */
  readonly omittedFields: readonly string[]
  /** True: the cloud refuses the field `eager_input_streaming` of tools, and has a beta instead. */
  readonly eagerByBeta: boolean
}

/** Fields that only this file writes. */
const OWN_FIELDS: ReadonlySet<string> = new Set(['model', 'anthropic_version', 'anthropic_beta'])

/** Betas of all clouds, Converse included. */
export const BETAS_OF_CLOUDS = [
  'computer-use-',
  'token-efficient-tools-',
  'interleaved-thinking-',
  'output-128k-',
  'dev-full-thinking-',
  'context-1m-',
  'context-management-',
  'effort-',
  'fine-grained-tool-streaming-',
]

/** The field of a tool whose arguments are streamed as they are written, and the beta that does it for all tools. */
const EAGER_FIELD = 'eager_input_streaming'
export const EAGER_BETA = 'fine-grained-tool-streaming-2025-05-14'

/** True if the tool, or its fields of the Messages API, ask for eager streaming of arguments. */
export function isEager(tool: object): boolean {
  return (tool as { readonly [EAGER_FIELD]?: unknown })[EAGER_FIELD] === true
}

/** Betas of both clouds that take the Messages API itself. */
export const RAW_API_BETAS = [...BETAS_OF_CLOUDS, 'tool-search-tool-', 'tool-examples-', 'compact-']

/** Fields whose features neither of these clouds has. */
export const UNSUPPORTED_FIELDS = [
  'service_tier',
  'mcp_servers',
  'container',
  'speed',
  'inference_geo',
  'cache_control',
]

export const VERTEX: CloudFormat = {
  version: 'vertex-2023-10-16',
  path: (model, stream) => `${vertexModel(model)}:${stream ? 'streamRawPredict' : 'rawPredict'}`,
  betas: [...RAW_API_BETAS, 'web-search-'],
  betasInBody: false,
  omittedFields: UNSUPPORTED_FIELDS,
  eagerByBeta: false,
}

/** The path that counts tokens at Vertex. */
export const VERTEX_COUNTING = '/models/count-tokens:rawPredict'

/** A version follows an @ sign, which must stay outside the encoded part of the path. */
function vertexModel(name: string): string {
  if (name === '' || name === '.' || name === '..' || !name.isWellFormed()) {
    throw inexpressible('model', 'the model name cannot be part of a URL')
  }
  return `/models/${encodeURIComponent(name).replaceAll('%40', '@')}`
}

/** @throws GatewayError `unprocessable` naming what the Messages API cannot express */
export function encodeInCloud(cloud: CloudFormat, model: ModelRequest, endpoint: Endpoint): WireRequest {
  return cloudRequest(cloud, encodeMessages(model, endpoint), endpoint, model.stream)
}

/** A request of the Messages API in the form of the cloud. */
export function cloudRequest(
  cloud: CloudFormat,
  { headers = {}, body, changes }: WireRequest,
  { upstreamModel }: Endpoint,
  stream: boolean,
): WireRequest {
  const fields = Object.entries(body).filter(
    ([name]) => !OWN_FIELDS.has(name) && !cloud.omittedFields.includes(name),
  )
  const betas = (filled(headers[BETA_HEADER]) ?? '')
    .split(',')
    .filter(beta => cloud.betas.some(prefix => beta.startsWith(prefix)))
  if (cloud.eagerByBeta && records(body['tools']).some(isEager) && !betas.includes(EAGER_BETA))
    betas.push(EAGER_BETA)
  const hasBetas = betas.length > 0
  return {
    path: cloud.path(upstreamModel, stream),
    ...(hasBetas && !cloud.betasInBody ? { headers: { [BETA_HEADER]: betas.join(',') } } : {}),
    body: {
      anthropic_version: cloud.version,
      ...Object.fromEntries(fields),
      ...(cloud.eagerByBeta && body['tools'] != null
        ? { tools: records(body['tools']).map(withoutEager) }
        : {}),
      ...(hasBetas && cloud.betasInBody ? { anthropic_beta: betas } : {}),
    },
    ...(changes === undefined ? {} : { changes }),
  }
}

function withoutEager({ [EAGER_FIELD]: _, ...tool }: Json): Json {
  return tool
}

/**
 * Documented parameters: finds the parameters that a request sets, and removes those that an endpoint does not support.
 * Pure. The names are the same as in `supported_parameters` of model listings.
 */

import type { Endpoint } from '../protocol/provider.ts'
import type { ResponsesRequest } from '../protocol/request.ts'

interface Parameter {
  readonly name: string
  readonly isUsed: (request: ResponsesRequest) => boolean
  readonly without: (request: ResponsesRequest) => ResponsesRequest
}

/** Every optional field of a request. */
type OptionalField = Exclude<keyof ResponsesRequest, 'input'>

/** A parameter that is one field of the request. */
function field(name: string, key: OptionalField): Parameter {
  return {
    name,
    isUsed: request => request[key] != null,
    without: request => {
      const copy = { ...request }
      delete copy[key]
      return copy
    },
  }
}

const PARAMETERS: readonly Parameter[] = [
  field('temperature', 'temperature'),
  field('top_p', 'top_p'),
  field('top_k', 'top_k'),
  field('frequency_penalty', 'frequency_penalty'),
  field('presence_penalty', 'presence_penalty'),
  field('max_tokens', 'max_output_tokens'),
  field('top_logprobs', 'top_logprobs'),
  field('stop', 'stop'),
  field('seed', 'seed'),
  field('logit_bias', 'logit_bias'),
  field('min_p', 'min_p'),
  field('top_a', 'top_a'),
  field('repetition_penalty', 'repetition_penalty'),
  field('prediction', 'prediction'),
  field('reasoning', 'reasoning'),
  field('parallel_tool_calls', 'parallel_tool_calls'),
  field('tool_choice', 'tool_choice'),
  {
    name: 'tools',
    isUsed: request => (request.tools?.length ?? 0) > 0,
    without: ({ tools: _tools, tool_choice: _choice, parallel_tool_calls: _parallel, ...otherFields }) =>
      otherFields,
  },
  {
    name: 'response_format',
    isUsed: request => request.text?.format != null && request.text.format.type !== 'text',
    without: request => {
      const { format: _format, ...text } = request.text ?? {}
      return { ...request, text }
    },
  },
  {
    name: 'verbosity',
    isUsed: request => request.text?.verbosity != null,
    without: request => {
      const { verbosity: _verbosity, ...text } = request.text ?? {}
      return { ...request, text }
    },
  },
]

/** Every parameter that an endpoint may support or not. */
export const PARAMETER_NAMES: readonly string[] = PARAMETERS.map(parameter => parameter.name)

/**
 * True if the endpoint supports the parameter. `structured_outputs` in a row also covers `response_format`, which is
 * the weaker form of the same ability. An output limit has a second name.
 */
export function supportsParameter(endpoint: Endpoint, name: string): boolean {
  const supported = endpoint.supportedParameters
  if (supported === null || supported.has(name)) return true
  return (
    (name === 'response_format' && supported.has('structured_outputs')) ||
    (name === 'max_tokens' && supported.has('max_completion_tokens'))
  )
}

/** Names of used parameters that the endpoint does not support. */
export function unsupportedParameters(request: ResponsesRequest, endpoint: Endpoint): string[] {
  if (endpoint.supportedParameters === null) return []
  return PARAMETERS.filter(
    parameter => parameter.isUsed(request) && !supportsParameter(endpoint, parameter.name),
  ).map(parameter => parameter.name)
}

/** The names of this list that the request uses. */
export function usedParameters(request: ResponsesRequest, names: readonly string[]): readonly string[] {
  let isUsed: string[] | null = null
  for (const name of names) {
    if (BY_NAME.get(name)?.isUsed(request) !== true) continue
    isUsed ??= []
    isUsed.push(name)
  }
  return isUsed ?? NO_NAMES
}

const BY_NAME: ReadonlyMap<string, Parameter> = new Map(
  PARAMETERS.map(parameter => [parameter.name, parameter]),
)
const NO_NAMES: readonly string[] = []

/** The request for this endpoint, without the parameters that it does not support. */
export function fitRequest(request: ResponsesRequest, endpoint: Endpoint): ResponsesRequest {
  if (endpoint.supportedParameters === null) return request
  let result = request
  for (const parameter of PARAMETERS) {
    if (parameter.isUsed(result) && !supportsParameter(endpoint, parameter.name))
      result = parameter.without(result)
  }
  return result
}

/**
 * The check that the body of every POST /responses passes once. Pure. Hot path: that of every body, and a walk for
 * what no schema says.
 */
import { GatewayError } from '../errors.ts'
import { bodyCheck } from './body.ts'
import { refusal } from './refusals.ts'
import { ResponsesRequest } from './request-body.ts'

export type { ProviderPreferences } from './preferences.ts'
export type {
  PromptCacheOptions,
  ReasoningConfig,
  ResponsesRequest,
  StopCondition,
  StoredPrompt,
} from './request-body.ts'
export type { TextConfig, TextFormat } from './text-config.ts'

const check = bodyCheck(ResponsesRequest)

/**
 * Checks the body of POST /responses. Returns it as it came: nothing is copied, no default is filled in.
 * @throws GatewayError `invalid_request` that names the field by its path and says what is expected there;
 *   it never repeats what the client sent.
 */
export function parseResponsesRequest(body: unknown): ResponsesRequest {
  const request = check(body)
  const refused = refusal(request)
  if (refused !== null) throw new GatewayError('invalid_request', refused)
  return request
}

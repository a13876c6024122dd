/**
 * The check that the body of every POST /responses passes once. Pure. Hot path: one compiled check and two
 * walks; what is wrong is worked out only after something was.
 */
import { GatewayError } from '../errors.ts'
import { explain } from './explain.ts'
import { forbiddenKey } from './forbidden-keys.ts'
import { refusal } from './refusals.ts'
import { ResponsesRequest } from './request-body.ts'
import { compile } from './schema.ts'

export type { ProviderPreferences } from './preferences.ts'
export type {
  PromptCacheOptions,
  ReasoningConfig,
  ResponsesRequest,
  StopCondition,
  StoredPrompt,
} from './request-body.ts'
export type { TextConfig, TextFormat } from './text-config.ts'

const fits = compile(ResponsesRequest)

/**
 * Checks the body of POST /responses. Returns it as it came: nothing is copied, no default is filled in.
 * @throws GatewayError `invalid_request` that names the field by its path and says what is expected there;
 *   it never repeats what the client sent.
 */
export function parseResponsesRequest(body: unknown): ResponsesRequest {
  const forbidden = forbiddenKey(body)
  if (forbidden !== null) throw new GatewayError('invalid_request', forbidden)
  if (!fits(body)) {
    throw new GatewayError(
      'invalid_request',
      explain(ResponsesRequest, body) ?? 'body: does not fit the interface',
    )
  }
  const request = body as ResponsesRequest
  const refused = refusal(request)
  if (refused !== null) throw new GatewayError('invalid_request', refused)
  return request
}

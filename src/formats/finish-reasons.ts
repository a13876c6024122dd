/**
 * Finish reasons: each reason of a provider, a relay or a compatible server, in the gateway's vocabulary. One table for
 * all formats, because servers of one API use the reasons of another. Pure.
 */
import { providerFailure } from './failure.ts'
import type { FinishReason } from './format.ts'

/** `failed`: the generation failed. `doubtful`: it failed if there is no output. */
type Ending = FinishReason | 'failed' | 'doubtful'

/** In lower case. `other`: a known reason that has no equivalent here. */
const REASON_WORDS: Readonly<Record<Ending, string>> = {
  stop: 'stop stop_sequence stop_token end_turn eos eos_token complete completed done finish finished',
  tool_calls: 'tool_calls tool_call tool_use function_call function_calls',
  length:
    'length max_tokens max_output_tokens max_completion_tokens max_length max_new_tokens model_length token_limit ' +
    'context_length context_length_exceeded context_window_exceeded model_context_window_exceeded error_limit ' +
    'incomplete truncated',
  content_filter:
    'content_filter content_filtered content_policy content_policy_violation sensitive refusal safety recitation ' +
    'blocklist prohibited_content spii model_armor jailbreak image_safety image_prohibited_content image_recitation ' +
    'guardrail_intervened error_toxic moderation blocked',
  failed:
    'error abort aborted cancel canceled cancelled user_cancel failed failure network_error server_error ' +
    'internal_error insufficient_system_resource timeout malformed_function_call unexpected_tool_call ' +
    'malformed_response malformed_model_output malformed_tool_use too_many_tool_calls missing_thought_signature',
  doubtful: 'other language no_image image_other',
  // The provider paused a long run of its own tools, and the caller continues it by sending the reply back.
  other: 'pause_turn compaction',
}

const ENDINGS: ReadonlyMap<string, Ending> = new Map(
  Object.entries(REASON_WORDS).flatMap(([ending, words]) =>
    words.split(' ').map((word): [string, Ending] => [word, ending as Ending]),
  ),
)

/** Error codes that `providerFailure` knows, by the provider's reason for a failed generation. */
const FAILURE_CODES: ReadonlyMap<string, string> = new Map([
  ['insufficient_system_resource', 'overloaded_error'],
  ['timeout', 'timeout_error'],
])

/** The reason alone: some relays append the subject, as in `content_filter: hate`. */
const REASON_WORD = /^[a-z0-9_]*/

function wordIn(native: string): string {
  const reason = native.trim().toLowerCase().replaceAll('-', '_')
  return REASON_WORD.exec(reason)?.[0] ?? reason
}

/**
 * The gateway's reason for a provider's; unknown ones become `other`. `hasOutput`: the model has produced output.
 * @param message the provider's explanation
 * @throws GatewayError for a failed generation
 */
export function finishReason(
  native: string,
  hasOutput: boolean,
  message: string | null = null,
): FinishReason {
  const ending = ENDINGS.get(native) ?? ENDINGS.get(wordIn(native)) ?? 'other'
  if (ending === 'failed' || (ending === 'doubtful' && !hasOutput)) {
    throw providerFailure({
      status: null,
      code: FAILURE_CODES.get(wordIn(native)) ?? native,
      message: message ?? `The provider broke off the reply (${native})`,
    })
  }
  return ending === 'doubtful' ? 'other' : ending
}

/** False for a reason that no known provider uses. */
export function isKnownFinish(native: string): boolean {
  return ENDINGS.has(wordIn(native))
}

/** True for a reason that leaves the last item incomplete. */
export function isCut(reason: FinishReason): boolean {
  return reason === 'length' || reason === 'content_filter'
}

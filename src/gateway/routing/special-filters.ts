/** Filters for request parts that only some formats can express (formats/special.ts). Pure. Hot path. */
import { type Special, says, specialParts } from '../../formats/special.ts'
import type { DialectName, ResponsesRequest } from '../../protocol/request.ts'
import { honours } from '../../providers/parameters.ts'
import { textFormat } from '../../providers/provider.ts'
import type { RouteCandidate } from './candidate.ts'
import type { Filter } from './filters.ts'

export interface SpecialFilter extends Filter {
  /** For the caller, if no endpoint is left. */
  readonly message: string
}

const RESPONSES_ONLY = 'only providers that speak the Responses format can be sent it'

/** The way out, for each. */
const ADVICE: Readonly<Record<Special, string>> = {
  prompt:
    'a stored prompt belongs to an account, so it needs a BYOK credential of the workspace at a provider that speaks the Responses format; none serves this model. Send its text in instructions and input instead',
  modalities:
    'no provider of this model makes images for this gateway. Choose a model whose output_modalities has image',
  agent_message: `${RESPONSES_ONLY}, and none of them serves this model. Send the text as a message instead`,
  context_compaction: `${RESPONSES_ONLY}, and none of them serves this model. Send the conversation itself instead`,
  configuration_update: 'no provider of this model takes an effort of reasoning. Leave the item out',
  mcp_servers:
    'only providers that speak the Messages format can be sent it, and none of them serves this model. Use the tool mcp of POST /v1/responses or /v1/chat/completions instead',
  computer_use:
    'only providers that speak the Responses format or the Messages format have computer use, and none of them serves this model. Choose a model of OpenAI or Anthropic',
  own_kind:
    'only providers that speak the Gemini format know it, and none of them serves this model. Leave it out, or choose a model of Google',
  context_management:
    'this provider of the model cannot summarize the conversation. Leave these edits out, or use the plugin context-compression',
}

const NONE: readonly SpecialFilter[] = []

/** One filter for each special part; usually none. */
export function specialFilters(request: ResponsesRequest, dialect: DialectName): readonly SpecialFilter[] {
  const parts = specialParts(request, dialect)
  if (parts.length === 0) return NONE
  return parts.map(({ special, path }) => ({
    excludedBy: special,
    message: `${path}: ${ADVICE[special]}`,
    applies: () => true,
    admits: ({ endpoint, credential }: RouteCandidate) =>
      (special !== 'prompt' || credential !== null) &&
      (special !== 'configuration_update' || honours(endpoint, 'reasoning')) &&
      says(textFormat(endpoint), special, dialect),
  }))
}

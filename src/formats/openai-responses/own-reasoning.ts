/** Whose encrypted reasoning an endpoint of the Responses wire format can take back. Pure. */
import type { ReasoningFormat } from '../reasoning-format.ts'

/** Providers whose encrypted reasoning only they can read. Others of this wire format send it plain or not at all. */
const OWN_REASONING: ReadonlyMap<string, ReasoningFormat> = new Map([
  ['openai', 'openai-responses-v1'],
  ['azure', 'azure-openai-responses-v1'],
  ['xai', 'xai-responses-v1'],
])

/** The name of a provider's own encrypted reasoning, by its slug; null when it has none that we know of. */
export function ownReasoning(slug: string): ReasoningFormat | null {
  return OWN_REASONING.get(slug) ?? null
}

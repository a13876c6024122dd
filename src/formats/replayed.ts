/**
 * What becomes of an output item that a client sends back in a later turn, where the wire format has no form of
 * its own for it. One rule for all formats, so that a conversation can go on at another provider:
 *
 * - what a provider or the gateway ran by itself is spent: what came of it is in the model's own words that
 *   follow it, so it is left out;
 * - everything else carries something that the client or its tools said or did, or history in a sealed form.
 *   Leaving it out would change the conversation: it is refused by its path.
 *
 * Reasoning is neither: each encoder sends back what its provider can verify and leaves the rest out. Pure.
 */
import type { GatewayError } from '../errors.ts'
import { DONE_BY_PROVIDER } from '../protocol/hosted-items.ts'
import { inexpressible } from './inexpressible.ts'

const SPENT: ReadonlySet<string> = new Set([...DONE_BY_PROVIDER, 'tool_search_call', 'tool_search_output'])

/** Both spellings of tools and items that run on our side. */
const OURS = /^(gateway|openrouter):/

/** The beginnings of ids that the gateway or Anthropic gives to hosted items. */
const IDS_OF_OTHERS = /^(st|srvtoolu|mcptoolu)_/

/** Whether the type is one that runs on our side; no provider knows it. */
export function isOurs(type: string): boolean {
  return OURS.test(type)
}

/** Whether an item of this type may be left out where there is no form for it. */
export function isSpent(type: string): boolean {
  return SPENT.has(type) || isOurs(type)
}

/**
 * Whether a spent item cannot be from a provider of the Responses format, although it has the form of one: such a
 * provider would look its id up, or miss fields that only its own items have. Gemini signs what it ran.
 */
export function isSpentElsewhere(type: string, id: unknown, signature: unknown): boolean {
  return (
    SPENT.has(type) && (typeof signature === 'string' || (typeof id === 'string' && IDS_OF_OTHERS.test(id)))
  )
}

/** The refusal of an item that must not be left out. */
export function refusedItem(type: string, path: string): GatewayError {
  return inexpressible(`${path}.type`, `an item ${type} cannot be sent to this provider`)
}

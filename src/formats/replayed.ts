/**
 * What becomes of an output item that a client sends back in a later turn, where the wire format has no form of
 * its own for it. One rule for all formats, so that a conversation can go on at another provider:
 *
 * - what a provider or the gateway ran by itself is spent: what came of it is in the model's own words that
 *   follow it, so it is left out;
 * - the time that the gateway told is a fact that later turns may ask for: it becomes a function call and its output;
 * - everything else carries something that the client or its tools said or did, or history in a sealed form.
 *   Leaving it out would change the conversation: it is refused by its path.
 *
 * Reasoning is neither: each encoder sends back what its provider can verify and leaves the rest out. Pure.
 */
import type { GatewayError } from '../errors.ts'
import { DONE_BY_PROVIDER } from '../protocol/hosted-items.ts'
import type { InputItem } from '../protocol/items.ts'
import { inexpressible } from './inexpressible.ts'
import { filled } from './json.ts'

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

type Call = Extract<InputItem, { type: 'function_call' }>
type Output = Extract<InputItem, { type: 'function_call_output' }>

/** The fields that are read of an item that a client sends back. */
interface Replayed {
  readonly type?: unknown
  readonly id?: unknown
  readonly datetime?: unknown
  readonly timezone?: unknown
}

/** A replayed time as the call that asked for it and its output, in every format's vocabulary; null for the rest. */
export function replayedCall(item: Replayed, index: number): readonly [Call, Output] | null {
  if (item.type !== 'gateway:datetime' && item.type !== 'openrouter:datetime') return null
  const { datetime, timezone } = item
  const call_id = callIdOf(item, index)
  return [
    { type: 'function_call', call_id, name: 'datetime', arguments: JSON.stringify({ timezone }) },
    { type: 'function_call_output', call_id, output: JSON.stringify({ datetime, timezone }) },
  ]
}

/** The id under which the call of a tool of ours goes back: any will do that call and output share. */
export function callIdOf(item: { readonly call_id?: unknown; readonly id?: unknown }, index: number): string {
  return filled(item.call_id) ?? filled(item.id) ?? `call_${index}`
}

/** The refusal of an item that must not be left out. */
export function refusedItem(type: string, path: string): GatewayError {
  return inexpressible(`${path}.type`, `an item ${type} cannot be sent to this provider`)
}

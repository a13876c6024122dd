/**
 * Signatures of calls that clients do not send back: stored by call id for a while, and restored in later prompts. They
 * carry the mark of their maker, so that no other provider gets them. Serve threads; used only for replies and prompts
 * in Gemini's format.
 */
import { hash } from 'node:crypto'
import { isPending } from '../../base/maybe-promise.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type { InputItem, OutputItem } from '../../protocol/items.ts'
import type { FormatName } from '../../protocol/provider.ts'
import type { Caller } from '../../protocol/records.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { isMarked } from '../../protocol/sealed-content.ts'
import type { Pins } from '../../storage/session-affinity/session-affinity.ts'

/** The format whose models refuse calls of the running turn without the signature that they issued. */
export const SIGNING: FormatName = 'google-gemini'
/** Long, because a client may wait for its user. */
const KEPT_MS = 3_600_000
/** Longer signatures are dropped: they usually have some hundred to some thousand characters. */
const SEAL_MAX_CHARS = 8_192
/** Maximum number of calls looked up per prompt, newest first: only those of the running turn are required. */
const CALLS_MAX = 64

type Fields = Readonly<Record<string, unknown>>

export class CallSeals {
  readonly #pins: Pins
  /** Prompts whose known signatures have been restored. */
  readonly #done = new WeakSet<object>()

  constructor(pins: Pins) {
    this.#pins = pins
  }

  /** Stores the signatures of the calls in a reply. */
  keep({ caller }: Exchange, output: readonly OutputItem[]): void {
    for (const item of output as readonly Fields[]) {
      const { type, call_id, signature } = item
      if (type !== 'function_call' || typeof call_id !== 'string' || typeof signature !== 'string') continue
      if (!isMarked(signature) || signature.length > SEAL_MAX_CHARS) continue
      this.#pins.set(keyOf(caller, call_id), signature, KEPT_MS, caller.keyHash)
    }
  }

  /** The prompt with the signatures that are stored for it, once; a promise only if they have to be waited for. */
  recall({ caller, prompt }: Exchange): ResponsesRequest | Promise<ResponsesRequest> {
    const { input } = prompt
    if (typeof input === 'string' || this.#done.has(input)) return prompt
    this.#done.add(input)
    const calls: string[] = []
    for (let at = input.length - 1; at >= 0 && calls.length < CALLS_MAX; at--) {
      const id = unsignedCall(input[at] as unknown as Fields)
      if (id !== null) calls.push(id)
    }
    if (calls.length === 0) return prompt
    const stored = calls.map(id => this.#pins.get(keyOf(caller, id)))
    if (stored.some(isPending))
      return Promise.all(stored).then(seals => this.#filled(prompt, input, calls, seals))
    return this.#filled(prompt, input, calls, stored as readonly (string | null)[])
  }

  #filled(
    prompt: ResponsesRequest,
    input: readonly InputItem[],
    calls: readonly string[],
    seals: readonly (string | null)[],
  ): ResponsesRequest {
    const known = new Map(calls.map((id, at) => [id, seals[at] ?? null]))
    let isChanged = false
    const filled = input.map(item => {
      const id = unsignedCall(item as unknown as Fields)
      const seal = id === null ? null : known.get(id)
      if (seal == null || !isMarked(seal)) return item
      isChanged = true
      return { ...item, signature: seal } as InputItem
    })
    if (!isChanged) return prompt
    this.#done.add(filled)
    return { ...prompt, input: filled }
  }
}

/** The id of a call without a signature; null for anything else. */
function unsignedCall({ type, call_id, signature, native }: Fields): string | null {
  if (type !== 'function_call' || typeof call_id !== 'string') return null
  const isSigned = (typeof signature === 'string' && signature !== '') || native != null
  return isSigned ? null : call_id
}

/** Includes the workspace, so that workspaces never share a signature. */
function keyOf({ organizationId, workspaceId }: Caller, callId: string): string {
  return hash('sha256', JSON.stringify(['call seal', organizationId, workspaceId, callId]), 'base64')
}

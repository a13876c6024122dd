/**
 * Signatures of calls, and thoughts before calls, that clients do not send back: stored by call id for a while, and
 * restored in later prompts. They carry the mark of their maker, so that no other provider gets them; thoughts are
 * sealed too, because they are content. Serve threads; signatures are those of Gemini's format, thoughts those of
 * providers that want them back as text.
 */
import { hash } from 'node:crypto'
import { records, textOrEmpty } from '../../base/json.ts'
import { isPending } from '../../base/maybe-promise.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type { InputItem, OutputItem } from '../../protocol/items.ts'
import type { FormatName } from '../../protocol/provider.ts'
import type { Caller } from '../../protocol/records.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { isMarked, sealThought } from '../../protocol/sealed-content.ts'
import type { Pins } from '../../storage/session-affinity/session-affinity.ts'
import type { SummarySeal } from '../compaction.ts'

/** The format whose models refuse calls of the running turn without the signature that they issued. */
export const SIGNING_FORMAT: FormatName = 'google-gemini'
/** Items that a provider signs as calls of functions; their type depends on how the client declared the tool. */
const CALL_TYPES: ReadonlySet<unknown> = new Set(['function_call', 'custom_tool_call', 'tool_search_call'])
/** Long, because a client may wait for its user. */
const KEPT_MS = 3_600_000
/** Longer signatures are dropped: they usually have some hundred to some thousand characters. */
const SEAL_MAX_CHARS = 8_192
/** Maximum number of calls looked up per prompt, newest first: only calls of the running turn need one. */
const MAX_RECALLED_CALLS = 64

type Fields = Readonly<Record<string, unknown>>

export class CallSeals {
  readonly #pins: Pins
  readonly #seal: SummarySeal | null
  /** Prompts whose known signatures have been restored. */
  readonly #signedInputs = new WeakSet<object>()
  /** Prompts whose known thoughts have been restored. */
  readonly #thoughtInputs = new WeakSet<object>()

  /** @param seal null: thoughts are not stored */
  constructor(pins: Pins, seal: SummarySeal | null = null) {
    this.#pins = pins
    this.#seal = seal
  }

  /**
   * Stores the thoughts before the calls in a reply, sealed, for providers that want them back as text; not if the
   * caller forbids keeping data.
   */
  keepThoughts(
    { caller, request, zeroRetention }: Exchange,
    output: readonly OutputItem[],
    maker: string,
  ): void {
    const { data_collection: collection, zdr } = request.provider ?? {}
    if (this.#seal === null || zeroRetention || zdr === true || collection === 'deny') return
    let text = ''
    for (const item of output) {
      if (item.type === 'reasoning') text += thoughtIn(item)
      if (!CALL_TYPES.has(item.type)) continue
      const { call_id: id } = item as Fields
      if (text === '' || typeof id !== 'string') return
      const thought = sealThought({ format: 'unknown', signature: 'none', text }, maker)
      const ciphertext = this.#seal.seal(thought, ownerOf(caller))
      if (ciphertext.length <= SEAL_MAX_CHARS)
        this.#pins.set(thoughtKeyOf(caller, id), ciphertext, KEPT_MS, caller.keyHash)
      // The calls of a turn have one thought, which stands before the first of them.
      return
    }
  }

  /** The prompt with the thoughts that are stored for it, once; a promise only if they have to be waited for. */
  recallThoughts({ caller, prompt }: Exchange): ResponsesRequest | Promise<ResponsesRequest> {
    const { input } = prompt
    if (this.#seal === null || typeof input === 'string' || this.#thoughtInputs.has(input)) return prompt
    this.#thoughtInputs.add(input)
    const turns = thoughtlessTurns(input).slice(-MAX_RECALLED_CALLS)
    if (turns.length === 0) return prompt
    const storedThoughts = turns.map(({ id }) => this.#pins.get(thoughtKeyOf(caller, id)))
    const insert = (ciphertext: readonly (string | null)[]): ResponsesRequest => {
      const thoughts = new Map<number, InputItem>()
      for (const [index, { before }] of turns.entries()) {
        const text = this.#openThought(ciphertext[index] ?? null, caller)
        if (text !== null) thoughts.set(before, { type: 'reasoning', summary: [], encrypted_content: text })
      }
      if (thoughts.size === 0) return prompt
      const filledInput = input.flatMap((item, index) => {
        const thought = thoughts.get(index)
        return thought === undefined ? [item] : [thought, item]
      })
      this.#thoughtInputs.add(filledInput)
      return { ...prompt, input: filledInput }
    }
    return storedThoughts.some(isPending)
      ? Promise.all(storedThoughts).then(insert)
      : insert(storedThoughts as readonly (string | null)[])
  }

  #openThought(ciphertext: string | null, caller: Caller): string | null {
    const text = ciphertext === null ? null : (this.#seal?.open(ciphertext, ownerOf(caller)) ?? null)
    return text !== null && isMarked(text) ? text : null
  }

  /** Stores the signatures of the calls in a reply. */
  keepSignatures({ caller }: Exchange, output: readonly OutputItem[]): void {
    for (const item of output as readonly Fields[]) {
      const { type, call_id, signature } = item
      if (!CALL_TYPES.has(type) || typeof call_id !== 'string' || typeof signature !== 'string') continue
      if (!isMarked(signature) || signature.length > SEAL_MAX_CHARS) continue
      this.#pins.set(keyOf(caller, call_id), signature, KEPT_MS, caller.keyHash)
    }
  }

  /** The prompt with the signatures that are stored for it, once; a promise only if they have to be waited for. */
  recallSignatures({ caller, prompt }: Exchange): ResponsesRequest | Promise<ResponsesRequest> {
    const { input } = prompt
    if (typeof input === 'string' || this.#signedInputs.has(input)) return prompt
    this.#signedInputs.add(input)
    const calls: string[] = []
    for (let index = input.length - 1; index >= 0 && calls.length < MAX_RECALLED_CALLS; index--) {
      const id = unsignedCall(input[index] as unknown as Fields)
      if (id !== null) calls.push(id)
    }
    if (calls.length === 0) return prompt
    const storedSeals = calls.map(id => this.#pins.get(keyOf(caller, id)))
    if (storedSeals.some(isPending))
      return Promise.all(storedSeals).then(seals => this.#withSignatures(prompt, input, calls, seals))
    return this.#withSignatures(prompt, input, calls, storedSeals as readonly (string | null)[])
  }

  #withSignatures(
    prompt: ResponsesRequest,
    input: readonly InputItem[],
    calls: readonly string[],
    seals: readonly (string | null)[],
  ): ResponsesRequest {
    const sealOf = new Map(calls.map((id, index) => [id, seals[index] ?? null]))
    let isChanged = false
    const sealedInput = input.map(item => {
      const id = unsignedCall(item as unknown as Fields)
      const seal = id === null ? null : sealOf.get(id)
      if (seal == null || !isMarked(seal)) return item
      isChanged = true
      return { ...item, signature: seal } as InputItem
    })
    if (!isChanged) return prompt
    this.#signedInputs.add(sealedInput)
    return { ...prompt, input: sealedInput }
  }
}

function ownerOf({ organizationId, workspaceId }: Caller): readonly string[] {
  return [organizationId, workspaceId ?? '']
}

function thoughtIn(item: Fields): string {
  const { content, summary } = item as { readonly content?: unknown; readonly summary?: unknown }
  const text = records(content)
    .map(part => textOrEmpty(part['text']))
    .join('')
  return text === ''
    ? records(summary)
        .map(part => textOrEmpty(part['text']))
        .join('\n')
    : text
}

interface ThoughtlessTurn {
  /** The id of its first call. */
  readonly id: string
  /** The index of the item that its thought belongs before. */
  readonly before: number
}

/** The turns of the model that make calls and have no thought. */
function thoughtlessTurns(input: readonly InputItem[]): readonly ThoughtlessTurn[] {
  const turns: ThoughtlessTurn[] = []
  for (let index = 0; index < input.length; index++) {
    const { type, call_id: id } = input[index] as unknown as Fields
    const previous = input[index - 1]
    if (!CALL_TYPES.has(type) || typeof id !== 'string' || CALL_TYPES.has(previous?.type)) continue
    const isSaid = previous !== undefined && 'role' in previous && previous.role === 'assistant'
    const before = isSaid ? index - 1 : index
    if (input[before - 1]?.type !== 'reasoning') turns.push({ id, before })
  }
  return turns
}

function thoughtKeyOf({ organizationId, workspaceId }: Caller, callId: string): string {
  return hash('sha256', JSON.stringify(['thought', organizationId, workspaceId, callId]), 'base64')
}

/** The id of a call without a signature; null for anything else. */
function unsignedCall({ type, call_id, signature, native }: Fields): string | null {
  if (!CALL_TYPES.has(type) || typeof call_id !== 'string') return null
  const isSigned = (typeof signature === 'string' && signature !== '') || native != null
  return isSigned ? null : call_id
}

/** Includes the workspace, so that workspaces never share a signature. */
function keyOf({ organizationId, workspaceId }: Caller, callId: string): string {
  return hash('sha256', JSON.stringify(['call seal', organizationId, workspaceId, callId]), 'base64')
}

/**
 * State of a suspended subagent: its conversation so far, stored by the client until its functions have run. The client
 * gets it encrypted and bound to its workspace. Pure, except for encryption.
 */
import { Buffer } from 'node:buffer'
import type { InputItem } from '../../../protocol/items.ts'
import type { Caller } from '../../../protocol/records.ts'

/** Encrypts a text for its owner; `open` returns null if it was changed or has another owner. */
export interface StateSeal {
  seal(text: string, owner: readonly string[]): string
  open(ciphertext: string, owner: readonly string[]): string | null
}

/** A call of a client's function, with its id for the client and its id for the subagent. */
export interface ProjectedCall {
  readonly callId: string
  readonly ownCallId: string
  readonly name: string
}

export interface SuspendedSubagent {
  /** Its id for the client. */
  readonly id: string
  /** The call of the outer model. */
  readonly callId: string
  readonly taskName: string
  readonly taskDescription: string
  /** Name of the entry; null if it has none. */
  readonly instance: string | null
  /** The conversation of its model so far. */
  readonly items: readonly InputItem[]
  /** Calls that the client must answer. */
  readonly calls: readonly ProjectedCall[]
  /** Number of suspensions of the task, including this one. */
  readonly suspensions: number
}

/** Maximum bytes of a state before encryption, because the client sends it back with its next request. */
const MAX_STATE_BYTES = 1024 * 1024
/** The item in `subagent_items` that contains a state. */
const STATE_ITEM_TYPE = 'subagent_state'

/** The opaque items of a suspended subagent; null if its state is too large. */
export function sealState(
  seal: StateSeal,
  caller: Caller,
  state: SuspendedSubagent,
): readonly Readonly<Record<string, unknown>>[] | null {
  const text = JSON.stringify(state)
  if (Buffer.byteLength(text) > MAX_STATE_BYTES) return null
  return [{ type: STATE_ITEM_TYPE, encrypted_content: seal.seal(text, ownerOf(caller)) }]
}

/** The state in the opaque items that a client sends back; null if they have no state of this workspace. */
export function openState(seal: StateSeal, caller: Caller, items: unknown): SuspendedSubagent | null {
  if (!Array.isArray(items)) return null
  const item = items.find(candidate => (candidate as { type?: unknown } | null)?.type === STATE_ITEM_TYPE) as
    | { readonly encrypted_content?: unknown }
    | undefined
  const ciphertext = item?.encrypted_content
  // Base64 turns three bytes into four characters.
  if (typeof ciphertext !== 'string' || ciphertext.length > MAX_STATE_BYTES * 1.5) return null
  const text = seal.open(ciphertext, ownerOf(caller))
  // A text that can be decrypted was written by `sealState`.
  return text === null ? null : (JSON.parse(text) as SuspendedSubagent)
}

function ownerOf({ organizationId, workspaceId }: Caller): readonly string[] {
  return [organizationId, workspaceId ?? '']
}

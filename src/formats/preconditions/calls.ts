/**
 * Calls of earlier turns and their outputs: which output belongs to which call, its position, and the id that connects
 * them. Pure.
 */
import { hash } from 'node:crypto'
import type { InputItem } from '../../protocol/items.ts'
import type { CallIdRule } from './table.ts'

type Fields = Readonly<Record<string, unknown>>

export function isOutput({ type }: InputItem): boolean {
  return type?.endsWith('_output') === true
}

/** A call, as its turn and its item. */
interface Call {
  readonly turn: number
  readonly index: number
}

export interface CallPairs {
  /** For each item: the call itself; for an output, the call that it answers; undefined for other items. */
  readonly calls: readonly (Call | undefined)[]
  /** For each turn of the model: the index of its last item. */
  readonly ends: readonly number[]
  /** True if each output directly follows the turn that it answers, or another output of that turn. */
  readonly isInOrder: boolean
}

/**
 * A turn is a run of items of the model. An output answers the first open call of its id in the newest turn that has
 * one, because some servers number their calls anew in each turn.
 */
export function pairsOf(items: readonly InputItem[]): CallPairs {
  const calls: (Call | undefined)[] = []
  const ends: number[] = []
  const open = new Map<string, { readonly calls: Call[]; next: number }>()
  let turn = -1
  let isInTurn = false
  /** The turn that the next output may answer. */
  let answerable = -1
  let isInOrder = true
  for (let index = 0; index < items.length; index++) {
    const item = items[index] as InputItem
    const { call_id: value } = item as Fields
    const id = typeof value === 'string' ? value : null
    const isAnswer = item.type?.endsWith('_output') === true
    const isMessage = item.type === undefined || item.type === 'message'
    let call: Call | undefined
    if (isAnswer || (isMessage && item.role !== 'assistant')) isInTurn = false
    else {
      if (!isInTurn) turn++
      isInTurn = true
      ends[turn] = index
    }
    if (!isAnswer) answerable = isInTurn ? turn : -1
    if (id !== null && isAnswer) {
      const openCalls = open.get(id)
      // If there are more outputs than calls, the extra ones belong to the last call.
      if (openCalls !== undefined)
        call = openCalls.calls[Math.min(openCalls.next++, openCalls.calls.length - 1)]
      if (call !== undefined && call.turn !== answerable) isInOrder = false
    } else if (id !== null) {
      call = { turn, index }
      const openCalls = open.get(id)
      if (openCalls?.calls[0]?.turn === turn) openCalls.calls.push(call)
      else open.set(id, { calls: [call], next: 0 })
    }
    calls.push(call)
  }
  return { calls, ends, isInOrder }
}

/** The items in an order in which outputs directly follow the turns of their calls; null if they already do. */
export function outputsAfterCalls({ calls, ends, isInOrder }: CallPairs): readonly number[] | null {
  if (isInOrder) return null
  const outputs = new Map<number, number[]>()
  for (const [index, call] of calls.entries()) {
    if (call === undefined || call.index === index) continue
    const end = ends[call.turn] as number
    const outputsAtEnd = outputs.get(end)
    if (outputsAtEnd === undefined) outputs.set(end, [index])
    else outputsAtEnd.push(index)
  }
  const order: number[] = []
  for (const [index, call] of calls.entries()) {
    if (call !== undefined && call.index !== index) continue
    order.push(index)
    for (const output of outputs.get(index) ?? []) order.push(output)
  }
  return order
}

/** For each item, the id that replaces the caller's; null if all ids stay unchanged. */
export function outwardIds(
  items: readonly InputItem[],
  { calls }: CallPairs,
  rule: CallIdRule,
): ReadonlyMap<number, string> | null {
  const seenIds = new Set<string>()
  let isFitting = true
  for (let index = 0; index < items.length && isFitting; index++) {
    const { call_id: id } = items[index] as Fields
    if (typeof id !== 'string') continue
    const isCall = calls[index]?.index === index
    isFitting = rule.fits.test(id) && !(isCall && seenIds.has(id))
    if (isCall) seenIds.add(id)
  }
  if (isFitting) return null
  const ids = new CallIds(rule)
  const changed = new Map<number, string>()
  const ofCall = new Map<number, string>()
  for (let index = 0; index < items.length; index++) {
    const { call_id: id } = items[index] as Fields
    if (typeof id !== 'string') continue
    const call = calls[index]
    const sentId =
      call === undefined ? ids.idWithoutCall(id) : (ofCall.get(call.index) ?? ids.idOfCall(id, call.turn))
    if (call !== undefined) ofCall.set(call.index, sentId)
    if (sentId !== id) changed.set(index, sentId)
  }
  return changed.size === 0 ? null : changed
}

/** Each id depends only on the items before it, so that a conversation keeps its ids while it grows. */
class CallIds {
  readonly #rule: CallIdRule
  /** For each id that is sent: the caller's id, with its number if it repeats. */
  readonly #callerIds = new Map<string, string>()
  /** The number of calls with each of the caller's ids, in the request or in a turn. */
  readonly #counts = new Map<string, number>()

  constructor(rule: CallIdRule) {
    this.#rule = rule
  }

  idOfCall(id: string, turn: number): string {
    const scope = this.#rule.unique === 'request' ? id : `${turn} ${id}`
    const count = (this.#counts.get(scope) ?? 0) + 1
    this.#counts.set(scope, count)
    return this.#uniqueId(id, count)
  }

  /** The id for an output without a call. */
  idWithoutCall(id: string): string {
    return this.#uniqueId(id, 1)
  }

  #uniqueId(id: string, times: number): string {
    const seed = times === 1 ? id : `${id} ${times}`
    for (let salt = 0; ; salt++) {
      const candidate =
        salt === 0 ? this.#firstCandidate(id, times) : hashedId(this.#rule, id, `${salt} ${seed}`)
      const owner = this.#callerIds.get(candidate)
      if (owner !== undefined && owner !== seed) continue
      this.#callerIds.set(candidate, seed)
      return candidate
    }
  }

  #firstCandidate(id: string, times: number): string {
    if (times > 1) return hashedId(this.#rule, id, `${id} ${times}`)
    return this.#rule.fits.test(id) ? id : hashedId(this.#rule, id, id)
  }
}

const HASH_CHARS_IN_ID = 8
const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'

/** An id in the allowed alphabet: the readable part of the caller's id with a hash of `seed`, or only a hash. */
function hashedId({ forbidden, maxChars, hashed }: CallIdRule, id: string, seed: string): string {
  if (hashed === true) {
    const bytes = hash('sha256', seed, 'buffer')
    return Array.from(
      { length: maxChars },
      (_, index) => LETTERS[(bytes[index] as number) % LETTERS.length],
    ).join('')
  }
  const digest = hash('sha256', seed, 'hex').slice(0, HASH_CHARS_IN_ID)
  return `${id.slice(0, maxChars - HASH_CHARS_IN_ID - 1).replace(forbidden, '_')}_${digest}`
}

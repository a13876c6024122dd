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
  readonly at: number
}

export interface Pairs {
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
export function pairsOf(items: readonly InputItem[]): Pairs {
  const calls: (Call | undefined)[] = []
  const ends: number[] = []
  const open = new Map<string, { readonly calls: Call[]; next: number }>()
  let turn = -1
  let isInTurn = false
  /** The turn that the next output may answer. */
  let answerable = -1
  let isInOrder = true
  for (let at = 0; at < items.length; at++) {
    const item = items[at] as InputItem
    const { call_id: named } = item as Fields
    const id = typeof named === 'string' ? named : null
    const answers = item.type?.endsWith('_output') === true
    const isMessage = item.type === undefined || item.type === 'message'
    let call: Call | undefined
    if (answers || (isMessage && item.role !== 'assistant')) isInTurn = false
    else {
      if (!isInTurn) turn++
      isInTurn = true
      ends[turn] = at
    }
    if (!answers) answerable = isInTurn ? turn : -1
    if (id !== null && answers) {
      const waiting = open.get(id)
      // If there are more outputs than calls, the extra ones belong to the last call.
      if (waiting !== undefined) call = waiting.calls[Math.min(waiting.next++, waiting.calls.length - 1)]
      if (call !== undefined && call.turn !== answerable) isInOrder = false
    } else if (id !== null) {
      call = { turn, at }
      const waiting = open.get(id)
      if (waiting?.calls[0]?.turn === turn) waiting.calls.push(call)
      else open.set(id, { calls: [call], next: 0 })
    }
    calls.push(call)
  }
  return { calls, ends, isInOrder }
}

/** The items in an order in which outputs directly follow the turns of their calls; null if they already do. */
export function outputsAfterCalls({ calls, ends, isInOrder }: Pairs): readonly number[] | null {
  if (isInOrder) return null
  const outputs = new Map<number, number[]>()
  for (const [at, call] of calls.entries()) {
    if (call === undefined || call.at === at) continue
    const end = ends[call.turn] as number
    const atEnd = outputs.get(end)
    if (atEnd === undefined) outputs.set(end, [at])
    else atEnd.push(at)
  }
  const order: number[] = []
  for (const [at, call] of calls.entries()) {
    if (call !== undefined && call.at !== at) continue
    order.push(at)
    for (const output of outputs.get(at) ?? []) order.push(output)
  }
  return order
}

/** For each item, the id that replaces the caller's; null if all ids stay unchanged. */
export function outwardIds(
  items: readonly InputItem[],
  { calls }: Pairs,
  rule: CallIdRule,
): ReadonlyMap<number, string> | null {
  const seen = new Set<string>()
  let isFitting = true
  for (let at = 0; at < items.length && isFitting; at++) {
    const { call_id: id } = items[at] as Fields
    if (typeof id !== 'string') continue
    const isCall = calls[at]?.at === at
    isFitting = rule.fits.test(id) && !(isCall && seen.has(id))
    if (isCall) seen.add(id)
  }
  if (isFitting) return null
  const ids = new CallIds(rule)
  const changed = new Map<number, string>()
  const ofCall = new Map<number, string>()
  for (let at = 0; at < items.length; at++) {
    const { call_id: id } = items[at] as Fields
    if (typeof id !== 'string') continue
    const call = calls[at]
    const outward = call === undefined ? ids.plain(id) : (ofCall.get(call.at) ?? ids.next(id, call.turn))
    if (call !== undefined) ofCall.set(call.at, outward)
    if (outward !== id) changed.set(at, outward)
  }
  return changed.size === 0 ? null : changed
}

/** Each id depends only on the items before it, so that a conversation keeps its ids while it grows. */
class CallIds {
  readonly #rule: CallIdRule
  /** The caller's id for each id that is sent. */
  readonly #callerIds = new Map<string, string>()
  /** How often each of the caller's ids has occurred. */
  readonly #times = new Map<string, number>()

  constructor(rule: CallIdRule) {
    this.#rule = rule
  }

  next(id: string, turn: number): string {
    const scope = this.#rule.unique === 'request' ? id : `${turn} ${id}`
    const times = (this.#times.get(scope) ?? 0) + 1
    this.#times.set(scope, times)
    return this.#of(id, times)
  }

  /** The id for an output without a call. */
  plain(id: string): string {
    return this.#of(id, 1)
  }

  #of(id: string, times: number): string {
    const whole = times === 1 ? id : `${id} ${times}`
    for (let salt = 0; ; salt++) {
      const outward = salt === 0 ? this.#first(id, times) : made(this.#rule, id, `${salt} ${whole}`)
      const owner = this.#callerIds.get(outward)
      if (owner !== undefined && owner !== whole) continue
      this.#callerIds.set(outward, whole)
      return outward
    }
  }

  #first(id: string, times: number): string {
    if (times > 1) return made(this.#rule, id, `${id} ${times}`)
    return this.#rule.fits.test(id) ? id : made(this.#rule, id, id)
  }
}

const HASH_CHARS = 8
const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'

/** An id in the allowed alphabet: the readable part of the caller's id with a hash of `whole`, or only a hash. */
function made({ foreign, maxChars, hashed }: CallIdRule, id: string, whole: string): string {
  if (hashed === true) {
    const bytes = hash('sha256', whole, 'buffer')
    return Array.from({ length: maxChars }, (_, at) => LETTERS[(bytes[at] as number) % LETTERS.length]).join(
      '',
    )
  }
  const digest = hash('sha256', whole, 'hex').slice(0, HASH_CHARS)
  return `${id.slice(0, maxChars - HASH_CHARS - 1).replace(foreign, '_')}_${digest}`
}

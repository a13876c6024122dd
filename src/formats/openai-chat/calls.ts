/**
 * Assembles the tool calls of one Chat Completions reply from fragments. Pure. Hot path.
 * Providers identify calls in many ways: an index from 0 or 1, the same index for all, or no index; an id in the first
 * fragment, in each, '', or never; a repeated name; arguments as text, as an object, or all at once.
 */
import { GatewayError } from '../../base/errors.ts'
import { filled, type Json, jsonText, record } from '../../base/json.ts'
import type { Delta } from '../format.ts'
import { JsonExtent } from '../json-extent.ts'
import type { Withheld } from '../withheld.ts'

/** Most calls in one reply: a loop in a model must not use up memory. */
const CALLS_MAX = 1024

interface Call {
  readonly item: number
  readonly index: number | null
  id: string | null
  name: string | null
  readonly custom: boolean
  /** Of the input so far; decides if a fragment continues this call or begins the next one. */
  readonly extent: JsonExtent
  /** Input that came before the name, until the call is opened. */
  waiting: string
  opened: boolean
  signature: string | null
  /** True if the opening carried the signature; a later signature goes out with the close. */
  signatureSent: boolean
}

interface Fragment {
  readonly index: number | null
  readonly id: string | null
  readonly name: string | null
  readonly input: string
}

/** The tool calls of one reply. */
export class ChatCalls {
  readonly #emit: (delta: Delta) => void
  readonly #nextItem: () => number
  readonly #withheld: Withheld
  readonly #calls: Call[] = []

  constructor(emit: (delta: Delta) => void, nextItem: () => number, withheld: Withheld) {
    this.#emit = emit
    this.#nextItem = nextItem
    this.#withheld = withheld
  }

  get any(): boolean {
    return this.#calls.length > 0
  }

  /**
   * Takes one element of `tool_calls`, or `{function}` around a legacy `function_call`.
   * @throws GatewayError `provider_unavailable` for too many calls.
   */
  take(raw: Json): void {
    const custom = record(raw['custom'])
    const called = record(raw['function'])
    // The pieces after the first one of a stream have neither type nor name.
    const isCustom =
      custom !== null && (raw['type'] === 'custom' || filled(custom['name']) !== null || called === null)
    const body = isCustom ? custom : called
    const index = raw['index']
    const fragment = {
      index: typeof index === 'number' ? index : null,
      id: filled(raw['id']),
      name: filled(body?.['name']),
      input: inputText(isCustom ? body?.['input'] : body?.['arguments']),
    }
    let call = this.#findContinued(fragment)
    if (call === null) {
      if (fragment.name === null && fragment.id === null && fragment.input === '') return
      call = this.#begin(fragment, isCustom)
    }
    call.name ??= fragment.name
    if (call.id === null && fragment.id !== null) {
      call.id = fragment.id
      this.#withheld.add(call.id)
    }
    if (call.signature === null) {
      call.signature = signatureIn(raw)
      if (call.signature !== null) this.#withheld.add(call.signature)
    }
    call.extent.add(fragment.input)
    if (call.opened) {
      if (fragment.input !== '') this.#emit({ kind: 'arguments', item: call.item, text: fragment.input })
    } else {
      call.waiting += fragment.input
      if (call.name !== null) this.#open(call, call.name)
      else this.#withheld.add(fragment.input)
    }
  }

  /**
   * Call at the end of the reply. A call without arguments gets `{}`, unless the reply was cut.
   * @throws GatewayError `provider_unavailable` for a call without a name.
   */
  finish(cut: boolean): void {
    for (const call of this.#calls) {
      if (!call.opened)
        throw new GatewayError('provider_unavailable', 'The provider sent a tool call without a name')
      if (call.extent.isBlank && !call.custom && !cut)
        this.#emit({ kind: 'arguments', item: call.item, text: '{}' })
      if (call.signature !== null && !call.signatureSent) {
        this.#emit({ kind: 'close', item: call.item, fields: { signature: call.signature } })
      }
    }
  }

  /** The call that a fragment continues; null if it begins one. */
  #findContinued(fragment: Fragment): Call | null {
    const { id, index, name, input } = fragment
    if (id !== null) {
      const same = this.#calls.findLast(call => call.id === id && (index === null || call.index === index))
      if (same !== undefined) return same
    }
    const last = index === null ? this.#calls.at(-1) : this.#calls.findLast(call => call.index === index)
    if (last === undefined) return null
    if (id !== null && last.id !== null) return null
    if (name === null || last.name === null) return last
    // A name again: repeated by a chatty provider, or the next call of one that counts nothing.
    const next = last.extent.isComplete && (name !== last.name || input !== '')
    return next ? null : last
  }

  #begin(fragment: Fragment, custom: boolean): Call {
    if (this.#calls.length === CALLS_MAX) {
      throw new GatewayError('provider_unavailable', 'The provider sent too many tool calls')
    }
    const call: Call = {
      item: this.#nextItem(),
      index: fragment.index,
      id: null,
      name: null,
      custom,
      extent: new JsonExtent(),
      waiting: '',
      opened: false,
      signature: null,
      signatureSent: false,
    }
    this.#calls.push(call)
    return call
  }

  #open(call: Call, name: string): void {
    call.opened = true
    call.signatureSent = call.signature !== null
    this.#emit({
      kind: 'open',
      item: call.item,
      start: {
        type: call.custom ? 'custom_tool_call' : 'function_call',
        id: null,
        callId: call.id,
        name,
        extra: call.signature === null ? null : { signature: call.signature },
      },
    })
    if (call.waiting !== '') this.#emit({ kind: 'arguments', item: call.item, text: call.waiting })
    call.waiting = ''
  }
}

/** Arguments are JSON text; some providers send the object itself. */
function inputText(value: unknown): string {
  if (typeof value === 'string') return value
  if (value === undefined || value === null) return ''
  return jsonText(value)
}

/** Google signs calls; a later turn must send the signature back. */
function signatureIn(raw: Json): string | null {
  const google = record(record(raw['extra_content'])?.['google'])
  return filled(google?.['thought_signature']) ?? filled(raw['thought_signature'])
}

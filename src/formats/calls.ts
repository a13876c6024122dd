/**
 * Assembles the tool calls of one reply, for all formats. Providers identify calls in many ways: an index from 0 or 1,
 * the same index for all, or none; an id in the first piece, in each, as the word `null`, or never; a repeated name;
 * arguments as text, as an object, all at once, in pieces, or in pieces and once more as a whole. Pure. Hot path.
 *
 * A call that was cut off is never reported as finished: it is complete if its arguments are a complete object, or if
 * the reply continues after it.
 */
import { GatewayError } from '../base/errors.ts'
import { filled, type Json, jsonText } from '../base/json.ts'
import type { Delta } from './format.ts'
import { JsonExtent } from './json-extent.ts'
import { TextMark } from './text-mark.ts'
import type { Withheld } from './withheld.ts'

/** The most calls in one reply whose pieces must be matched with them: each piece is compared with all of them. */
const CALLS_MAX = 1024

/** The beginning of a call. */
export interface CallStart {
  readonly isCustom: boolean
  /** The id of the item. */
  readonly id: string | null
  readonly callId: string | null
  /** Null: not known yet; the call is emitted once the name is known. */
  readonly name: string | null
  /** Fields that are passed on unchanged. */
  readonly extra: Json | null
}

/** A piece of a call that must be matched with its call. */
export interface CallPiece extends Omit<CallStart, 'id'> {
  readonly index: number | null
  readonly input: string
}

const EMPTY_ARGUMENTS = '{}'
/** Words that some servers send in place of empty or missing arguments. */
const NO_ARGUMENTS: ReadonlySet<string> = new Set(['', EMPTY_ARGUMENTS, '""', 'null', 'undefined'])
/** Beginnings of these words. No arguments begin like them. */
const NO_ARGUMENTS_BEGINNING = /^\s*(?:n(?:u(?:ll?)?)?|u(?:n(?:d(?:e(?:f(?:i(?:n(?:ed?)?)?)?)?)?)?)?)\s*$/

/** The first piece of arguments, which may be empty. */
const ARGUMENTS_BEGINNING = /^\s*(?:\{|$)/

function meansNoArguments(input: string): boolean {
  return input.length < 16 && (NO_ARGUMENTS.has(input.trim()) || NO_ARGUMENTS_BEGINNING.test(input))
}

/** The id of a call; null for a word that means "no id". */
export function callIdIn(value: unknown): string | null {
  const id = filled(value)
  return id === 'null' || id === 'undefined' || id === 'None' ? null : id
}

/** Arguments are JSON text; some providers send the object itself. */
export function inputText(value: unknown): string {
  if (typeof value === 'string') return value
  return value === undefined || value === null ? '' : jsonText(value)
}

/** One call. It emits no deltas after its close. */
export class Call {
  readonly item: number
  readonly isCustom: boolean
  readonly index: number | null
  /** Only this class writes this field and the next two. */
  callId: string | null
  name: string | null
  isClosed = false
  readonly #id: string | null
  readonly #emit: (delta: Delta) => void
  readonly #withheld: Withheld
  /** Calls that have ended but are not closed. */
  readonly #endedCalls: Call[]
  /** The extent of the input so far. */
  readonly #extent = new JsonExtent()
  readonly #mark = new TextMark()
  /** Input that was not emitted, because the name is missing or the input may mean "no arguments". */
  #waitingInput = ''
  #extra: Json | null
  #lateExtra: Json | null = null
  #isAnnounced = false
  /** Set once the provider has ended the call. */
  #ending: { readonly fields: Json | null } | null = null

  constructor(
    emit: (delta: Delta) => void,
    withheld: Withheld,
    endedCalls: Call[],
    item: number,
    index: number | null,
    start: CallStart,
  ) {
    this.#emit = emit
    this.#withheld = withheld
    this.#endedCalls = endedCalls
    this.item = item
    this.index = index
    this.isCustom = start.isCustom
    this.callId = start.callId
    this.#id = start.id
    this.name = start.name
    this.#extra = start.extra
    if (start.name !== null) this.#announce(start.name)
  }

  /** True as long as the input is blank. */
  get isBlank(): boolean {
    return this.#extent.isBlank
  }

  get isComplete(): boolean {
    return this.#extent.isComplete
  }

  /** Sets the name, the id and other fields if they arrive after the first piece. */
  supply({ name, callId, extra }: Pick<CallStart, 'name' | 'callId' | 'extra'>): void {
    if (this.callId === null && callId !== null) {
      this.callId = callId
      this.#withheld.add(callId)
    }
    if (extra !== null && this.#extra === null) {
      this.#extra = extra
      if (this.#isAnnounced) this.#lateExtra = extra
      this.#withheld.add(extra)
    }
    if (name !== null && this.name === null) {
      this.name = name
      this.#announce(name)
    }
  }

  /** Adds a piece of the input. */
  add(text: string): void {
    if (text === '' || this.isClosed) return
    if (!this.#isAnnounced || (!this.isCustom && this.#extent.isBlank)) this.#addFirst(text)
    else this.#emitInput(text)
  }

  /**
   * Adds the part of the whole input (text, or the value itself) that no piece had. A whole that contradicts the pieces
   * is ignored.
   */
  complete(wholeInput: unknown): void {
    if (this.isClosed) return
    const text = typeof wholeInput === 'string' ? wholeInput : inputText(wholeInput)
    const { length } = this.#mark
    // If only a beginning has arrived, an empty object adds nothing.
    if (!this.isCustom && text.trim() !== EMPTY_ARGUMENTS && meansNoArguments(text)) return
    if (text.length <= length || !this.#mark.isBeginningOf(text)) return
    this.#waitingInput = ''
    if (this.#isAnnounced) this.#emitInput(text.slice(length))
    else this.#addFirst(text)
  }

  /** True if a piece repeats the whole call. */
  isRepeatedBy(input: string): boolean {
    return this.isComplete && this.#mark.equals(input)
  }

  /**
   * Ends the call, as the provider reports it. A call with incomplete arguments waits for what follows: in a reply that
   * was cut off, its end is emitted only then. `fields`: for the close; fields with a status are emitted at once.
   */
  end(fields: Json | null): void {
    if (this.isClosed || this.#ending !== null) return
    this.#ending = { fields }
    const isComplete = this.isCustom || this.#extent.isComplete
    if (isComplete || fields?.['status'] === 'incomplete') this.close(false, isComplete)
    else {
      this.#endedCalls.push(this)
      this.#withheld.add(fields)
    }
  }

  /** @throws GatewayError `provider_unavailable` for a call without a name, unless the reply was cut off */
  close(isCut: boolean, isComplete = this.isCustom || this.#extent.isComplete): void {
    if (this.isClosed) return
    this.isClosed = true
    if (!this.#isAnnounced) {
      if (isCut) return
      throw new GatewayError('provider_unavailable', 'The provider sent a tool call without a name')
    }
    const fields = { ...this.#lateExtra, ...this.#ending?.fields }
    if (!isComplete) {
      if (isCut) fields['status'] = 'incomplete'
      else if (this.isBlank && fields['status'] !== 'incomplete')
        this.#emit({ kind: 'arguments', item: this.item, text: EMPTY_ARGUMENTS })
    }
    this.#mark.forget()
    this.#emit({ kind: 'close', item: this.item, fields: Object.keys(fields).length === 0 ? null : fields })
  }

  #announce(name: string): void {
    this.#isAnnounced = true
    this.#emit({
      kind: 'open',
      item: this.item,
      start: {
        type: this.isCustom ? 'custom_tool_call' : 'function_call',
        id: this.#id,
        callId: this.callId,
        name,
        extra: this.#extra,
      },
    })
    const input = this.#waitingInput
    this.#waitingInput = ''
    if (input !== '') this.add(input)
  }

  /** Stores input that arrives before the name, or that may mean "no arguments". */
  #addFirst(text: string): void {
    const earlierInput = this.#waitingInput
    // A complete word for "no arguments" is not part of the input that follows.
    const input = !this.isCustom && NO_ARGUMENTS.has(earlierInput.trim()) ? text : earlierInput + text
    if (!this.#isAnnounced || (!this.isCustom && meansNoArguments(input))) {
      this.#waitingInput = input.trim() === '' && earlierInput !== '' ? earlierInput : input
      this.#withheld.add(text)
      return
    }
    this.#waitingInput = ''
    this.#emitInput(input)
  }

  #emitInput(text: string): void {
    this.#extent.add(text)
    this.#mark.add(text)
    this.#emit({ kind: 'arguments', item: this.item, text })
  }
}

/** The calls of one reply. */
export class Calls {
  readonly #emit: (delta: Delta) => void
  readonly #withheld: Withheld
  readonly #calls: Call[] = []
  /** The calls that have ended but are not closed. */
  readonly #endedCalls: Call[] = []

  constructor(emit: (delta: Delta) => void, withheld: Withheld) {
    this.#emit = emit
    this.#withheld = withheld
  }

  begin(item: number, start: CallStart, index: number | null = null): Call {
    const call = new Call(this.#emit, this.#withheld, this.#endedCalls, item, index, start)
    this.#calls.push(call)
    return call
  }

  /**
   * Adds a piece to the call that it continues, or starts a new call. `nextItem`: numbers the item of a new call. An
   * empty piece starts no call.
   * @throws GatewayError `provider_unavailable` for too many calls
   */
  piece(piece: CallPiece, nextItem: () => number): void {
    const { callId, index, input, isCustom, name, extra } = piece
    const call = this.#callFor(piece)
    if (call === null) {
      if (name === null && callId === null && input === '') return
      if (this.#calls.length === CALLS_MAX) {
        throw new GatewayError('provider_unavailable', 'The provider sent too many tool calls')
      }
      if (callId !== null) this.#withheld.add(callId)
      this.begin(nextItem(), { isCustom, id: null, callId, name, extra }, index).add(input)
    } else {
      call.supply(piece)
      if (!call.isRepeatedBy(input)) call.add(input)
    }
  }

  /** Closes the calls that have ended. Call it if the reply continues after them. */
  settle(): void {
    if (this.#endedCalls.length > 0) for (const call of this.#endedCalls.splice(0)) call.close(false)
  }

  /** Ends all calls at the end of the reply. @throws as `Call.close` */
  finish(isCut: boolean): void {
    for (const call of this.#calls) if (!call.isClosed) call.close(isCut)
  }

  /** The call that a piece continues; null if it starts a new one. */
  #callFor({ callId, index, name, input }: CallPiece): Call | null {
    const calls = this.#calls
    if (callId !== null) {
      const sameIdCall = calls.findLast(
        call => call.callId === callId && (index === null || call.index === null || call.index === index),
      )
      if (sameIdCall !== undefined) {
        // Another whole call with the same id is a new call with a wrong id.
        return name !== null && input !== '' && sameIdCall.isComplete && !sameIdCall.isRepeatedBy(input)
          ? null
          : sameIdCall
      }
    }
    const candidate = index === null ? calls.at(-1) : calls.findLast(call => call.index === index)
    // A piece without a name, with an index that was never opened, can only belong to the open call.
    if (candidate === undefined) return name === null && callId === null ? this.#onlyOpen() : null
    if (callId !== null && candidate.callId !== null) {
      // The id is different. The index decides, unless this is the beginning of another call.
      const isBeginning =
        name !== null &&
        (name !== candidate.name ||
          candidate.isBlank ||
          candidate.isComplete ||
          ARGUMENTS_BEGINNING.test(input))
      return index === null || isBeginning ? null : candidate
    }
    if (name === null || candidate.name === null) return candidate
    // A repeated name: either the provider repeats it in every fragment, or it is the next call of a provider that
    // sends no index.
    return candidate.isComplete && (name !== candidate.name || input !== '') ? null : candidate
  }

  #onlyOpen(): Call | null {
    let open: Call | null = null
    for (const call of this.#calls) {
      if (call.isComplete) continue
      if (open !== null) return null
      open = call
    }
    return open
  }
}

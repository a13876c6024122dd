/**
 * Decodes one reply in the Responses wire format, streamed or whole, into Deltas. Pure. Hot path. Providers differ in
 * ids, indexes, event names and the content of the final object. Therefore `output_index` identifies an item, and the
 * final object only adds content that no event had.
 */
import { GatewayError } from '../../base/errors.ts'
import {
  countOrZero,
  filled,
  isRecord,
  type Json,
  parseFrame,
  recordOrEmpty,
  records,
  wholeNumber,
} from '../../base/json.ts'
import { providerFailure } from '../failure.ts'
import { finishReason } from '../finish-reasons.ts'
import type { Decoder, Delta, Usage } from '../format.ts'
import { ownReasoning } from '../reasoning.ts'
import { jsonOf, type TakeMessage } from '../whole-message.ts'
import { nameIn, oneMore } from '../withheld.ts'
import { failureOf, tellsError } from './failure.ts'
import { isProgress, isSearch, progressFields } from './hosted.ts'
import { type Form, formOf, plainMessage, type Slot, Slots, startType } from './slots.ts'

type Handler = (decoder: ResponsesDecoder, event: Json) => void

function delta(form: Form, index: 'content_index' | 'summary_index'): Handler {
  return (decoder, event) => decoder.takeText(form, event, index, event['delta'], true)
}

function done(form: Form, index: 'content_index' | 'summary_index', key: 'text' | 'refusal'): Handler {
  return (decoder, event) => decoder.takeText(form, event, index, event[key], false)
}

const started: Handler = (decoder, event) => decoder.start(recordOrEmpty(event['response']))
const ended: Handler = (decoder, event) => decoder.finish(event)
const failed: Handler = (_, event) => {
  throw failureOf(event, null)
}
const wholePart: Handler = (decoder, event) => decoder.takePart(event)

/** Handlers by event type, in the spellings of all known providers. The decoder ignores others but progress. */
const HANDLERS: ReadonlyMap<string, Handler> = new Map<string, Handler>([
  ['response.created', started],
  ['response.queued', started],
  ['response.in_progress', started],
  ['response.output_item.added', (decoder, event) => decoder.add(event)],
  ['response.output_item.done', (decoder, event) => decoder.closeItem(event)],
  ['response.content_part.added', wholePart],
  ['response.content_part.done', wholePart],
  ['response.reasoning_part.added', wholePart],
  ['response.reasoning_part.done', wholePart],
  ['response.reasoning_summary_part.added', wholePart],
  ['response.reasoning_summary_part.done', wholePart],
  ['response.output_text.delta', delta('text', 'content_index')],
  ['response.output_text.done', done('text', 'content_index', 'text')],
  ['response.output_text.annotation.added', (decoder, event) => decoder.annotation(event)],
  ['response.refusal.delta', delta('refusal', 'content_index')],
  ['response.refusal.done', done('refusal', 'content_index', 'refusal')],
  ['response.reasoning_text.delta', delta('reasoning', 'content_index')],
  ['response.reasoning_text.done', done('reasoning', 'content_index', 'text')],
  ['response.reasoning.delta', delta('reasoning', 'content_index')],
  ['response.reasoning.done', done('reasoning', 'content_index', 'text')],
  ['response.reasoning_summary_text.delta', delta('summary', 'summary_index')],
  ['response.reasoning_summary_text.done', done('summary', 'summary_index', 'text')],
  ['response.reasoning_summary.delta', delta('summary', 'summary_index')],
  ['response.reasoning_summary.done', done('summary', 'summary_index', 'text')],
  ['response.function_call_arguments.delta', (decoder, event) => decoder.input(event, event['delta'], true)],
  [
    'response.function_call_arguments.done',
    (decoder, event) => decoder.input(event, event['arguments'], false),
  ],
  ['response.custom_tool_call_input.delta', (decoder, event) => decoder.input(event, event['delta'], true)],
  ['response.custom_tool_call_input.done', (decoder, event) => decoder.input(event, event['input'], false)],
  ['response.completed', ended],
  ['response.done', ended],
  ['response.incomplete', ended],
  ['response.cancelled', ended],
  ['response.failed', failed],
  ['response.error', failed],
  ['error', failed],
])

/** Status of a response whose own field is missing or out of date. */
const STATUS_OF_EVENT: ReadonlyMap<unknown, string> = new Map([
  ['response.completed', 'completed'],
  ['response.done', 'completed'],
  ['response.incomplete', 'incomplete'],
  ['response.cancelled', 'cancelled'],
])

const RUNNING_STATUSES: ReadonlySet<unknown> = new Set(['queued', 'in_progress'])

export class ResponsesDecoder implements Decoder {
  readonly #emit: (delta: Delta) => void
  /** The provider whose own reasoning has no format name; null: none. */
  readonly #maker: string | null
  /** Both are null until an item opens. A reply that is one message opens no item. */
  #slots: Slots | null = null
  #lookup: SlotLookup | null = null
  readonly #takeMessage: TakeMessage | null
  /** The whole reply; null: it is streamed. */
  #whole: string | null = null
  /** How many messages were emitted whole. */
  #messages = 0
  #started = false
  #finished = false

  /** `maker`: slug of the provider after which reasoning items without a format of their own are named. */
  constructor(emit: (delta: Delta) => void, maker: string | null, takeMessage: TakeMessage | null = null) {
    this.#emit = emit
    this.#takeMessage = takeMessage
    this.#maker = maker
  }

  get withheld(): number {
    return this.#slots?.withheld.bytes ?? 0
  }

  frame(event: string, data: string): void {
    if (this.#finished || data === '' || data === '[DONE]') return
    const value = parseFrame(data)
    if (!isRecord(value)) throw failureOf(value, null)
    const type = filled(value['type']) ?? event
    const handler = HANDLERS.get(type)
    if (handler !== undefined) handler(this, value)
    else if (type !== '' && isProgress(type)) this.#progress(type, value)
    else if (type === '' || value['object'] === 'response') this.#body(value, data)
    // Events with other names are hints (keep-alives, rate limits, undocumented kinds), unless one is an error.
    else if (!type.startsWith('response.') && tellsError(value)) throw failureOf(value, null)
  }

  end(): void {
    if (!this.#finished) {
      throw new GatewayError('provider_unavailable', 'The provider ended the reply before it was complete')
    }
  }

  start(response: Json): void {
    if (this.#started) return
    this.#started = true
    this.#emit({ kind: 'start', upstreamId: nameIn(response['id']), model: nameIn(response['model']) })
  }

  add(event: Json): void {
    const item = event['item']
    if (!isRecord(item)) return
    const index = outputIndex(event)
    const known = this.#lookup?.at(index) ?? null
    // Some providers announce an item twice; another id under a used index is another item.
    if (known !== null && !known.closed && isSameItem(known, item)) return
    this.#open(item, index)
  }

  closeItem(event: Json): void {
    const item = event['item']
    if (!isRecord(item)) return
    const type = startType(item)
    const known = this.#lookup?.find({ output_index: event['output_index'], item_id: item['id'] }) ?? null
    const isSame = known !== null && known.type === type
    if (isSame && known.closed && isSameItem(known, item)) return
    const slot = isSame && !known.closed ? known : this.#open(item, outputIndex(event))
    if (slot !== null) this.#slots?.close(slot, item)
  }

  /** Reads a piece of a part's text, or all of it. */
  takeText(form: Form, event: Json, indexKey: string, text: unknown, piece: boolean): void {
    if (typeof text !== 'string') return
    const slot = this.#slotFor(form, event)
    if (slot === null) return
    const index = wholeNumber(event[indexKey]) ?? 0
    if (piece) this.#slots?.append(slot, form, index, text, event['logprobs'])
    else this.#slots?.complete(slot, form, index, text, event['logprobs'])
  }

  takePart(event: Json): void {
    const part = recordOrEmpty(event['part'])
    const form = formOf(part)
    const text = form === 'refusal' ? part['refusal'] : part['text']
    // An empty part is emitted with its item: until then, text may still arrive.
    if (form === null || typeof text !== 'string' || text === '') return
    const slot = this.#slotFor(form, event)
    const index = wholeNumber(event[form === 'summary' ? 'summary_index' : 'content_index']) ?? 0
    if (slot !== null) this.#slots?.complete(slot, form, index, text, part['logprobs'])
  }

  annotation(event: Json): void {
    if (!isRecord(event['annotation'])) return
    const slot = this.#slotFor('text', event)
    if (slot !== null)
      this.#slots?.annotate(slot, wholeNumber(event['content_index']) ?? 0, event['annotation'])
  }

  /** Reads arguments of an open call. Arguments of an unknown call arrive again with its item, which has the name. */
  input(event: Json, text: unknown, piece: boolean): void {
    const slot =
      this.#lookup?.find(event) ??
      this.#lookup?.current(event, 'function_call') ??
      this.#lookup?.current(event, 'custom_tool_call')
    if (slot == null || slot.closed) return
    if (!piece) slot.call?.complete(text)
    else if (typeof text === 'string') slot.call?.add(text)
  }

  /** Ends the reply. `event` has the final response, whose items complete the streamed ones. */
  finish(event: Json): void {
    const response = recordOrEmpty(event['response'])
    this.#conclude(response, STATUS_OF_EVENT.get(event['type']) ?? 'completed')
  }

  #body(body: Json, data: string): void {
    const response = isRecord(body['response']) ? body['response'] : body
    if (
      response['object'] === 'response' ||
      (response['object'] === undefined && Array.isArray(response['output']))
    ) {
      if (RUNNING_STATUSES.has(response['status'])) {
        this.start(response)
        return
      }
      this.#whole = data
      this.#conclude(response, tellsError(response) ? 'failed' : 'completed')
    } else if (tellsError(body)) throw failureOf(body, null)
    else throw new GatewayError('provider_unavailable', 'The provider sent a body that is not a response')
  }

  #conclude(response: Json, eventStatus: string): void {
    const responseStatus = filled(response['status'])
    const status =
      responseStatus === null || RUNNING_STATUSES.has(responseStatus) ? eventStatus : responseStatus
    if (status === 'failed') throw failureOf(response, null)
    if (status === 'cancelled') {
      throw new GatewayError('provider_unavailable', 'The provider cancelled the reply')
    }
    this.start(response)
    this.#reconcile(response)
    const slots = this.#slots?.all ?? NONE
    const calls = slots.some(slot => slot.call !== null)
    const isIncomplete = status === 'incomplete'
    const native = isIncomplete
      ? (filled(recordOrEmpty(response['incomplete_details'])['reason']) ?? status)
      : status
    const hasSaid = slots.length + this.#messages > 0
    const reason = isIncomplete ? finishReason(native, hasSaid) : calls ? 'tool_calls' : 'stop'
    if (reason === 'content_filter' && !hasSaid) {
      throw providerFailure({
        status: 400,
        code: 'content_filter',
        message: 'The provider blocked the prompt',
      })
    }
    this.#slots?.calls?.finish(isIncomplete)
    this.#finished = true
    const usage = usageOf(response, slots.filter(slot => isSearch(slot.form)).length)
    if (usage !== null) this.#emit({ kind: 'usage', usage })
    this.#emit({ kind: 'finish', reason, native, serviceTier: filled(response['service_tier']) })
    this.#slots?.forget()
    this.#whole = null
  }

  /** Adds content of the final output that no event had; the output may be empty, shorter or have other ids. */
  #reconcile(response: Json): void {
    const finals = records(response['output'])
    // A reply that is one document has streamed nothing to match.
    const matches = this.#lookup?.match(finals) ?? NONE
    const takesMessages = this.#takeMessage !== null && this.#whole !== null && this.#slots === null
    for (let at = 0; at < finals.length; at++) {
      const item = finals[at] as Json
      if (takesMessages && this.#tookMessage(item, finals)) continue
      const slot = matches[at] ?? this.#open(item, NO_INDEX)
      if (slot === null) continue
      if (!slot.closed) this.#slots?.close(slot, item)
      // Its own end may have been without arguments.
      else if (slot.call !== null) this.#slots?.settle(slot, item)
    }
    const all = this.#slots?.all ?? NONE
    // An item that is still open was never finished: all its content may be in its announcement.
    for (const slot of all) if (!slot.closed) this.#slots?.settle(slot, slot.form)
    if (all.length + this.#messages === 0) this.#textOnly(response)
  }

  /** True for a message that was emitted whole. */
  #tookMessage(item: Json, finals: readonly Json[]): boolean {
    const plain = plainMessage(item)
    if (plain === null) return false
    const others = (this.#slots?.all.length ?? 0) + this.#messages++
    if (others > 0) oneMore(others, 'output items')
    const { text } = plain
    // Texts of several messages may become one.
    const isOnly = finals.length === 1 || finals.filter(one => startType(one) === 'message').length === 1
    const json = isOnly ? jsonOf(text, this.#whole ?? '', 'text') : null
    this.#takeMessage?.({ ...plain, json })
    return true
  }

  /** Reads `output_text` of servers that send no items. */
  #textOnly(response: Json): void {
    const text = filled(response['output_text'])
    const slot = text === null ? null : this.#open({ type: 'message' }, NO_INDEX)
    if (slot !== null) this.#slots?.close(slot, { content: text })
  }

  #progress(type: string, event: Json): void {
    const slot = this.#lookup?.find(event)
    if (slot == null || slot.closed || slot.type !== 'hosted') return
    this.#slots?.progress(slot, type.slice('response.'.length), progressFields(event))
  }

  #open(item: Json, index: number): Slot | null {
    const type = startType(item)
    if (type === null) return null
    this.start({})
    this.#slots ??= new Slots(this.#emit, this.#maker === null ? null : ownReasoning(this.#maker))
    this.#lookup ??= new SlotLookup(this.#slots)
    const slot = this.#slots.open(type, item)
    this.#lookup.add(slot, index)
    return slot
  }

  /** The item for this form of text; opens it if no event announced it. */
  #slotFor(form: Form, event: Json): Slot | null {
    const type = form === 'text' || form === 'refusal' ? 'message' : 'reasoning'
    const known = this.#lookup?.find(event) ?? this.#lookup?.current(event, type)
    if (known != null) return known.type === type && !known.closed ? known : null
    return this.#open({ type, id: event['item_id'] }, outputIndex(event))
  }
}

// Lookup of items by events and final forms. Providers name an item by its output index, its id, both, or neither.
// Hot path: `find` runs per token.

/** Stands for a missing output index. */
const NO_INDEX = -1
const NONE: readonly never[] = []

class SlotLookup {
  readonly #slots: Slots
  /** The current item of each output index of the provider; null while the latest item is the only one. */
  #byIndex: Map<number, Slot> | null = null
  #latest: Slot | null = null
  #latestIndex = NO_INDEX

  constructor(slots: Slots) {
    this.#slots = slots
  }

  add(slot: Slot, index: number): void {
    if (this.#latest !== null) {
      this.#byIndex ??= new Map([[this.#latestIndex, this.#latest]])
      this.#byIndex.set(index, slot)
    }
    this.#latest = slot
    this.#latestIndex = index
  }

  at(index: number): Slot | null {
    if (index === NO_INDEX) return null
    return index === this.#latestIndex ? this.#latest : (this.#byIndex?.get(index) ?? null)
  }

  find(event: Json): Slot | null {
    const index = outputIndex(event)
    if (index !== NO_INDEX) return this.at(index)
    const id = filled(event['item_id'])
    return id === null ? this.#latest : this.#slots.byId(id)
  }

  /** The open item, for an event without an index and with an unknown id. */
  current(event: Json, type: Slot['type']): Slot | null {
    const latest = this.#latest
    return outputIndex(event) === NO_INDEX && latest?.type === type && !latest.closed ? latest : null
  }

  /**
   * The streamed item of each final item, if any: by id, else by call id, else by position, else the first of its type
   * that is left. This order finds items with changed ids and repeats none.
   */
  match(finals: readonly Json[]): readonly (Slot | undefined)[] {
    const slots = this.#slots.all
    const matches: (Slot | undefined)[] = new Array(finals.length).fill(undefined)
    const unmatched = new Set(slots)
    const match = (choose: (final: Json, at: number) => Slot | undefined): void => {
      finals.forEach((final, at) => {
        if (matches[at] !== undefined || unmatched.size === 0) return
        const slot = choose(final, at)
        if (slot === undefined || !unmatched.has(slot) || slot.type !== startType(final)) return
        if (slot.type === 'hosted' && slot.form['type'] !== final['type']) return
        matches[at] = slot
        unmatched.delete(slot)
      })
    }
    const ids = new Map(slots.flatMap(slot => (slot.id === null ? [] : [[slot.id, slot] as const])))
    const calls = new Map(slots.flatMap(slot => (slot.callId === null ? [] : [[slot.callId, slot] as const])))
    match(final => ids.get(filled(final['id']) ?? ''))
    match(final => calls.get(filled(final['call_id']) ?? ''))
    match((_, at) => this.at(at) ?? undefined)
    const byKind = Map.groupBy(unmatched, slot => kindOf(slot.type, slot.form))
    match(final => byKind.get(kindOf(startType(final), final))?.shift())
    return matches
  }
}

function outputIndex(event: Json): number {
  return wholeNumber(event['output_index']) ?? NO_INDEX
}

/** True if an event announces a known item again. */
function isSameItem(known: Slot, item: Json): boolean {
  return known.type === startType(item) && known.id === (filled(item['id']) ?? filled(item['item_id']))
}

function kindOf(type: Slot['type'] | null, form: Json): string {
  return `${type} ${filled(form['type']) ?? 'message'}`
}

/** Token counts of a finished response; null if it has none. `searches`: the number of searches among its items. */
function usageOf(response: Json, searches: number): Usage | null {
  const usage = response['usage']
  if (!isRecord(usage)) return null
  const inputDetails = recordOrEmpty(usage['input_tokens_details'] ?? usage['prompt_tokens_details'])
  const outputDetails = recordOrEmpty(usage['output_tokens_details'] ?? usage['completion_tokens_details'])
  const input = countOrZero(usage['input_tokens'] ?? usage['prompt_tokens'])
  const output = countOrZero(usage['output_tokens'] ?? usage['completion_tokens'])
  const cached = countOrZero(inputDetails['cached_tokens'])
  const written = countOrZero(inputDetails['cache_write_tokens'])
  const hour = written === 0 ? 0 : countOrZero(inputDetails['cache_write_1h_tokens'])
  const audio = countOrZero(inputDetails['audio_tokens'])
  const reasoning = countOrZero(outputDetails['reasoning_tokens'])
  // If more is cached than read, or more is thought than written, the whole cannot include the part.
  const apartInput = cached > input
  const apartOutput =
    reasoning > output || (reasoning > 0 && countOrZero(usage['total_tokens']) === input + output + reasoning)
  return {
    inputTokens: apartInput ? input + cached + written : input,
    cachedTokens: cached,
    cacheWriteTokens: written,
    ...(hour === 0 ? undefined : { cacheWrite1hTokens: Math.min(hour, written) }),
    ...(audio === 0 ? undefined : { audioTokens: audio }),
    outputTokens: apartOutput ? output + reasoning : output,
    reasoningTokens: reasoning,
    webSearchRequests: webSearches(response, usage) ?? searches,
  }
}

function webSearches(
  { tool_usage: tools }: Json,
  { server_side_tool_usage_details: atServer, server_tool_use_details: details }: Json,
): number | null {
  // Most replies report neither.
  if (tools === undefined && atServer === undefined && details === undefined) return null
  const searches =
    recordOrEmpty(recordOrEmpty(tools)['web_search'])['num_requests'] ??
    recordOrEmpty(atServer)['web_search_calls'] ??
    recordOrEmpty(details)['web_search_requests']
  return searches === undefined ? null : countOrZero(searches)
}

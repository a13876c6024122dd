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
import { checkedCount, nameIn } from '../withheld.ts'
import { failureOf, reportsError } from './failure.ts'
import { isProgress, isSearch, progressFields } from './hosted.ts'
import { formOf, type PartForm, plainMessage, type Slot, Slots, startType } from './slots.ts'

type Handler = (decoder: ResponsesDecoder, event: Json) => void

function onDelta(form: PartForm, index: 'content_index' | 'summary_index'): Handler {
  return (decoder, event) => decoder.readText(form, event, index, event['delta'], true)
}

function onDone(form: PartForm, index: 'content_index' | 'summary_index', key: 'text' | 'refusal'): Handler {
  return (decoder, event) => decoder.readText(form, event, index, event[key], false)
}

function onInput(key: 'delta' | 'arguments' | 'input'): Handler {
  return (decoder, event) => decoder.readInput(event, event[key], key === 'delta')
}

const handleStart: Handler = (decoder, event) => decoder.start(recordOrEmpty(event['response']))
const handleEnd: Handler = (decoder, event) => decoder.finish(event)
const handleFailure: Handler = (_, event) => {
  throw failureOf(event, null)
}
const handlePart: Handler = (decoder, event) => decoder.readPart(event)

/** Handlers by event type, in the spellings of all known providers. `frame` decides about all other events. */
const HANDLERS: ReadonlyMap<string, Handler> = new Map<string, Handler>([
  ['response.created', handleStart],
  ['response.queued', handleStart],
  ['response.in_progress', handleStart],
  ['response.output_item.added', (decoder, event) => decoder.addItem(event)],
  ['response.output_item.done', (decoder, event) => decoder.closeItem(event)],
  ['response.content_part.added', handlePart],
  ['response.content_part.done', handlePart],
  ['response.reasoning_part.added', handlePart],
  ['response.reasoning_part.done', handlePart],
  ['response.reasoning_summary_part.added', handlePart],
  ['response.reasoning_summary_part.done', handlePart],
  ['response.output_text.delta', onDelta('text', 'content_index')],
  ['response.output_text.done', onDone('text', 'content_index', 'text')],
  ['response.output_text.annotation.added', (decoder, event) => decoder.readAnnotation(event)],
  ['response.refusal.delta', onDelta('refusal', 'content_index')],
  ['response.refusal.done', onDone('refusal', 'content_index', 'refusal')],
  ['response.reasoning_text.delta', onDelta('reasoning', 'content_index')],
  ['response.reasoning_text.done', onDone('reasoning', 'content_index', 'text')],
  ['response.reasoning.delta', onDelta('reasoning', 'content_index')],
  ['response.reasoning.done', onDone('reasoning', 'content_index', 'text')],
  ['response.reasoning_summary_text.delta', onDelta('summary', 'summary_index')],
  ['response.reasoning_summary_text.done', onDone('summary', 'summary_index', 'text')],
  ['response.reasoning_summary.delta', onDelta('summary', 'summary_index')],
  ['response.reasoning_summary.done', onDone('summary', 'summary_index', 'text')],
  ['response.function_call_arguments.delta', onInput('delta')],
  ['response.function_call_arguments.done', onInput('arguments')],
  ['response.custom_tool_call_input.delta', onInput('delta')],
  ['response.custom_tool_call_input.done', onInput('input')],
  ['response.completed', handleEnd],
  ['response.done', handleEnd],
  ['response.incomplete', handleEnd],
  ['response.cancelled', handleEnd],
  ['response.failed', handleFailure],
  ['response.error', handleFailure],
  ['error', handleFailure],
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
  readonly #slug: string | null
  /** Both are null until an item opens. Messages that are emitted whole open none. */
  #slots: Slots | null = null
  #lookup: SlotLookup | null = null
  readonly #takeMessage: TakeMessage | null
  /** The whole reply; null: it is streamed. */
  #document: string | null = null
  /** The number of messages that were emitted whole. */
  #wholeMessages = 0
  #isStarted = false
  #isFinished = false

  /** `slug`: the provider after which reasoning items without a format of their own are named. */
  constructor(emit: (delta: Delta) => void, slug: string | null, takeMessage: TakeMessage | null = null) {
    this.#emit = emit
    this.#takeMessage = takeMessage
    this.#slug = slug
  }

  get withheld(): number {
    return this.#slots?.withheld.bytes ?? 0
  }

  frame(event: string, data: string): void {
    if (this.#isFinished || data === '' || data === '[DONE]') return
    const value = parseFrame(data)
    if (!isRecord(value)) throw failureOf(value, null)
    const type = filled(value['type']) ?? event
    const handler = HANDLERS.get(type)
    if (handler !== undefined) handler(this, value)
    else if (type !== '' && isProgress(type)) this.#progress(type, value)
    else if (type === '' || value['object'] === 'response') this.#readBody(value, data)
    // Events with other names are hints (keep-alives, rate limits, undocumented kinds), unless one is an error.
    else if (!type.startsWith('response.') && reportsError(value)) throw failureOf(value, null)
  }

  end(): void {
    if (!this.#isFinished) {
      throw new GatewayError('provider_unavailable', 'The provider ended the reply before it was complete')
    }
  }

  start(response: Json): void {
    if (this.#isStarted) return
    this.#isStarted = true
    this.#emit({ kind: 'start', upstreamId: nameIn(response['id']), model: nameIn(response['model']) })
  }

  addItem(event: Json): void {
    const item = event['item']
    if (!isRecord(item)) return
    const index = outputIndex(event)
    const knownSlot = this.#lookup?.slotAt(index) ?? null
    // Some providers announce an item twice; another id under a used index is another item.
    if (knownSlot !== null && !knownSlot.isClosed && isSameItem(knownSlot, item)) return
    this.#openSlot(item, index)
  }

  closeItem(event: Json): void {
    const item = event['item']
    if (!isRecord(item)) return
    const type = startType(item)
    const knownSlot = this.#lookup?.find({ output_index: event['output_index'], item_id: item['id'] }) ?? null
    const isSame = knownSlot !== null && knownSlot.type === type
    if (isSame && knownSlot.isClosed && isSameItem(knownSlot, item)) return
    const slot = isSame && !knownSlot.isClosed ? knownSlot : this.#openSlot(item, outputIndex(event))
    if (slot !== null) this.#slots?.close(slot, item)
  }

  /** Reads a piece of a part's text, or all of it. */
  readText(form: PartForm, event: Json, indexKey: string, text: unknown, isPiece: boolean): void {
    if (typeof text !== 'string') return
    const slot = this.#slotFor(form, event)
    if (slot === null) return
    const index = wholeNumber(event[indexKey]) ?? 0
    if (isPiece) this.#slots?.append(slot, form, index, text, event['logprobs'])
    else this.#slots?.complete(slot, form, index, text, event['logprobs'])
  }

  readPart(event: Json): void {
    const part = recordOrEmpty(event['part'])
    const form = formOf(part)
    const text = form === 'refusal' ? part['refusal'] : part['text']
    // An empty part is emitted with its item: until then, text may still arrive.
    if (form === null || typeof text !== 'string' || text === '') return
    const slot = this.#slotFor(form, event)
    const index = wholeNumber(event[form === 'summary' ? 'summary_index' : 'content_index']) ?? 0
    if (slot !== null) this.#slots?.complete(slot, form, index, text, part['logprobs'])
  }

  readAnnotation(event: Json): void {
    if (!isRecord(event['annotation'])) return
    const slot = this.#slotFor('text', event)
    if (slot !== null)
      this.#slots?.annotate(slot, wholeNumber(event['content_index']) ?? 0, event['annotation'])
  }

  /** Reads arguments of an open call. Arguments of an unknown call arrive again with its item, which has the name. */
  readInput(event: Json, text: unknown, isPiece: boolean): void {
    const slot =
      this.#lookup?.find(event) ??
      this.#lookup?.openSlot(event, 'function_call') ??
      this.#lookup?.openSlot(event, 'custom_tool_call')
    if (slot == null || slot.isClosed) return
    if (!isPiece) slot.call?.complete(text)
    else if (typeof text === 'string') slot.call?.add(text)
  }

  /** Ends the reply. `event` has the final response, whose items complete the streamed ones. */
  finish(event: Json): void {
    const response = recordOrEmpty(event['response'])
    this.#conclude(response, STATUS_OF_EVENT.get(event['type']) ?? 'completed')
  }

  #readBody(body: Json, data: string): void {
    const response = isRecord(body['response']) ? body['response'] : body
    if (
      response['object'] === 'response' ||
      (response['object'] === undefined && Array.isArray(response['output']))
    ) {
      if (RUNNING_STATUSES.has(response['status'])) {
        this.start(response)
        return
      }
      this.#document = data
      this.#conclude(response, reportsError(response) ? 'failed' : 'completed')
    } else if (reportsError(body)) throw failureOf(body, null)
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
    const slots = this.#slots?.slots ?? NO_SLOTS
    const hasCalls = slots.some(slot => slot.call !== null)
    const isIncomplete = status === 'incomplete'
    const nativeReason = isIncomplete
      ? (filled(recordOrEmpty(response['incomplete_details'])['reason']) ?? status)
      : status
    const hasOutput = slots.length + this.#wholeMessages > 0
    const reason = isIncomplete ? finishReason(nativeReason, hasOutput) : hasCalls ? 'tool_calls' : 'stop'
    if (reason === 'content_filter' && !hasOutput) {
      throw providerFailure({
        status: 400,
        code: 'content_filter',
        message: 'The provider blocked the prompt',
      })
    }
    this.#slots?.calls?.finish(isIncomplete)
    this.#isFinished = true
    const usage = usageOf(response, slots.filter(slot => isSearch(slot.form)).length)
    if (usage !== null) this.#emit({ kind: 'usage', usage })
    this.#emit({
      kind: 'finish',
      reason,
      native: nativeReason,
      serviceTier: filled(response['service_tier']),
    })
    this.#slots?.forget()
    this.#document = null
  }

  /** Adds content of the final output that no event had; the output may be empty, shorter or have other ids. */
  #reconcile(response: Json): void {
    const finalItems = records(response['output'])
    // A reply that is one document has streamed nothing to match.
    const matches = this.#lookup?.match(finalItems) ?? NO_SLOTS
    const takesMessages = this.#takeMessage !== null && this.#document !== null && this.#slots === null
    for (let index = 0; index < finalItems.length; index++) {
      const item = finalItems[index] as Json
      if (takesMessages && this.#emitsWhole(item, finalItems)) continue
      const slot = matches[index] ?? this.#openSlot(item, NO_INDEX)
      if (slot === null) continue
      if (!slot.isClosed) this.#slots?.close(slot, item)
      // Its own end may have been without arguments.
      else if (slot.call !== null) this.#slots?.settle(slot, item)
    }
    const slots = this.#slots?.slots ?? NO_SLOTS
    // An item that is still open was never finished: all its content may be in its announcement.
    for (const slot of slots) if (!slot.isClosed) this.#slots?.settle(slot, slot.form)
    if (slots.length + this.#wholeMessages === 0) this.#addOutputText(response)
  }

  /** Emits a message with one text and nothing else in one piece. Returns false for any other item. */
  #emitsWhole(item: Json, finalItems: readonly Json[]): boolean {
    const message = plainMessage(item)
    if (message === null) return false
    const otherItems = (this.#slots?.slots.length ?? 0) + this.#wholeMessages++
    if (otherItems > 0) checkedCount(otherItems, 'output items')
    const { text } = message
    // Texts of several messages may become one.
    const isOnly =
      finalItems.length === 1 || finalItems.filter(element => startType(element) === 'message').length === 1
    const json = isOnly ? jsonOf(text, this.#document ?? '', 'text') : null
    this.#takeMessage?.({ ...message, json })
    return true
  }

  /** Reads `output_text` of servers that send no items. */
  #addOutputText(response: Json): void {
    const text = filled(response['output_text'])
    const slot = text === null ? null : this.#openSlot({ type: 'message' }, NO_INDEX)
    if (slot !== null) this.#slots?.close(slot, { content: text })
  }

  #progress(type: string, event: Json): void {
    const slot = this.#lookup?.find(event)
    if (slot == null || slot.isClosed || slot.type !== 'hosted') return
    this.#slots?.progress(slot, type.slice('response.'.length), progressFields(event))
  }

  #openSlot(item: Json, index: number): Slot | null {
    const type = startType(item)
    if (type === null) return null
    this.start({})
    this.#slots ??= new Slots(this.#emit, this.#slug === null ? null : ownReasoning(this.#slug))
    this.#lookup ??= new SlotLookup(this.#slots)
    const slot = this.#slots.open(type, item)
    this.#lookup.add(slot, index)
    return slot
  }

  /** The item for this form of text; opens it if no event announced it. */
  #slotFor(form: PartForm, event: Json): Slot | null {
    const type = form === 'text' || form === 'refusal' ? 'message' : 'reasoning'
    const knownSlot = this.#lookup?.find(event) ?? this.#lookup?.openSlot(event, type)
    if (knownSlot != null) return knownSlot.type === type && !knownSlot.isClosed ? knownSlot : null
    return this.#openSlot({ type, id: event['item_id'] }, outputIndex(event))
  }
}

// Lookup of items by events and final forms. Providers name an item by its output index, its id, both, or neither.
// Hot path: `find` runs per token.

/** Stands for a missing output index. */
const NO_INDEX = -1
const NO_SLOTS: readonly never[] = []

class SlotLookup {
  readonly #slots: Slots
  /** The current item of each output index of the provider; null while the latest item is the only one. */
  #byIndex: Map<number, Slot> | null = null
  #latestSlot: Slot | null = null
  #latestIndex = NO_INDEX

  constructor(slots: Slots) {
    this.#slots = slots
  }

  add(slot: Slot, index: number): void {
    if (this.#latestSlot !== null) {
      this.#byIndex ??= new Map([[this.#latestIndex, this.#latestSlot]])
      this.#byIndex.set(index, slot)
    }
    this.#latestSlot = slot
    this.#latestIndex = index
  }

  slotAt(index: number): Slot | null {
    if (index === NO_INDEX) return null
    return index === this.#latestIndex ? this.#latestSlot : (this.#byIndex?.get(index) ?? null)
  }

  find(event: Json): Slot | null {
    const index = outputIndex(event)
    if (index !== NO_INDEX) return this.slotAt(index)
    const id = filled(event['item_id'])
    return id === null ? this.#latestSlot : this.#slots.byId(id)
  }

  /** The open item, for an event without an index and with an unknown id. */
  openSlot(event: Json, type: Slot['type']): Slot | null {
    const slot = this.#latestSlot
    return outputIndex(event) === NO_INDEX && slot?.type === type && !slot.isClosed ? slot : null
  }

  /**
   * The streamed item of each final item, if any: by id, else by call id, else by position, else the first of its type
   * that is left. This order finds items with changed ids and repeats none.
   */
  match(finalItems: readonly Json[]): readonly (Slot | undefined)[] {
    const slots = this.#slots.slots
    const matches: (Slot | undefined)[] = new Array(finalItems.length).fill(undefined)
    const unmatched = new Set(slots)
    const match = (choose: (final: Json, index: number) => Slot | undefined): void => {
      finalItems.forEach((final, index) => {
        if (matches[index] !== undefined || unmatched.size === 0) return
        const slot = choose(final, index)
        if (slot === undefined || !unmatched.has(slot) || slot.type !== startType(final)) return
        if (slot.type === 'hosted' && slot.form['type'] !== final['type']) return
        matches[index] = slot
        unmatched.delete(slot)
      })
    }
    const ids = new Map(slots.flatMap(slot => (slot.id === null ? [] : [[slot.id, slot] as const])))
    const calls = new Map(slots.flatMap(slot => (slot.callId === null ? [] : [[slot.callId, slot] as const])))
    match(final => ids.get(filled(final['id']) ?? ''))
    match(final => calls.get(filled(final['call_id']) ?? ''))
    match((_, index) => this.slotAt(index) ?? undefined)
    const byKind = Map.groupBy(unmatched, slot => kindOf(slot.type, slot.form))
    match(final => byKind.get(kindOf(startType(final), final))?.shift())
    return matches
  }
}

function outputIndex(event: Json): number {
  return wholeNumber(event['output_index']) ?? NO_INDEX
}

/** True if an event announces a known item again. */
function isSameItem(slot: Slot, item: Json): boolean {
  return slot.type === startType(item) && slot.id === (filled(item['id']) ?? filled(item['item_id']))
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
  const cachedTokens = countOrZero(inputDetails['cached_tokens'])
  const cacheWriteTokens = countOrZero(inputDetails['cache_write_tokens'])
  const cacheWrite1hTokens = cacheWriteTokens === 0 ? 0 : countOrZero(inputDetails['cache_write_1h_tokens'])
  const audio = countOrZero(inputDetails['audio_tokens'])
  const reasoning = countOrZero(outputDetails['reasoning_tokens'])
  // If more is cached than read, or more is thought than written, the whole cannot include the part.
  const excludesCached = cachedTokens > input
  const excludesReasoning =
    reasoning > output || (reasoning > 0 && countOrZero(usage['total_tokens']) === input + output + reasoning)
  return {
    inputTokens: excludesCached ? input + cachedTokens + cacheWriteTokens : input,
    cachedTokens,
    cacheWriteTokens,
    ...(cacheWrite1hTokens === 0
      ? undefined
      : { cacheWrite1hTokens: Math.min(cacheWrite1hTokens, cacheWriteTokens) }),
    ...(audio === 0 ? undefined : { audioTokens: audio }),
    outputTokens: excludesReasoning ? output + reasoning : output,
    reasoningTokens: reasoning,
    webSearchRequests: webSearches(response, usage) ?? searches,
  }
}

function webSearches(
  { tool_usage: tools }: Json,
  { server_side_tool_usage_details: serverSide, server_tool_use_details: details }: Json,
): number | null {
  // Most replies have none of these fields.
  if (tools === undefined && serverSide === undefined && details === undefined) return null
  const searches =
    recordOrEmpty(recordOrEmpty(tools)['web_search'])['num_requests'] ??
    recordOrEmpty(serverSide)['web_search_calls'] ??
    recordOrEmpty(details)['web_search_requests']
  return searches === undefined ? null : countOrZero(searches)
}

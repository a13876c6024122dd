/**
 * Tracks the output items of one Responses reply and their parts. A slot records the emitted deltas of an item, so that
 * a final form adds only missing content. Hot path: `append` runs per token.
 *
 * Streamed text is final, because it may have reached the client. A final text that continues it adds its rest; the
 * slots ignore a final text that contradicts it.
 */
import { GatewayError } from '../../base/errors.ts'
import { filled, isRecord, type Json, records, remainder } from '../../base/json.ts'
import { shortList } from '../../base/lists.ts'
import { isAnnotation } from '../annotations.ts'
import { type Call, Calls, callIdIn } from '../calls.ts'
import type { Delta, HostedStart, ItemStart } from '../format.ts'
import { isLogprob } from '../logprobs.ts'
import { type ReasoningFormat, reasoningFormat } from '../reasoning.ts'
import { TextMark } from '../text-mark.ts'
import type { WholeMessage } from '../whole-message.ts'
import { checkedCount, Withheld } from '../withheld.ts'

/** One output item. Once `isClosed` is true, it emits nothing more, except the rest of a call that ended incomplete. */
export interface Slot {
  readonly item: number
  readonly type: ItemStart['type']
  readonly id: string | null
  readonly callId: string | null
  /** The provider's latest whole form of the item: first from its opening, then from its close. */
  form: Json
  readonly parts: Part[]
  /** The call of a function or a custom tool; null for other items. */
  readonly call: Call | null
  /** The last part with a delta; a delta for an earlier part would reopen it. */
  currentPart: Part | null
  isClosed: boolean
}

const START_TYPES: ReadonlyMap<unknown, ItemStart['type']> = new Map([
  ['message', 'message'],
  ['reasoning', 'reasoning'],
  ['function_call', 'function_call'],
  ['custom_tool_call', 'custom_tool_call'],
])

/** Fields that deltas or the opening carry. One provider also puts `item_id` and `output_index` into items. */
const STREAMED_FIELDS: Readonly<Record<ItemStart['type'], ReadonlySet<string>>> = {
  message: new Set(['type', 'id', 'role', 'content']),
  reasoning: new Set(['type', 'id', 'summary', 'content', 'format']),
  function_call: new Set(['type', 'id', 'call_id', 'name', 'arguments', 'item_id', 'output_index']),
  custom_tool_call: new Set(['type', 'id', 'call_id', 'name', 'input', 'item_id', 'output_index']),
  hosted: new Set(['type', 'id']),
}

/** Fields of messages, reasoning and calls that the gateway reads as texts. */
const TEXT_FIELDS: ReadonlySet<string> = new Set([
  'call_id',
  'encrypted_content',
  'name',
  'namespace',
  'phase',
  'signature',
  'status',
])

/** The remainder of a message, reasoning or call; fields of a wrong type count as missing. */
function shapedRemainder(item: Json, excludedFields: ReadonlySet<string>): Json | null {
  let allExcluded = excludedFields
  for (const name of TEXT_FIELDS)
    if (Object.hasOwn(item, name) && typeof item[name] !== 'string')
      allExcluded = new Set([...allExcluded, name])
  return remainder(item, allExcluded)
}

const CALL_TYPES: ReadonlySet<ItemStart['type']> = new Set(['function_call', 'custom_tool_call'])

const NON_EXTRA_FIELDS: ReadonlySet<string> = new Set([...STREAMED_FIELDS.function_call, 'input', 'status'])

/**
 * The item kind in deltas for a wire item; null for an item without a type, which cannot pass. A hosted item never has
 * a type whose shape the gateway relies on.
 * @throws GatewayError `provider_unavailable` for a message of another role: an answer is the assistant's
 */
export function startType(item: Json): ItemStart['type'] | null {
  const { role } = item
  const type = item['type'] ?? (role === 'assistant' ? 'message' : undefined)
  if (type === 'message' && role != null && role !== 'assistant') {
    throw new GatewayError(
      'provider_unavailable',
      'The provider sent a message whose role is not "assistant"',
    )
  }
  return START_TYPES.get(type) ?? (filled(type) === null ? null : 'hosted')
}

const MESSAGE_STATUSES: ReadonlySet<unknown> = new Set(['completed', 'incomplete', 'in_progress'])
/** Members of a message that `plainMessage` reads. */
const PLAIN_FIELDS: ReadonlySet<string> = new Set([...STREAMED_FIELDS.message, 'status', 'phase'])

/** A final message that has one text and nothing else; null for every other item. */
export function plainMessage(item: Json): Omit<WholeMessage, 'json'> | null {
  const { type, role, content, status, phase } = item
  if (type !== 'message' || role !== 'assistant' || !Array.isArray(content) || content.length !== 1)
    return null
  const part: unknown = content[0]
  if (!isRecord(part) || part['type'] !== 'output_text') return null
  const { text, annotations, logprobs } = part
  if (typeof text !== 'string') return null
  for (const elements of [annotations, logprobs])
    if (Array.isArray(elements) && elements.length > 0) return null
  if (status != null && !MESSAGE_STATUSES.has(status)) return null
  if (phase != null && filled(phase) === null) return null
  for (const name in item) if (!PLAIN_FIELDS.has(name) && item[name] !== null) return null
  return {
    id: filled(item['id']),
    phase: (phase ?? null) as string | null,
    status: (status ?? 'completed') as WholeMessage['status'],
    text,
  }
}

const EMPTY_FORM: Json = {}
/** Memory of a part, in objects and fields, here and in the answer. No delta opens a part. */
const PART_PARTS = 8

/** The items of one reply. */
export class Slots {
  readonly #emit: (delta: Delta) => void
  readonly #reasoning: ReasoningFormat | null
  /** In the order in which they were opened. Only this class writes it. */
  readonly slots: Slot[] = shortList()
  /** Items by id; a repeated id means the first item. Made for the first event that names its item by id alone. */
  #byId: Map<string | null, Slot> | null = null
  /** Null until a call has come. Only this class writes it. */
  calls: Calls | null = null
  /** Number of parts of all items. */
  #partCount = 0
  readonly withheld = new Withheld()

  /** `reasoning`: the name for reasoning items without a format of their own. */
  constructor(emit: (delta: Delta) => void, reasoning: ReasoningFormat | null) {
    this.#emit = emit
    this.#reasoning = reasoning
  }

  byId(id: string): Slot | null {
    this.#byId ??= new Map(this.slots.toReversed().map(slot => [slot.id, slot]))
    return this.#byId.get(id) ?? null
  }

  /** @throws GatewayError `provider_unavailable` for too many items; `part` throws it for too many parts. */
  open(type: ItemStart['type'], item: Json): Slot {
    const number = checkedCount(this.slots.length, 'output items')
    const callId = callIdIn(item['call_id'])
    const id = filled(item['id']) ?? filled(item['item_id'])
    const slot: Slot = {
      item: number,
      type,
      id,
      callId,
      form: item,
      parts: shortList(),
      call: CALL_TYPES.has(type) ? this.#beginCall(number, type, id, callId, item) : null,
      currentPart: null,
      isClosed: false,
    }
    this.slots.push(slot)
    if (this.#byId?.has(slot.id) === false) this.#byId.set(slot.id, slot)
    if (slot.call !== null) return slot
    this.calls?.settle()
    this.#emit({ kind: 'open', item: number, start: this.#start(slot, item) })
    return slot
  }

  #beginCall(
    number: number,
    type: ItemStart['type'],
    id: string | null,
    callId: string | null,
    item: Json,
  ): Call {
    this.calls?.settle()
    this.calls ??= new Calls(this.#emit, this.withheld)
    const isCustom = type === 'custom_tool_call'
    const extra = shapedRemainder(item, NON_EXTRA_FIELDS)
    return this.calls.begin(number, { isCustom, id, callId, name: filled(item['name']), extra })
  }

  /** Adds streamed text to a part; creates the part if needed. */
  append(slot: Slot, form: PartForm, index: number, text: string, logprobs: unknown): void {
    this.#add(slot, this.part(slot, form, index), text, Array.isArray(logprobs) ? logprobs : [])
  }

  /** Adds the rest of a final text, and the log probabilities that the stream did not have. */
  complete(slot: Slot, form: PartForm, index: number, finalText: unknown, logprobs: unknown): void {
    if (typeof finalText === 'string') this.#complete(slot, this.part(slot, form, index), finalText, logprobs)
  }

  /** Releases the provider's texts: after a long reply, these objects are old and would keep others in memory. */
  forget(): void {
    for (const slot of this.slots) {
      slot.form = EMPTY_FORM
      for (const { text } of slot.parts) text.forget()
    }
  }

  annotate(slot: Slot, index: number, annotation: unknown): void {
    const part = this.part(slot, 'text', index)
    part.annotations++
    if (!isAnnotation(annotation)) return
    part.isEmitted = true
    slot.currentPart ??= part
    this.#emit({ kind: 'annotation', item: slot.item, part: part.part, annotation })
  }

  progress(slot: Slot, name: string, fields: Json): void {
    this.#emit({ kind: 'progress', item: slot.item, name, fields })
  }

  /** Brings an item to its final form and closes it. */
  close(slot: Slot, final: Json): void {
    this.settle(slot, final)
    slot.isClosed = true
    slot.form = final
    const { call } = slot
    if (call !== null) {
      if (call.name === null || call.callId === null)
        call.supply({ name: filled(final['name']), callId: callIdIn(final['call_id']), extra: null })
      call.end(this.#closingFields(slot, final))
    } else this.#emit({ kind: 'close', item: slot.item, fields: this.#closingFields(slot, final) })
  }

  /** Emits the content of the final item that no delta contained. */
  settle(slot: Slot, final: Json): void {
    if (slot.call !== null) slot.call.complete(slot.call.isCustom ? final['input'] : final['arguments'])
    else if (slot.type === 'message')
      this.#settleParts(slot, partsOf(final['content'], 'output_text'), MESSAGE_FORMS)
    else if (slot.type === 'reasoning') {
      this.#settleParts(slot, partsOf(final['summary'], 'summary_text'), REASONING_FORMS)
      this.#settleParts(slot, partsOf(final['content'], 'reasoning_text'), REASONING_FORMS)
    }
  }

  part(slot: Slot, form: PartForm, index: number): Part {
    for (const slotPart of slot.parts) if (slotPart.form === form && slotPart.index === index) return slotPart
    this.#partCount = checkedCount(this.#partCount, 'content parts') + 1
    this.withheld.addParts(PART_PARTS)
    const kind = numbering(form)
    let part = 0
    for (const slotPart of slot.parts) if (numbering(slotPart.form) === kind) part++
    const newPart: Part = {
      form,
      index,
      part,
      text: new TextMark(),
      logprobs: 0,
      annotations: 0,
      isEmitted: false,
    }
    slot.parts.push(newPart)
    return newPart
  }

  #start({ id, type }: Slot, item: Json): ItemStart {
    if (type === 'message') return { type, id, phase: filled(item['phase']) }
    if (type === 'reasoning') return { type, id, format: reasoningFormat(item['format']) ?? this.#reasoning }
    return { type: 'hosted', item: item as HostedStart }
  }

  #closingFields(slot: Slot, final: Json): Json | null {
    // A hosted item is final in every field: there a null may replace a value.
    if (slot.type === 'hosted') return remainder(final, STREAMED_FIELDS.hosted, true)
    const fields = shapedRemainder(final, STREAMED_FIELDS[slot.type])
    // A call that was opened before its id was known gets it now.
    const isLate = slot.call !== null && slot.callId === null && callIdIn(final['call_id']) !== null
    return isLate ? { ...fields, call_id: final['call_id'] } : fields
  }

  /** `forms`: the part forms of this item type; parts of other forms are ignored. */
  #settleParts(slot: Slot, finalParts: readonly Json[], forms: ReadonlySet<PartForm>): void {
    // Null where nothing was streamed: then there is nothing to match.
    const matchedParts = slot.parts.length === 0 ? null : new Set<Part>()
    for (let index = 0; index < finalParts.length; index++) {
      const final = finalParts[index] as Json
      const form = formOf(final)
      if (form === null || !forms.has(form)) continue
      const finalText = form === 'refusal' ? final['refusal'] : final['text']
      if (typeof finalText !== 'string') continue
      const part =
        matchedParts === null
          ? this.part(slot, form, index)
          : this.#partFor(slot, form, index, finalText, finalParts, matchedParts)
      this.#complete(slot, part, finalText, final['logprobs'])
      if (form === 'text') this.#completeAnnotations(slot, part, records(final['annotations']))
    }
  }

  #partFor(
    slot: Slot,
    form: PartForm,
    index: number,
    finalText: string,
    finalParts: readonly Json[],
    usedParts: Set<Part>,
  ): Part {
    const part =
      matchingPart(slot.parts, form, index, finalText, finalParts, usedParts) ??
      this.part(slot, form, unusedIndex(slot.parts, form, index))
    usedParts.add(part)
    return part
  }

  #completeAnnotations(slot: Slot, part: Part, annotations: readonly Json[]): void {
    for (const annotation of annotations.slice(part.annotations)) this.annotate(slot, part.index, annotation)
  }

  #complete(slot: Slot, part: Part, finalText: string, logprobs: unknown): void {
    const missingText = part.text.isBeginningOf(finalText) ? finalText.slice(part.text.length) : ''
    const isLate = part.form !== 'text' || (missingText === '' && slot.currentPart !== part && part.isEmitted)
    const newLogprobs = Array.isArray(logprobs) && !isLate ? logprobs.slice(part.logprobs) : []
    if (missingText !== '' || newLogprobs.length > 0 || !part.isEmitted)
      this.#add(slot, part, missingText, newLogprobs)
  }

  #add(slot: Slot, part: Part, text: string, logprobs: readonly unknown[]): void {
    part.text.add(text)
    part.isEmitted = true
    slot.currentPart = part
    const { item } = slot
    switch (part.form) {
      case 'text': {
        part.logprobs += logprobs.length
        const validLogprobs = logprobs.length === 0 ? null : logprobs.filter(isLogprob)
        this.#emit({ kind: 'text', item, part: part.part, text, logprobs: validLogprobs })
        break
      }
      case 'refusal':
        this.#emit({ kind: 'refusal', item, part: part.part, text })
        break
      case 'reasoning':
        this.#emit({ kind: 'reasoning', item, form: 'text', part: part.part, text })
        break
      case 'summary':
        this.#emit({ kind: 'reasoning', item, form: 'summary', part: part.part, text })
        break
    }
  }
}

// Parts of an item, and the match between streamed and final parts

/** The kind of deltas for a part. */
export type PartForm = 'text' | 'refusal' | 'reasoning' | 'summary'

const MESSAGE_FORMS: ReadonlySet<PartForm> = new Set(['text', 'refusal'])
const REASONING_FORMS: ReadonlySet<PartForm> = new Set(['reasoning', 'summary'])

interface Part {
  readonly form: PartForm
  /** The provider's content or summary index, which may have gaps and repetitions. */
  readonly index: number
  /** The gateway's number: counts from 0 in order of appearance. */
  readonly part: number
  /** The mark of the emitted text. */
  readonly text: TextMark
  logprobs: number
  annotations: number
  isEmitted: boolean
}

const PART_FORMS: ReadonlyMap<unknown, PartForm> = new Map([
  ['output_text', 'text'],
  ['text', 'text'],
  ['input_text', 'text'],
  ['refusal', 'refusal'],
  ['reasoning_text', 'reasoning'],
  ['summary_text', 'summary'],
])

export function formOf(part: Json): PartForm | null {
  return PART_FORMS.get(part['type']) ?? null
}

/** The list that numbers a part: text and refusals share one, raw reasoning and summaries have their own. */
function numbering(form: PartForm): PartForm {
  return form === 'refusal' ? 'text' : form
}

/** Content as a list of parts; plain text becomes one part of the given type. */
function partsOf(content: unknown, type: string): readonly Json[] {
  if (typeof content === 'string') return [{ type, text: content }]
  return records(content)
}

/**
 * The streamed part of a final one: the part with the same index, else the first part whose text it continues and whose
 * index no other final part has (one provider counts streamed parts from 1).
 */
function matchingPart(
  parts: readonly Part[],
  form: PartForm,
  index: number,
  finalText: string,
  finalParts: readonly Json[],
  usedParts: ReadonlySet<Part>,
): Part | undefined {
  const unusedParts = parts.filter(part => part.form === form && !usedParts.has(part))
  const sameIndex = unusedParts.find(part => part.index === index)
  if (sameIndex !== undefined) return sameIndex
  return unusedParts.find(part => {
    const claimant = finalParts[part.index]
    return (claimant === undefined || formOf(claimant) !== form) && part.text.isBeginningOf(finalText)
  })
}

/** The first index from `firstIndex` on without a part of this form. */
function unusedIndex(parts: readonly Part[], form: PartForm, firstIndex: number): number {
  let index = firstIndex
  while (parts.some(part => part.form === form && part.index === index)) index++
  return index
}

/** Builds a call to the client's function or custom tool. Hot path. */

import { itemId } from '../../../base/ids.ts'
import { parseJson } from '../../../base/json.ts'
import type { ItemStart } from '../../../formats/format.ts'
import { LongText } from '../../../formats/long-text.ts'
import type { StreamEvent } from '../../../protocol/events.ts'
import type { OutputItem } from '../../../protocol/items.ts'
import { type ClosingFields, type ClosingStatus, type EmitEvent, ItemBuilder } from './item.ts'

type CallStart = Extract<ItemStart, { type: 'function_call' | 'custom_tool_call' }>

/** The differences between the two kinds of calls. */
interface CallKind {
  readonly deltaType: 'response.function_call_arguments.delta' | 'response.custom_tool_call_input.delta'
  /** The text of a completed call that has no arguments. */
  readonly emptyText: string
  /** The field of the item that contains the text. */
  fieldOf(text: string): { arguments: string } | { input: string }
  doneEvent(itemId: string, outputIndex: number, name: string, text: string): StreamEvent
}

const CALL_KINDS: Readonly<Record<CallStart['type'], CallKind>> = {
  function_call: {
    deltaType: 'response.function_call_arguments.delta',
    // Missing arguments become an empty object, because clients parse the string as JSON.
    emptyText: '{}',
    fieldOf: text => ({ arguments: text }),
    doneEvent: (itemId, outputIndex, name, text) => ({
      type: 'response.function_call_arguments.done',
      sequence_number: 0,
      item_id: itemId,
      output_index: outputIndex,
      name,
      arguments: text,
    }),
  },
  custom_tool_call: {
    deltaType: 'response.custom_tool_call_input.delta',
    emptyText: '',
    fieldOf: text => ({ input: text }),
    doneEvent: (itemId, outputIndex, _name, text) => ({
      type: 'response.custom_tool_call_input.done',
      sequence_number: 0,
      item_id: itemId,
      output_index: outputIndex,
      input: text,
    }),
  },
}

export class CallBuilder extends ItemBuilder {
  readonly #start: CallStart
  readonly #kind: CallKind
  readonly #callId: string
  readonly #text = new LongText()

  constructor(id: string, outputIndex: number, emit: EmitEvent | null, start: CallStart) {
    super(id, outputIndex, emit)
    this.#start = start
    this.#kind = CALL_KINDS[start.type]
    this.#callId = start.callId ?? itemId('fc').replace('fc_', 'call_')
  }

  override get isWhole(): boolean {
    return this.#kind.emptyText === '' || parseJson(this.#text.toString()) !== undefined
  }

  firstForm(): OutputItem {
    return this.#item('in_progress')
  }

  override arguments(text: string): void {
    this.#text.add(text)
    this.emit?.({
      type: this.#kind.deltaType,
      sequence_number: 0,
      item_id: this.id,
      output_index: this.outputIndex,
      delta: text,
    })
  }

  close(fields: ClosingFields, status: ClosingStatus): OutputItem {
    const kind = this.#kind
    const isCompleted = (fields?.['status'] ?? status) === 'completed'
    if (this.#text.length === 0 && kind.emptyText !== '' && isCompleted) this.arguments(kind.emptyText)
    this.emit?.(kind.doneEvent(this.id, this.outputIndex, this.#start.name, this.#text.toString()))
    return this.withClosingFields(this.#item(status), fields)
  }

  #item(status: ClosingStatus | 'in_progress'): OutputItem {
    return {
      ...this.#start.extra,
      id: this.id,
      type: this.#start.type,
      status,
      call_id: this.#callId,
      name: this.#start.name,
      ...this.#kind.fieldOf(this.#text.toString()),
    } as OutputItem
  }
}

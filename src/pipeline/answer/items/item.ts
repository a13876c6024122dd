/**
 * Builds an output item: its index, its deltas, its first and last events. A delta that the kind of item does not
 * accept throws. Also builds hosted items, which accept no deltas. Hot path.
 */
import { GatewayError, INTERNAL_MESSAGE } from '../../../base/errors.ts'
import type { HostedStart } from '../../../formats/format.ts'
import type { StreamEvent } from '../../../protocol/events.ts'
import type { OutputItem } from '../../../protocol/items.ts'
import type { Annotation, Logprob } from '../../../protocol/parts.ts'
import type { CitableResults } from './citations.ts'

/** Takes an event whose `sequence_number` is still 0, because only the answer assigns numbers. */
export type EmitEvent = (event: StreamEvent) => void

/** `in_progress` is for a call that the client has to run. */
export type ClosingStatus = 'completed' | 'incomplete' | 'in_progress'
export type ClosingFields = Readonly<Record<string, unknown>> | null

/** An open output item: owns its inner events, and returns the finished item when it is closed. */
export abstract class ItemBuilder {
  /** The item's public id, the same from its first event to its last. */
  readonly id: string
  readonly outputIndex: number
  /** Null if nobody reads events; `emit?.()` then creates none. */
  protected readonly emit: EmitEvent | null

  constructor(id: string, outputIndex: number, emit: EmitEvent | null) {
    this.id = id
    this.outputIndex = outputIndex
    this.emit = emit
  }

  /** False if the item is cut off, although other items follow it. */
  get isWhole(): boolean {
    return true
  }

  text(_part: number, _text: string, _logprobs: readonly Logprob[] | null, _cut?: boolean): void {
    throw misplacedError('text')
  }
  refusal(_part: number, _text: string): void {
    throw misplacedError('refusal')
  }
  /** Emits the citations of results in this piece of text, which `text` has taken. */
  cite(_part: number, _text: string, _results: CitableResults): void {
    throw misplacedError('text')
  }

  annotation(_part: number, _annotation: Annotation): void {
    throw misplacedError('annotation')
  }
  reasoning(_form: 'text' | 'summary', _part: number, _text: string): void {
    throw misplacedError('reasoning')
  }
  arguments(_text: string): void {
    throw misplacedError('arguments')
  }
  progress(_name: string, _fields: Readonly<Record<string, unknown>>): void {
    throw misplacedError('progress')
  }
  /** The item as `output_item.added` shows it. */
  abstract firstForm(): OutputItem
  /** Emits the events that close the item's parts, and returns the finished item. */
  abstract close(fields: ClosingFields, status: ClosingStatus): OutputItem

  /** The item with the provider's closing fields, which may replace everything except the id. */
  protected withClosingFields(item: OutputItem | HostedStart, fields: ClosingFields): OutputItem {
    return { ...item, ...fields, id: this.id } as OutputItem
  }
}

/** A decoder addressed an item of another kind, which is a fault of the gateway and not of the provider. */
function misplacedError(kind: string): GatewayError {
  return new GatewayError('internal', INTERNAL_MESSAGE, {
    cause: new TypeError(`${kind} for an item of another kind`),
  })
}

export class HostedBuilder extends ItemBuilder {
  readonly #item: HostedStart

  constructor(id: string, outputIndex: number, emit: EmitEvent | null, item: HostedStart) {
    super(id, outputIndex, emit)
    this.#item = item
  }

  firstForm(): OutputItem {
    return this.withClosingFields(this.#item, null)
  }

  override progress(name: string, fields: Readonly<Record<string, unknown>>): void {
    const event: Record<string, unknown> = {
      type: `response.${name}`,
      sequence_number: 0,
      ...fields,
      item_id: this.id,
      output_index: this.outputIndex,
    }
    // The decoders emit documented names with their documented fields only: see the Delta `progress`.
    this.emit?.(event as unknown as StreamEvent)
  }

  close(fields: ClosingFields, status: ClosingStatus): OutputItem {
    const item = this.withClosingFields(this.#item, fields)
    if (item.status === 'in_progress') item.status = status
    return item
  }
}

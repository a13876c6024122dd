/** An item that the provider executed on its side: it comes whole, and only tells of its progress. */
import type { HostedStart } from '../../../formats/format.ts'
import type { StreamEvent } from '../../../protocol/events.ts'
import type { OutputItem } from '../../../protocol/items.ts'
import { type ClosingFields, type ClosingStatus, type EmitEvent, ItemBuilder } from './item.ts'

export class HostedBuilder extends ItemBuilder {
  readonly #item: HostedStart

  constructor(id: string, outputIndex: number, emit: EmitEvent | null, item: HostedStart) {
    super(id, outputIndex, emit)
    this.#item = item
  }

  begun(): OutputItem {
    return this.finished(this.#item, null)
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
    const item = this.finished(this.#item, fields)
    if (item.status === 'in_progress') item.status = status
    return item
  }
}

/** The items of a reply that are open, and their builders. Hot path. */
import { itemId } from '../../../base/ids.ts'
import type { ItemStart } from '../../../formats/format.ts'
import { CallBuilder } from './call.ts'
import { type EmitEvent, HostedBuilder, type ItemBuilder } from './item.ts'
import { MessageBuilder } from './message.ts'
import { ReasoningBuilder } from './reasoning.ts'

/** Open items of the running turn, by the numbers of its decoder. Most replies have one at a time. */
export class OpenItems {
  #lastKey = -1
  #last: ItemBuilder | null = null
  /** Items that were opened before the last one, in order. */
  #earlier: Map<number, ItemBuilder> | null = null

  add(key: number, item: ItemBuilder): void {
    if (this.#last !== null) {
      this.#earlier ??= new Map()
      this.#earlier.set(this.#lastKey, this.#last)
    }
    this.#lastKey = key
    this.#last = item
  }

  of(key: number): ItemBuilder | null {
    return key === this.#lastKey ? this.#last : (this.#earlier?.get(key) ?? null)
  }

  remove(key: number): void {
    if (key === this.#lastKey) this.#last = null
    else this.#earlier?.delete(key)
  }

  /** In order of opening. */
  keys(): readonly number[] {
    const earlier = this.#earlier === null ? [] : [...this.#earlier.keys()]
    return this.#last === null ? earlier : [...earlier, this.#lastKey]
  }

  clear(): void {
    this.#last = null
    this.#earlier = null
  }
}

/** Creates the builder for a new item. The item keeps the provider's id if there is one. */
export function buildItem(start: ItemStart, outputIndex: number, emit: EmitEvent | null): ItemBuilder {
  switch (start.type) {
    case 'message':
      return new MessageBuilder(start.id ?? itemId('msg'), outputIndex, emit, start.phase)
    case 'reasoning':
      return new ReasoningBuilder(start.id ?? itemId('rs'), outputIndex, emit, start.format)
    case 'function_call':
      return new CallBuilder(start.id ?? itemId('fc'), outputIndex, emit, start)
    case 'custom_tool_call':
      return new CallBuilder(start.id ?? itemId('ctc'), outputIndex, emit, start)
    case 'hosted': {
      const providerId = start.item['id']
      return new HostedBuilder(
        typeof providerId === 'string' ? providerId : itemId('st'),
        outputIndex,
        emit,
        start.item,
      )
    }
  }
}

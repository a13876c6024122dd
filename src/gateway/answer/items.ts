/**
 * Output items while they are being said, by kind: each builder owns the inner events of one item and, at its
 * close, gives the finished item. Hot path: a delta costs one event object and one string append.
 */
import type { ItemStart } from '../../formats/format.ts'
import { itemId } from '../../ids.ts'
import { CallBuilder } from './items/call.ts'
import { HostedBuilder } from './items/hosted.ts'
import type { EmitEvent, ItemBuilder } from './items/item.ts'
import { MessageBuilder } from './items/message.ts'
import { ReasoningBuilder } from './items/reasoning.ts'

export type { ClosingFields, ClosingStatus, EmitEvent, ItemBuilder } from './items/item.ts'

/** The builder of an item that begins; its id is the provider's own where it gave one. */
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
      const own = start.item['id']
      return new HostedBuilder(typeof own === 'string' ? own : itemId('st'), outputIndex, emit, start.item)
    }
  }
}

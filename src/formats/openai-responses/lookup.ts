/**
 * Which output item an event or a final form is about. Hot path: `find` runs per token.
 * Providers name an item by its output index, by its id, by both, or not at all.
 */
import { filled, type Json, wholeNumber } from '../json.ts'
import { type Slot, type Slots, startType } from './slots.ts'

/** Items of providers that tell no output index are known by id alone. */
export const NO_INDEX = -1

export class SlotLookup {
  readonly #slots: Slots
  /** By the provider's output index: the item that events of this index are about now. */
  readonly #byIndex = new Map<number, Slot>()
  #latest: Slot | null = null

  constructor(slots: Slots) {
    this.#slots = slots
  }

  add(slot: Slot, index: number): void {
    if (index !== NO_INDEX) this.#byIndex.set(index, slot)
    this.#latest = slot
  }

  at(index: number): Slot | null {
    return this.#byIndex.get(index) ?? null
  }

  find(event: Json): Slot | null {
    const index = outputIndex(event)
    if (index !== NO_INDEX) return this.at(index)
    const id = filled(event['item_id'])
    return id === null ? this.#latest : this.#slots.byId(id)
  }

  /** Without an index, and under an id that nobody announced, what is told belongs to the item being told. */
  current(event: Json, type: Slot['type']): Slot | null {
    const latest = this.#latest
    return outputIndex(event) === NO_INDEX && latest?.type === type && !latest.closed ? latest : null
  }

  /**
   * For each final item the streamed one it repeats, if any: by id, else by call id, else by position, else the
   * first of its type that is left. In this order, so that ids that changed never hide an item and none is told twice.
   */
  match(finals: readonly Json[]): readonly (Slot | undefined)[] {
    const slots = this.#slots.all
    const matches: (Slot | undefined)[] = new Array(finals.length).fill(undefined)
    // A reply that is one document has streamed none.
    if (slots.length === 0) return matches
    const left = new Set(slots)
    const pass = (choose: (final: Json, at: number) => Slot | undefined): void => {
      finals.forEach((final, at) => {
        if (matches[at] !== undefined || left.size === 0) return
        const slot = choose(final, at)
        if (slot === undefined || !left.has(slot) || slot.type !== startType(final)) return
        if (slot.type === 'hosted' && slot.form['type'] !== final['type']) return
        matches[at] = slot
        left.delete(slot)
      })
    }
    const ids = new Map(slots.flatMap(slot => (slot.id === null ? [] : [[slot.id, slot] as const])))
    const calls = new Map(slots.flatMap(slot => (slot.callId === null ? [] : [[slot.callId, slot] as const])))
    pass(final => ids.get(filled(final['id']) ?? ''))
    pass(final => calls.get(filled(final['call_id']) ?? ''))
    pass((_, at) => this.#byIndex.get(at))
    const byKind = Map.groupBy(left, slot => kindOf(slot.type, slot.form))
    pass(final => byKind.get(kindOf(startType(final), final))?.shift())
    return matches
  }
}

export function outputIndex(event: Json): number {
  return wholeNumber(event['output_index']) ?? NO_INDEX
}

/** True when an item is the known one, announced once more. */
export function isAgain(known: Slot, item: Json): boolean {
  return known.type === startType(item) && known.id === (filled(item['id']) ?? filled(item['item_id']))
}

function kindOf(type: Slot['type'] | null, form: Json): string {
  return `${type} ${form['type'] ?? 'message'}`
}

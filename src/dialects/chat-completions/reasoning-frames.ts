/**
 * Reasoning of one stream as fields of chat deltas: `reasoning` and one entry of `reasoning_details`, numbered in the
 * order in which they began. Entries with the same index are one. Hot path.
 */
import type { OutputItem, ReasoningItem } from '../../protocol/items.ts'
import { detailOrigin, type Fields, REASONING_BREAK, reasoningSeals } from './answer.ts'

interface Entry {
  readonly item: OutputItem | undefined
  readonly kind: 'text' | 'summary'
  readonly part: number
  readonly index: number
  /** JSON around the text. */
  readonly before: string
  readonly after: string
}

export class ReasoningFrames {
  #entries = 0
  #spoke = false
  #current: Entry | null = null
  /** The last text of each item: where its signature goes. */
  readonly #lastText = new Map<OutputItem, number>()

  /** Members of a delta as JSON, without braces. */
  piece(item: OutputItem | undefined, kind: Entry['kind'], part: number, delta: string): string {
    let entry = this.#current
    let told = delta
    if (entry === null || entry.item !== item || entry.kind !== kind || entry.part !== part) {
      entry = this.#open(item, kind, part)
      if (this.#spoke) told = REASONING_BREAK + delta
      this.#spoke = true
    }
    return `"reasoning":${JSON.stringify(told)},"reasoning_details":[${entry.before}${JSON.stringify(delta)}${entry.after}]`
  }

  /** The entry with the next number. */
  numbered(detail: Fields): Fields {
    return { ...detail, index: this.#entries++ }
  }

  /** What a reasoning item says at its end: signature and encrypted part. `begun`: the item as it was announced. */
  seals(begun: OutputItem | undefined, item: ReasoningItem): Fields[] {
    const { signature, encrypted } = reasoningSeals(item)
    const details: Fields[] = []
    if (signature !== null) {
      const index = begun === undefined ? undefined : this.#lastText.get(begun)
      details.push(index === undefined ? this.numbered(signature) : { ...signature, index })
    }
    if (encrypted !== null) details.push(this.numbered(encrypted))
    return details
  }

  #open(item: OutputItem | undefined, kind: Entry['kind'], part: number): Entry {
    const index = this.#entries++
    const origin = item?.type === 'reasoning' ? detailOrigin(item) : { format: 'unknown' }
    const entry: Entry = {
      item,
      kind,
      part,
      index,
      before: `{"type":"reasoning.${kind}","${kind}":`,
      after: `,${JSON.stringify({ ...origin, index }).slice(1)}`,
    }
    this.#current = entry
    if (kind === 'text' && item !== undefined) this.#lastText.set(item, index)
    return entry
  }
}

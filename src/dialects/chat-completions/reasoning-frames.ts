/**
 * Reasoning of one stream as fields of chat deltas: `reasoning` and one entry of `reasoning_details`, numbered in the
 * order in which they began. Entries with the same index are one. Hot path.
 */
import type { OutputItem, ReasoningItem } from '../../protocol/items.ts'
import { detailOrigin, type Fields, REASONING_BREAK } from './answer.ts'

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

  /** Members of the delta as JSON, without braces; `''` for a delta without text. */
  text(item: OutputItem | undefined, part: number, delta: string): string {
    return delta === '' ? '' : this.#piece(item, 'text', part, delta)
  }

  /** As `text`. */
  summary(item: OutputItem | undefined, part: number, delta: string): string {
    return delta === '' ? '' : this.#piece(item, 'summary', part, delta)
  }

  /** The entry with its number; it becomes the owner of it. */
  numbered(detail: Fields): Fields {
    return { ...detail, index: this.#entries++ }
  }

  /** What a reasoning item says at its end: signature and encrypted part. `begun`: the item as it was announced. */
  seals(begun: OutputItem | undefined, item: ReasoningItem): Fields[] {
    const details: Fields[] = []
    const origin = detailOrigin(item)
    if (item.signature !== undefined) {
      const index = begun === undefined ? undefined : this.#lastText.get(begun)
      const detail = { type: 'reasoning.text', text: '', signature: item.signature, ...origin }
      details.push(index === undefined ? this.numbered(detail) : { ...detail, index })
    }
    if (item.encrypted_content !== undefined) {
      details.push(this.numbered({ type: 'reasoning.encrypted', data: item.encrypted_content, ...origin }))
    }
    return details
  }

  #piece(item: OutputItem | undefined, kind: Entry['kind'], part: number, delta: string): string {
    let entry = this.#current
    let told = delta
    if (entry === null || entry.item !== item || entry.kind !== kind || entry.part !== part) {
      entry = this.#open(item, kind, part)
      if (this.#spoke) told = REASONING_BREAK + delta
      this.#spoke = true
    }
    return `"reasoning":${JSON.stringify(told)},"reasoning_details":[${entry.before}${JSON.stringify(delta)}${entry.after}]`
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

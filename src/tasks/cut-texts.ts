/** Cuts the middle out of a conversation's longest texts until it fits, where leaving items out is not enough. Pure. */
import type { InputItem } from '../protocol/items.ts'

export interface CutTextsInput {
  /** `fixed` ones keep their texts. */
  readonly items: readonly { readonly item: InputItem; readonly fixed: boolean }[]
  readonly tokensMax: number
  readonly tokensOf: (item: InputItem) => number
}

/** Stands where something was cut. */
export const CUT_MARK = '\n[...]\n'
/** UTF-16 units that are left of a text at least; shorter ones are not cut. */
const KEPT_MIN = 200

/** Where a text stands: the fields on the way to it. */
interface Spot {
  readonly place: number
  readonly path: readonly (string | number)[]
  readonly text: string
}

/** Null when it does not fit even so. */
export function cutTexts({ items, tokensMax, tokensOf }: CutTextsInput): InputItem[] | null {
  const result = items.map(({ item }) => item)
  const tokens = result.map(tokensOf)
  let total = tokens.reduce((sum, each) => sum + each, 0)
  const spots = items
    .flatMap(({ item, fixed }, place) => (fixed ? [] : spotsOf(item, place)))
    .toSorted((a, b) => b.text.length - a.text.length || a.place - b.place)
  for (const spot of spots) {
    const item = result[spot.place]
    if (item === undefined || spot.text.length <= KEPT_MIN + CUT_MARK.length) break
    const others = total - (tokens[spot.place] ?? 0)
    const shorter = shortened(item, spot, cut => others + tokensOf(cut) <= tokensMax)
    result[spot.place] = shorter
    tokens[spot.place] = tokensOf(shorter)
    total = others + (tokens[spot.place] ?? 0)
    if (total <= tokensMax) return result
  }
  return null
}

/** With as much of the text as fits, and the least when nothing does. */
function shortened(item: InputItem, { path, text }: Spot, fits: (cut: InputItem) => boolean): InputItem {
  const withKept = (kept: number) => replaced(item, path, middleCut(text, kept)) as InputItem
  let least = KEPT_MIN
  let most = text.length - CUT_MARK.length - 1
  let best = withKept(least)
  if (!fits(best)) return best
  while (least < most) {
    const kept = Math.ceil((least + most) / 2)
    const cut = withKept(kept)
    if (fits(cut)) {
      best = cut
      least = kept
    } else most = kept - 1
  }
  return best
}

/** Half of what is kept from each end, never half of a character. */
function middleCut(text: string, kept: number): string {
  let head = Math.ceil(kept / 2)
  let tail = text.length - Math.floor(kept / 2)
  if (isLow(text.charCodeAt(head))) head--
  if (isLow(text.charCodeAt(tail))) tail++
  return text.slice(0, head) + CUT_MARK + text.slice(tail)
}

/** The second half of a pair. */
function isLow(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff
}

/** Texts of messages and of results; arguments of calls have to stay JSON. */
function spotsOf(item: InputItem, place: number): Spot[] {
  const spots: Spot[] = []
  for (const field of ['content', 'output']) {
    const value = Object.hasOwn(item, field) ? (item as Record<string, unknown>)[field] : undefined
    if (typeof value === 'string') spots.push({ place, path: [field], text: value })
    if (!Array.isArray(value)) continue
    for (const [index, part] of value.entries()) {
      const text: unknown = typeof part === 'object' && part !== null ? part.text : undefined
      if (typeof text === 'string') spots.push({ place, path: [field, index, 'text'], text })
    }
  }
  return spots
}

/** A copy with another text at the end of the path. */
function replaced(value: unknown, path: readonly (string | number)[], text: string): unknown {
  const [field, ...rest] = path
  if (field === undefined) return text
  if (Array.isArray(value)) return value.map((each, at) => (at === field ? replaced(each, rest, text) : each))
  const object = value as Record<string, unknown>
  return { ...object, [field]: replaced(object[field], rest, text) }
}

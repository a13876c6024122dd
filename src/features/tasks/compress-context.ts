/**
 * Middle-out compression: shortens a conversation to fit a model's context. It drops items from the middle, because
 * models pay most attention to the start and the end, and then cuts the longest texts. Pure and inline: one walk over
 * the items and a token estimate of each.
 */
import type { InputItem } from '../../protocol/items.ts'

interface CompressContextInput {
  readonly items: readonly InputItem[]
  /** Limit for the tokens of all items. */
  readonly tokensMax: number
  /** Estimates one item; called again for an item whose text was cut. */
  readonly tokensOf: (item: InputItem) => number
  /** Limit for the number of items; some providers have one. */
  readonly itemsMax?: number
}

interface CompressContextOutput {
  /** The original items if they already fit or cannot be made to fit. */
  readonly items: readonly InputItem[]
  readonly fits: boolean
  readonly changed: boolean
}

/** Items that are dropped together or not at all. */
interface Group {
  readonly places: number[]
  /** True if it is never dropped. */
  pinned: boolean
}

/** Items that control the conversation and are not part of it. */
const STEERING = new Set(['additional_tools', 'configuration_update', 'compaction', 'context_compaction'])

export function compressContext(input: CompressContextInput): CompressContextOutput {
  const { items, tokensMax, tokensOf, itemsMax = Number.POSITIVE_INFINITY } = input
  const tokens = items.map(tokensOf)
  let total = tokens.reduce((sum, each) => sum + each, 0)
  let count = items.length
  if (total <= tokensMax && count <= itemsMax) return { items, fits: true, changed: false }

  const dropped = new Set<number>()
  let last: readonly number[] = []
  for (const { places } of middleFirst(groupsOf(items), items.length)) {
    if (total <= tokensMax && count <= itemsMax) break
    last = places
    for (const position of places) {
      dropped.add(position)
      total -= tokens[position] ?? 0
      count--
    }
  }
  const longestItem = longItem(items, last, count < itemsMax ? tokensMax - total : 0, input)
  if (longestItem !== null) {
    const [place = 0] = last
    const all = items.flatMap((item, at) => (at === place ? [longestItem] : dropped.has(at) ? [] : [item]))
    return { items: all, fits: true, changed: true }
  }
  const rest = items.filter((_, position) => !dropped.has(position))
  if (count > itemsMax) return { items, fits: false, changed: false }
  if (total <= tokensMax) return { items: rest, fits: true, changed: true }
  const cut = cutTexts({
    items: rest.map(each => ({ item: each, fixed: isSystem(each) })),
    tokensMax,
    tokensOf,
  })
  return cut === null ? { items, fits: false, changed: false } : { items: cut, fits: true, changed: true }
}

/** If dropping the last item left at least this share empty, the item comes back with its texts cut. */
const EMPTY_SHARE = 0.25

/** The last dropped item, cut to the free space; null if that is small. */
function longItem(
  items: readonly InputItem[],
  positions: readonly number[],
  tokensLeft: number,
  { tokensMax, tokensOf }: CompressContextInput,
): InputItem | null {
  const [place] = positions
  const item = place === undefined || positions.length > 1 ? undefined : items[place]
  if (item === undefined || tokensLeft < tokensMax * EMPTY_SHARE) return null
  return cutTexts({ items: [{ item, fixed: false }], tokensMax: tokensLeft, tokensOf })?.[0] ?? null
}

/** The groups that may be dropped, from the centre outward; of two at the same distance, the earlier one first. */
function middleFirst(groups: readonly Group[], length: number): Group[] {
  const centre = (length - 1) / 2
  const distance = ({ places }: Group) => {
    const sum = places.reduce((all, position) => all + position, 0)
    return Math.abs(sum / places.length - centre)
  }
  const first = ({ places }: Group) => places[0] ?? 0
  return groups
    .filter(({ pinned }) => !pinned)
    .toSorted((a, b) => distance(a) - distance(b) || first(a) - first(b))
}

/** Groups a call with its result, and reasoning with the item after it: providers refuse one without the other. */
function groupsOf(items: readonly InputItem[]): Group[] {
  const groups: Group[] = []
  const byCall = new Map<string, Group>()
  let reasoning: number[] = []
  for (const [place, item] of items.entries()) {
    if (item.type === 'reasoning') {
      reasoning.push(place)
      continue
    }
    const call = callOf(item)
    let group = call === null ? undefined : byCall.get(call)
    if (group === undefined) {
      group = { places: [], pinned: false }
      groups.push(group)
      if (call !== null) byCall.set(call, group)
    }
    group.places.push(...reasoning, place)
    group.pinned ||= isSystem(item) || STEERING.has(item.type ?? 'message')
    reasoning = []
  }
  if (reasoning.length > 0) groups.push({ places: reasoning, pinned: false })
  const question = items.findLastIndex(item => roleOf(item) === 'user')
  // The last item is what the model must answer.
  for (const group of groups)
    if (group.places.includes(question) || group.places.includes(items.length - 1)) group.pinned = true
  return groups
}

function callOf(item: InputItem): string | null {
  return 'call_id' in item && typeof item.call_id === 'string' ? item.call_id : null
}

function isSystem(item: InputItem): boolean {
  const role = roleOf(item)
  return role === 'system' || role === 'developer'
}

function roleOf(item: InputItem): string | null {
  const isMessage = item.type === undefined || item.type === 'message'
  return isMessage && 'role' in item && typeof item.role === 'string' ? item.role : null
}

interface CutTextsInput {
  /** Texts of `fixed` items are not cut. */
  readonly items: readonly { readonly item: InputItem; readonly fixed: boolean }[]
  readonly tokensMax: number
  readonly tokensOf: (item: InputItem) => number
}

/** Replaces the removed text. */
export const CUT_MARK = '\n[...]\n'
/** Minimum UTF-16 units that remain of a text; shorter texts are not cut. */
const KEPT_MIN = 200

/** The position of a text: its item and the path of fields to it. */
interface Spot {
  readonly place: number
  readonly path: readonly (string | number)[]
  readonly text: string
}

/** Removes the middle of the longest texts until the items fit. Null if they still do not. */
function cutTexts({ items, tokensMax, tokensOf }: CutTextsInput): InputItem[] | null {
  const result = items.map(({ item }) => item)
  const tokens = result.map(tokensOf)
  let total = tokens.reduce((sum, each) => sum + each, 0)
  const spots = items
    .flatMap(({ item, fixed }, position) => (fixed ? [] : spotsOf(item, position)))
    .toSorted((a, b) => b.text.length - a.text.length || a.place - b.place)
  for (const spot of spots) {
    const item = result[spot.place]
    if (item === undefined || spot.text.length <= KEPT_MIN + CUT_MARK.length) break
    const others = total - (tokens[spot.place] ?? 0)
    const shorter = shorten(item, spot, cut => others + tokensOf(cut) <= tokensMax)
    result[spot.place] = shorter
    tokens[spot.place] = tokensOf(shorter)
    total = others + (tokens[spot.place] ?? 0)
    if (total <= tokensMax) return result
  }
  return null
}

/** The item with as much of the text as fits, or with the minimum. */
function shorten(item: InputItem, { path, text }: Spot, isEnough: (cut: InputItem) => boolean): InputItem {
  const withKept = (length: number) => replaceAt(item, path, middleCut(text, length)) as InputItem
  let least = KEPT_MIN
  let most = text.length - CUT_MARK.length - 1
  let best = withKept(least)
  if (!isEnough(best)) return best
  while (least < most) {
    const length = Math.ceil((least + most) / 2)
    const cut = withKept(length)
    if (isEnough(cut)) {
      best = cut
      least = length
    } else most = length - 1
  }
  return best
}

/** Keeps half of `length` at each end, without splitting a character. */
function middleCut(text: string, length: number): string {
  let head = Math.ceil(length / 2)
  let tail = text.length - Math.floor(length / 2)
  if (isLow(text.charCodeAt(head))) head--
  if (isLow(text.charCodeAt(tail))) tail++
  return text.slice(0, head) + CUT_MARK + text.slice(tail)
}

/** True for the second half of a surrogate pair. */
function isLow(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff
}

/** The texts of messages and results. Arguments of calls must stay JSON, so they are not included. */
function spotsOf(item: InputItem, position: number): Spot[] {
  const spots: Spot[] = []
  for (const field of ['content', 'output']) {
    const value = Object.hasOwn(item, field) ? (item as Record<string, unknown>)[field] : undefined
    if (typeof value === 'string') spots.push({ place: position, path: [field], text: value })
    if (!Array.isArray(value)) continue
    for (const [index, part] of value.entries()) {
      const text: unknown = typeof part === 'object' && part !== null ? part.text : undefined
      if (typeof text === 'string') spots.push({ place: position, path: [field, index, 'text'], text })
    }
  }
  return spots
}

/** A copy with another text at the end of the path. */
function replaceAt(value: unknown, path: readonly (string | number)[], text: string): unknown {
  const [field, ...rest] = path
  if (field === undefined) return text
  if (Array.isArray(value))
    return value.map((each, at) => (at === field ? replaceAt(each, rest, text) : each))
  const object = value as Record<string, unknown>
  return { ...object, [field]: replaceAt(object[field], rest, text) }
}

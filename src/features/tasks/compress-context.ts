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
  readonly positions: number[]
  /** True if it is never dropped. */
  pinned: boolean
}

/** Items that control the conversation and are never dropped. */
const STEERING = new Set(['additional_tools', 'configuration_update', 'compaction', 'context_compaction'])

export function compressContext(input: CompressContextInput): CompressContextOutput {
  const { items, tokensMax, tokensOf, itemsMax = Number.POSITIVE_INFINITY } = input
  const tokens = items.map(tokensOf)
  let total = tokens.reduce((sum, itemTokens) => sum + itemTokens, 0)
  let count = items.length
  if (total <= tokensMax && count <= itemsMax) return { items, fits: true, changed: false }

  const droppedPositions = new Set<number>()
  let lastDropped: readonly number[] = []
  for (const { positions } of fromMiddle(groupsOf(items), items.length)) {
    if (total <= tokensMax && count <= itemsMax) break
    lastDropped = positions
    for (const position of positions) {
      droppedPositions.add(position)
      total -= tokens[position] ?? 0
      count--
    }
  }
  const shortenedItem = shortenLastDropped(
    items,
    lastDropped,
    count < itemsMax ? tokensMax - total : 0,
    input,
  )
  if (shortenedItem !== null) {
    const [position = 0] = lastDropped
    const shortened = items.flatMap((item, index) =>
      index === position ? [shortenedItem] : droppedPositions.has(index) ? [] : [item],
    )
    return { items: shortened, fits: true, changed: true }
  }
  const remaining = items.filter((_, position) => !droppedPositions.has(position))
  if (count > itemsMax) return { items, fits: false, changed: false }
  if (total <= tokensMax) return { items: remaining, fits: true, changed: true }
  const cutItems = cutTexts({
    items: remaining.map(item => ({ item, fixed: isSystem(item) })),
    tokensMax,
    tokensOf,
  })
  return cutItems === null
    ? { items, fits: false, changed: false }
    : { items: cutItems, fits: true, changed: true }
}

/** The last dropped item comes back with its texts cut if at least this share of the limit is free without it. */
const EMPTY_SHARE = 0.25

/** The last dropped item, cut to the free space; null if that is small. */
function shortenLastDropped(
  items: readonly InputItem[],
  positions: readonly number[],
  tokensLeft: number,
  { tokensMax, tokensOf }: CompressContextInput,
): InputItem | null {
  const [position] = positions
  const item = position === undefined || positions.length > 1 ? undefined : items[position]
  if (item === undefined || tokensLeft < tokensMax * EMPTY_SHARE) return null
  return cutTexts({ items: [{ item, fixed: false }], tokensMax: tokensLeft, tokensOf })?.[0] ?? null
}

/** The groups that may be dropped, from the centre outward; of two at the same distance, the earlier one first. */
function fromMiddle(groups: readonly Group[], length: number): Group[] {
  const centre = (length - 1) / 2
  const distance = ({ positions }: Group) => {
    const sum = positions.reduce((total, position) => total + position, 0)
    return Math.abs(sum / positions.length - centre)
  }
  const firstPosition = ({ positions }: Group) => positions[0] ?? 0
  return groups
    .filter(({ pinned }) => !pinned)
    .toSorted((a, b) => distance(a) - distance(b) || firstPosition(a) - firstPosition(b))
}

/** Groups a call with its result, and reasoning with the item after it: providers refuse one without the other. */
function groupsOf(items: readonly InputItem[]): Group[] {
  const groups: Group[] = []
  const byCall = new Map<string, Group>()
  let reasoning: number[] = []
  for (const [position, item] of items.entries()) {
    if (item.type === 'reasoning') {
      reasoning.push(position)
      continue
    }
    const callId = callIdOf(item)
    let group = callId === null ? undefined : byCall.get(callId)
    if (group === undefined) {
      group = { positions: [], pinned: false }
      groups.push(group)
      if (callId !== null) byCall.set(callId, group)
    }
    group.positions.push(...reasoning, position)
    group.pinned ||= isSystem(item) || STEERING.has(item.type ?? 'message')
    reasoning = []
  }
  if (reasoning.length > 0) groups.push({ positions: reasoning, pinned: false })
  const lastUserIndex = items.findLastIndex(item => roleOf(item) === 'user')
  // The model must answer the last item.
  for (const group of groups)
    if (group.positions.includes(lastUserIndex) || group.positions.includes(items.length - 1))
      group.pinned = true
  return groups
}

function callIdOf(item: InputItem): string | null {
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
const MIN_KEPT_CHARS = 200

/** A text, with the position of its item and its path in the item. */
interface TextPlace {
  readonly position: number
  readonly path: readonly (string | number)[]
  readonly text: string
}

/** Removes the middle of the longest texts until the items fit. Null if they still do not. */
function cutTexts({ items, tokensMax, tokensOf }: CutTextsInput): InputItem[] | null {
  const result = items.map(({ item }) => item)
  const tokens = result.map(tokensOf)
  let total = tokens.reduce((sum, itemTokens) => sum + itemTokens, 0)
  const texts = items
    .flatMap(({ item, fixed }, position) => (fixed ? [] : textsIn(item, position)))
    .toSorted((a, b) => b.text.length - a.text.length || a.position - b.position)
  for (const spot of texts) {
    const item = result[spot.position]
    if (item === undefined || spot.text.length <= MIN_KEPT_CHARS + CUT_MARK.length) break
    const otherTokens = total - (tokens[spot.position] ?? 0)
    const shorter = shorten(item, spot, cutItem => otherTokens + tokensOf(cutItem) <= tokensMax)
    result[spot.position] = shorter
    tokens[spot.position] = tokensOf(shorter)
    total = otherTokens + (tokens[spot.position] ?? 0)
    if (total <= tokensMax) return result
  }
  return null
}

/** The item with as much of the text as fits, or with the minimum. */
function shorten(
  item: InputItem,
  { path, text }: TextPlace,
  isEnough: (cut: InputItem) => boolean,
): InputItem {
  const withKept = (length: number) => replaceAt(item, path, middleCut(text, length)) as InputItem
  let minLength = MIN_KEPT_CHARS
  let maxLength = text.length - CUT_MARK.length - 1
  let longest = withKept(minLength)
  if (!isEnough(longest)) return longest
  while (minLength < maxLength) {
    const length = Math.ceil((minLength + maxLength) / 2)
    const cutItem = withKept(length)
    if (isEnough(cutItem)) {
      longest = cutItem
      minLength = length
    } else maxLength = length - 1
  }
  return longest
}

/** Keeps half of `length` at each end, without splitting a character. */
function middleCut(text: string, length: number): string {
  let head = Math.ceil(length / 2)
  let tail = text.length - Math.floor(length / 2)
  if (isLowSurrogate(text.charCodeAt(head))) head--
  if (isLowSurrogate(text.charCodeAt(tail))) tail++
  return text.slice(0, head) + CUT_MARK + text.slice(tail)
}

/** True for the second half of a surrogate pair. */
function isLowSurrogate(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff
}

/** The texts of messages and results. Arguments of calls must stay JSON, so they are not included. */
function textsIn(item: InputItem, position: number): TextPlace[] {
  const texts: TextPlace[] = []
  for (const field of ['content', 'output']) {
    const value = Object.hasOwn(item, field) ? (item as Record<string, unknown>)[field] : undefined
    if (typeof value === 'string') texts.push({ position, path: [field], text: value })
    if (!Array.isArray(value)) continue
    for (const [index, part] of value.entries()) {
      const text: unknown = typeof part === 'object' && part !== null ? part.text : undefined
      if (typeof text === 'string') texts.push({ position, path: [field, index, 'text'], text })
    }
  }
  return texts
}

/** A copy with another text at the end of the path. */
function replaceAt(value: unknown, path: readonly (string | number)[], text: string): unknown {
  const [field, ...innerPath] = path
  if (field === undefined) return text
  if (Array.isArray(value))
    return value.map((element, index) => (index === field ? replaceAt(element, innerPath, text) : element))
  const object = value as Record<string, unknown>
  return { ...object, [field]: replaceAt(object[field], innerPath, text) }
}

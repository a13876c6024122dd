/**
 * Middle-out: makes a conversation fit a model's context by leaving out what stands in its middle. Models attend to
 * the start and the end most. Pure and inline: it costs a walk over the items and an estimate of each.
 */
import type { InputItem } from '../protocol/items.ts'
import { cutTexts } from './cut-texts.ts'

export interface CompressContextInput {
  readonly items: readonly InputItem[]
  /** What the items may come to. */
  readonly tokensMax: number
  /** An estimate for one item; asked again for an item whose text was cut. */
  readonly tokensOf: (item: InputItem) => number
  /** Some providers bound how many items there are. */
  readonly itemsMax?: number
}

export interface CompressContextOutput {
  /** As they came when nothing had to be done, or when it cannot be done. */
  readonly items: readonly InputItem[]
  readonly fits: boolean
  readonly changed: boolean
}

/** Items that are left out together or not at all. */
interface Group {
  readonly places: number[]
  /** Stays whatever happens. */
  pinned: boolean
}

/** Items that steer the conversation rather than being part of it. */
const STEERING = new Set(['additional_tools', 'configuration_update', 'compaction', 'context_compaction'])

export function compressContext(input: CompressContextInput): CompressContextOutput {
  const { items, tokensMax, tokensOf, itemsMax = Number.POSITIVE_INFINITY } = input
  const tokens = items.map(tokensOf)
  let total = tokens.reduce((sum, each) => sum + each, 0)
  let count = items.length
  if (total <= tokensMax && count <= itemsMax) return { items, fits: true, changed: false }

  const dropped = new Set<number>()
  for (const { places } of middleFirst(groupsOf(items), items.length)) {
    if (total <= tokensMax && count <= itemsMax) break
    for (const place of places) {
      dropped.add(place)
      total -= tokens[place] ?? 0
      count--
    }
  }
  const kept = items.filter((_, place) => !dropped.has(place))
  if (count > itemsMax) return { items, fits: false, changed: false }
  if (total <= tokensMax) return { items: kept, fits: true, changed: true }
  const cut = cutTexts({
    items: kept.map(each => ({ item: each, fixed: isSystem(each) })),
    tokensMax,
    tokensOf,
  })
  return cut === null ? { items, fits: false, changed: false } : { items: cut, fits: true, changed: true }
}

/** Those that may go, from the centre outward; of two that are equally far from it, the earlier one. */
function middleFirst(groups: readonly Group[], length: number): Group[] {
  const centre = (length - 1) / 2
  const distance = ({ places }: Group) => {
    const sum = places.reduce((all, place) => all + place, 0)
    return Math.abs(sum / places.length - centre)
  }
  const first = ({ places }: Group) => places[0] ?? 0
  return groups
    .filter(({ pinned }) => !pinned)
    .toSorted((a, b) => distance(a) - distance(b) || first(a) - first(b))
}

/** A call goes with its result, the reasoning before an item with that item: providers refuse one without the other. */
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
  // The last item is what the model is to answer.
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

/**
 * The caller's cache breakpoints, in the form that a provider accepts. Pure. Hot path: one walk over the blocks, and a
 * copy only if a mark has to change.
 */
import { isRecord, type Json } from '../../base/json.ts'

/** The most marks that providers accept in one request; with more, they refuse the whole request. */
const CACHE_MARKS_MAX = 4
/** The depth of a block in the content of a tool result in the content of a message. */
const DEPTH_MAX = 3
/** Members of a block or item that may contain blocks. */
const NESTED = ['content', 'output'] as const
const LONG_TTL = '1h'

/** How a provider writes marks. */
interface MarkForm {
  /** The member with the mark. */
  readonly name: 'cache_control' | 'prompt_cache_breakpoint' | 'cachePoint'
  /** True: a mark is a block of its own, after the blocks that it covers. */
  readonly isBlock: boolean
}

const CACHE_CONTROL: MarkForm = { name: 'cache_control', isBlock: false }
export const BREAKPOINT: MarkForm = { name: 'prompt_cache_breakpoint', isBlock: false }
export const CACHE_POINT: MarkForm = { name: 'cachePoint', isBlock: true }

/** The parts of a body with blocks, in the order in which providers cache them. */
const BODY_PARTS = ['tools', 'system', 'messages'] as const

/** The body with the marks that its provider accepts, including `cache_control` of the whole request. */
export function withLastMarks<Body extends Json>(body: Body): Body {
  const closing = body['cache_control']
  const lists = BODY_PARTS.map(name => body[name])
  const acceptedLists = lastMarks(isMark(closing) ? [...lists, [body]] : lists, CACHE_CONTROL)
  if (acceptedLists === null) return body
  const acceptedBody = acceptedLists[BODY_PARTS.length] as readonly Body[] | undefined
  const copy = { ...(acceptedBody?.[0] ?? body) }
  return Object.assign(
    copy,
    Object.fromEntries(
      BODY_PARTS.flatMap((name, index) =>
        acceptedLists[index] === undefined ? [] : [[name, acceptedLists[index]] as const],
      ),
    ),
  )
}

/**
 * Lists of blocks with the marks that a provider accepts: the last four, because each covers everything before it. A
 * one-hour mark after a five-minute mark is lowered to five minutes, because raising the earlier one would cost more
 * than the caller requested. Null: no change is needed.
 */
export function lastMarks(lists: readonly unknown[], form: MarkForm): readonly unknown[] | null {
  const ttls: unknown[] = []
  for (const list of lists) collectTtls(list, form, DEPTH_MAX, ttls)
  const surplusCount = Math.max(0, ttls.length - CACHE_MARKS_MAX)
  const shortFrom = ttls.findIndex((ttl, index) => index >= surplusCount && ttl !== LONG_TTL)
  if (surplusCount === 0 && (shortFrom === -1 || ttls.lastIndexOf(LONG_TTL) < shortFrom)) return null
  const changes = new MarkLimiter(form, surplusCount, shortFrom === -1 ? ttls.length : shortFrom)
  return lists.map(list => changes.markBlocks(list, DEPTH_MAX))
}

function isMark(value: unknown): boolean {
  return value !== undefined && value !== null
}

function collectTtls(value: unknown, form: MarkForm, depth: number, ttls: unknown[]): void {
  if (!Array.isArray(value) || depth === 0) return
  for (const block of value) {
    if (!isRecord(block)) continue
    // The mark of a block comes after the marks of its content.
    for (const name of NESTED) collectTtls(block[name], form, depth - 1, ttls)
    const mark = block[form.name]
    if (isMark(mark)) ttls.push(isRecord(mark) ? mark['ttl'] : undefined)
  }
}

/** Copies lists of blocks without their first marks, and lowers marks after the first five-minute mark that stays. */
class MarkLimiter {
  readonly #form: MarkForm
  readonly #surplusCount: number
  readonly #shortFrom: number
  #markIndex = 0

  constructor(form: MarkForm, surplusCount: number, shortFrom: number) {
    this.#form = form
    this.#surplusCount = surplusCount
    this.#shortFrom = shortFrom
  }

  markBlocks(value: unknown, depth: number): unknown {
    if (!Array.isArray(value) || depth === 0) return value
    return value.flatMap((block: unknown): readonly unknown[] =>
      isRecord(block) ? this.#block(block, depth) : [block],
    )
  }

  #block(block: Json, depth: number): readonly Json[] {
    const { name, isBlock } = this.#form
    let copy = block
    for (const nested of NESTED) {
      const blocks = block[nested]
      if (Array.isArray(blocks)) copy = { ...copy, [nested]: this.markBlocks(blocks, depth - 1) }
    }
    const mark = block[name]
    if (!isMark(mark)) return [copy]
    const markIndex = this.#markIndex++
    if (markIndex >= this.#surplusCount) {
      if (markIndex < this.#shortFrom || !isRecord(mark) || mark['ttl'] !== LONG_TTL) return [copy]
      const { ttl: _, ...shortMark } = mark
      return [{ ...copy, [name]: shortMark }]
    }
    if (isBlock) return []
    const { [name]: _, ...unmarked } = copy
    return [unmarked]
  }
}

// Marks that a provider does not get

/** Members of a request, or of a body of any format, that may contain a marked block. */
const PARENT_FIELDS = [...NESTED, 'tools', 'system', 'messages', 'input', 'toolConfig', 'toolResult'] as const
const MARK_FIELDS: readonly string[] = ['cache_control', 'prompt_cache_breakpoint', 'cachePoint']
/** The depth of a block in the content of a result in the content of a message in the body. */
const SEARCH_DEPTH_MAX = 8

/**
 * The field of the caller's marks if the body has fewer marks in blocks, or none at all; its `ttl` if only one-hour
 * marks were lowered; else empty. For the pipeline.
 */
export function lostMarks(request: object, body: object): readonly string[] {
  const requestMarks = new MarkCount(request)
  if (requestMarks.count === 0) return []
  const sentMarks = new MarkCount(body)
  const name = requestMarks.hasControl ? 'cache_control' : 'prompt_cache_breakpoint'
  if (sentMarks.count === 0 || sentMarks.blockCount < requestMarks.blockCount) return [name]
  return sentMarks.longCount < requestMarks.longCount ? [`${name}.ttl`] : []
}

class MarkCount {
  count = 0
  /** The number of marks in blocks, not counting the mark of the whole request. */
  readonly blockCount: number
  longCount = 0
  hasControl = false

  constructor(root: object) {
    this.#countIn(root, SEARCH_DEPTH_MAX)
    this.blockCount = isMark((root as Json)['cache_control']) ? this.count - 1 : this.count
  }

  #countIn(value: unknown, depth: number): void {
    if (depth === 0) return
    if (Array.isArray(value)) {
      for (const element of value) this.#countIn(element, depth - 1)
      return
    }
    if (!isRecord(value)) return
    for (const name of MARK_FIELDS) {
      const mark = value[name]
      if (!isMark(mark)) continue
      this.count++
      if (name === 'cache_control') this.hasControl = true
      if (isRecord(mark) && mark['ttl'] === LONG_TTL) this.longCount++
    }
    for (const name of PARENT_FIELDS) this.#countIn(value[name], depth - 1)
  }
}

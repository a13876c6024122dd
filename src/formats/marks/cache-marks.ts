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
const LONG = '1h'

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
const PARTS = ['tools', 'system', 'messages'] as const

/** The body with the marks that its provider accepts, including `cache_control` of the whole request. */
export function withLastMarks<Body extends Json>(body: Body): Body {
  const closing = body['cache_control']
  const lists = PARTS.map(name => body[name])
  const last = lastMarks(isMark(closing) ? [...lists, [body]] : lists, CACHE_CONTROL)
  if (last === null) return body
  const whole = last[PARTS.length] as readonly Body[] | undefined
  const changed = { ...(whole?.[0] ?? body) }
  return Object.assign(
    changed,
    Object.fromEntries(
      PARTS.flatMap((name, at) => (last[at] === undefined ? [] : [[name, last[at]] as const])),
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
  const shortFrom = ttls.findIndex((ttl, at) => at >= surplusCount && ttl !== LONG)
  if (surplusCount === 0 && (shortFrom === -1 || ttls.lastIndexOf(LONG) < shortFrom)) return null
  const changes = new Changes(form, surplusCount, shortFrom === -1 ? ttls.length : shortFrom)
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
class Changes {
  readonly #form: MarkForm
  readonly #excess: number
  readonly #shortFrom: number
  #at = 0

  constructor(form: MarkForm, surplusCount: number, shortFrom: number) {
    this.#form = form
    this.#excess = surplusCount
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
    const at = this.#at++
    if (at >= this.#excess) {
      if (at < this.#shortFrom || !isRecord(mark) || mark['ttl'] !== LONG) return [copy]
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
const LEADING = [...NESTED, 'tools', 'system', 'messages', 'input', 'toolConfig', 'toolResult'] as const
const MARKS: readonly string[] = ['cache_control', 'prompt_cache_breakpoint', 'cachePoint']
/** The depth of a block in the content of a result in the content of a message in the body. */
const LEADING_DEPTH_MAX = 8

/**
 * The fields of the caller's marks that are missing in a body, for the pipeline. Empty where each mark is there, and
 * none for an hour was lowered.
 */
export function lostMarks(request: object, body: object): readonly string[] {
  const marks = new MarkCount(request)
  if (marks.marks === 0) return []
  const sent = new MarkCount(body)
  const name = marks.hasControl ? 'cache_control' : 'prompt_cache_breakpoint'
  if (sent.marks === 0 || sent.inBlocks < marks.inBlocks) return [name]
  return sent.long < marks.long ? [`${name}.ttl`] : []
}

class MarkCount {
  marks = 0
  /** The number of marks in blocks, not counting the mark of the whole request. */
  readonly inBlocks: number
  long = 0
  hasControl = false

  constructor(whole: object) {
    this.#walk(whole, LEADING_DEPTH_MAX)
    this.inBlocks = isMark((whole as Json)['cache_control']) ? this.marks - 1 : this.marks
  }

  #walk(value: unknown, depth: number): void {
    if (depth === 0) return
    if (Array.isArray(value)) {
      for (const each of value) this.#walk(each, depth - 1)
      return
    }
    if (!isRecord(value)) return
    for (const name of MARKS) {
      const mark = value[name]
      if (!isMark(mark)) continue
      this.marks++
      if (name === 'cache_control') this.hasControl = true
      if (isRecord(mark) && mark['ttl'] === LONG) this.long++
    }
    for (const name of LEADING) this.#walk(value[name], depth - 1)
  }
}

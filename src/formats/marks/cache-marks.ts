/**
 * The caller's cache breakpoints, in the form that a provider accepts. Pure. Hot path: one walk over the blocks, and a
 * copy only if a mark has to change.
 */
import { isRecord, type Json } from '../../json.ts'

/** Marks that providers take in one request; they refuse the whole request if it has more. */
const CACHE_MARKS_MAX = 4
/** A block in the content of a tool's result in the content of a message. */
const DEPTH_MAX = 3
/** Members of a block or item that may have blocks of their own. */
const NESTED = ['content', 'output'] as const
const LONG = '1h'

/** How a provider writes marks. */
interface MarkForm {
  /** The member with the mark. */
  readonly name: 'cache_control' | 'prompt_cache_breakpoint' | 'cachePoint'
  /** True: a mark is a block of its own, behind what it covers. */
  readonly isBlock: boolean
}

const CACHE_CONTROL: MarkForm = { name: 'cache_control', isBlock: false }
export const BREAKPOINT: MarkForm = { name: 'prompt_cache_breakpoint', isBlock: false }
export const CACHE_POINT: MarkForm = { name: 'cachePoint', isBlock: true }

/** The parts of a body with blocks, in the order in which providers cache them. */
const PARTS = ['tools', 'system', 'messages'] as const

/** The body with the marks that its provider takes, `cache_control` of the whole request included. */
export function withLastMarks<Body extends Json>(body: Body): Body {
  const closing = body['cache_control']
  const lists = PARTS.map(name => body[name])
  const kept = lastMarks(isMark(closing) ? [...lists, [body]] : lists, CACHE_CONTROL)
  if (kept === null) return body
  const whole = kept[PARTS.length] as readonly Body[] | undefined
  const changed = { ...(whole?.[0] ?? body) }
  return Object.assign(
    changed,
    Object.fromEntries(
      PARTS.flatMap((name, at) => (kept[at] === undefined ? [] : [[name, kept[at]] as const])),
    ),
  )
}

/**
 * Lists of blocks with the marks that a provider takes: the last four, for each covers all that is before it; and none
 * for a shorter time before one for a longer. Null: all may go out as they are.
 */
export function lastMarks(lists: readonly unknown[], form: MarkForm): readonly unknown[] | null {
  const times: unknown[] = []
  for (const list of lists) timesIn(list, form, DEPTH_MAX, times)
  const excess = Math.max(0, times.length - CACHE_MARKS_MAX)
  const longUntil = times.lastIndexOf(LONG)
  if (excess === 0 && times.every((time, at) => at >= longUntil || time === LONG)) return null
  const changes = new Changes(form, excess, longUntil)
  return lists.map(list => changes.of(list, DEPTH_MAX))
}

function isMark(value: unknown): boolean {
  return value !== undefined && value !== null
}

function timesIn(value: unknown, form: MarkForm, depth: number, times: unknown[]): void {
  if (!Array.isArray(value) || depth === 0) return
  for (const block of value) {
    if (!isRecord(block)) continue
    // The mark of a block is behind those of its content.
    for (const name of NESTED) timesIn(block[name], form, depth - 1, times)
    const mark = block[form.name]
    if (isMark(mark)) times.push(isRecord(mark) ? mark['ttl'] : undefined)
  }
}

/** Copies lists of blocks: without their first marks, and with a longer time in those before a longer one. */
class Changes {
  readonly #form: MarkForm
  readonly #excess: number
  readonly #longUntil: number
  #at = 0

  constructor(form: MarkForm, excess: number, longUntil: number) {
    this.#form = form
    this.#excess = excess
    this.#longUntil = longUntil
  }

  of(value: unknown, depth: number): unknown {
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
      if (Array.isArray(blocks)) copy = { ...copy, [nested]: this.of(blocks, depth - 1) }
    }
    const mark = block[name]
    if (!isMark(mark)) return [copy]
    const at = this.#at++
    if (at >= this.#excess) {
      return at < this.#longUntil && isRecord(mark) ? [{ ...copy, [name]: { ...mark, ttl: LONG } }] : [copy]
    }
    if (isBlock) return []
    const { [name]: _, ...unmarked } = copy
    return [unmarked]
  }
}

/**
 * Cache marks in the body of a provider that takes `cache_control`. Pure. Hot path: one walk over the blocks, and a
 * copy only if there are too many marks.
 */
import { isRecord, type Json } from './json.ts'

/** Marks that such providers take in one request; they refuse the whole request if it has more. */
const CACHE_MARKS_MAX = 4
/** The parts of a body, in the order in which providers cache them. */
const PARTS = ['tools', 'system', 'messages'] as const
/** A block in the content of a tool's result in the content of a message. */
const DEPTH_MAX = 3

/** The body with its last marks: each covers all that is before it, so the first ones are worth least. */
export function withLastMarks<Body extends Json>(body: Body): Body {
  let excess = (isMarked(body) ? 1 : 0) - CACHE_MARKS_MAX
  for (const name of PARTS) excess += marksIn(body[name], DEPTH_MAX)
  if (excess <= 0) return body
  const kept: Record<string, unknown> = {}
  for (const name of PARTS) {
    const part = body[name]
    const marks = Math.min(excess, marksIn(part, DEPTH_MAX))
    if (marks === 0) continue
    kept[name] = new Unmarked(marks).of(part, DEPTH_MAX)
    excess -= marks
  }
  return { ...body, ...kept }
}

function isMarked(block: Json): boolean {
  return block['cache_control'] !== undefined && block['cache_control'] !== null
}

function marksIn(value: unknown, depth: number): number {
  if (!Array.isArray(value) || depth === 0) return 0
  let marks = 0
  for (const block of value) {
    if (!isRecord(block)) continue
    if (isMarked(block)) marks++
    marks += marksIn(block['content'], depth - 1)
  }
  return marks
}

/** Copies lists of blocks without their first marks. */
class Unmarked {
  #left: number

  constructor(marks: number) {
    this.#left = marks
  }

  of(value: unknown, depth: number): unknown {
    if (!Array.isArray(value) || depth === 0) return value
    return value.map((block: unknown) => (isRecord(block) ? this.#block(block, depth) : block))
  }

  /** The mark of a block is behind those of its content. */
  #block(block: Json, depth: number): Json {
    if (this.#left === 0) return block
    const { content } = block
    const copy = content === undefined ? block : { ...block, content: this.of(content, depth - 1) }
    if (this.#left === 0 || !isMarked(block)) return copy
    this.#left--
    const { cache_control: _, ...unmarked } = copy as Json
    return unmarked
  }
}

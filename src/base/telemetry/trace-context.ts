/**
 * W3C trace context: reads the callers' `traceparent` and `tracestate`, and writes ours. Ids of spans and traces are 8
 * and 16 bytes in lower-case hex. Leaf. Pure, except for random ids.
 */
import { randomFillSync } from 'node:crypto'

/** The caller's position in its trace. */
export interface CallerContext {
  /** 32 hex digits. */
  readonly traceId: string
  /** The caller's span: 16 hex digits. */
  readonly spanId: string
  /** True if the caller keeps the trace. */
  readonly isSampled: boolean
  /** The header as it is sent to a provider if the gateway takes no part in the trace. */
  readonly header: string
  /** The caller's `tracestate`; null: it is absent or invalid. */
  readonly state: string | null
}

const PARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/
const NO_TRACE = '0'.repeat(32)
const NO_SPAN = '0'.repeat(16)
const SAMPLED = 1
/** Maximum length of a header that is read: a future version may be longer than today's 55 characters. */
const PARENT_MAX_CHARS = 256
const STATE_MAX_CHARS = 512
const STATE_MAX_MEMBERS = 32
const STATE_MEMBER =
  /^(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/

/**
 * Reads the headers of a caller. Null without a valid `traceparent`: a malformed one, one without ids, the forbidden
 * version `ff`, version `00` with more than its four parts, or two headers. Of later versions only the first four parts
 * are used.
 */
export function callerContext(
  parent: string | undefined,
  state: string | undefined = undefined,
): CallerContext | null {
  if (parent === undefined || parent.length > PARENT_MAX_CHARS) return null
  const [, version, traceId = '', spanId = '', flags = '', more] = PARENT.exec(parent) ?? []
  if (version === undefined || version === 'ff' || (version === '00' && more !== undefined)) return null
  if (traceId === NO_TRACE || spanId === NO_SPAN) return null
  const isSampled = (Number.parseInt(flags, 16) & SAMPLED) !== 0
  return {
    traceId,
    spanId,
    isSampled,
    header: traceParent(traceId, spanId, isSampled),
    state: check(state),
  }
}

/** The header of version `00`: a `traceparent`, or a `traceresponse`. */
export function traceParent(traceId: string, spanId: string, isSampled: boolean): string {
  return `00-${traceId}-${spanId}-${isSampled ? '01' : '00'}`
}

/** True for 32 hex digits that are not all zeros. */
export function isTraceId(text: unknown): text is string {
  return typeof text === 'string' && /^[0-9a-f]{32}$/.test(text) && text !== NO_TRACE
}

/** True for 16 hex digits that are not all zeros. */
export function isSpanId(text: unknown): text is string {
  return typeof text === 'string' && /^[0-9a-f]{16}$/.test(text) && text !== NO_SPAN
}

function check(state: string | undefined): string | null {
  if (state === undefined || state.length > STATE_MAX_CHARS) return null
  const members = state
    .split(',')
    .map(member => member.replace(/^[ \t]+|[ \t]+$/g, ''))
    .filter(member => member !== '')
  if (members.length === 0 || members.length > STATE_MAX_MEMBERS) return null
  const names = new Set(members.map(member => member.slice(0, member.indexOf('='))))
  if (names.size < members.length || !members.every(member => STATE_MEMBER.test(member))) return null
  return members.join(',')
}

/** Creates random ids of traces and spans. One for each thread; a call for random bytes serves many. */
export class TraceIds {
  readonly #pool = Buffer.allocUnsafe(4096)
  #next = 4096

  traceId(): string {
    return this.#draw(16)
  }

  spanId(): string {
    return this.#draw(8)
  }

  #draw(bytes: number): string {
    if (this.#next + bytes > this.#pool.length) {
      randomFillSync(this.#pool)
      this.#next = 0
    }
    const id = this.#pool.toString('hex', this.#next, this.#next + bytes)
    this.#next += bytes
    // All zeros is not a valid id; this happens once in 2 to the 64.
    return /[^0]/.test(id) ? id : this.#draw(bytes)
  }
}

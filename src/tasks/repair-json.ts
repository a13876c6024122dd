/**
 * Healing of a reply that should have been JSON and nearly is: fences, prose around it, missing ends, trailing commas,
 * bare keys. Text for text: numbers keep their digits, and what is JSON already stays as it is. Pure; task worker.
 */
import { jsonrepair } from 'jsonrepair'

export interface RepairJsonInput {
  readonly text: string
  /** The model was cut off by its token limit: what is missing is content, and closing brackets would hide that. */
  readonly truncated: boolean
}

export interface RepairJsonOutput {
  /** JSON, or the text as it came when it cannot be made into any. */
  readonly text: string
  readonly valid: boolean
  /** It was not JSON and now is. */
  readonly improved: boolean
}

/** Beyond this a reply is left alone; models write a hundredth of it. */
const TEXT_MAX = 4 * 1024 * 1024
/** Places at which JSON may begin in prose with many brackets. */
const STARTS_MAX = 16

const FENCE = /```[^\n`]*\n([\s\S]*?)(?:\n?[ \t]*```|$)/

export function repairJson({ text, truncated }: RepairJsonInput): RepairJsonOutput {
  if (isJson(text)) return { text, valid: true, improved: false }
  const asItCame = { text, valid: false, improved: false }
  if (truncated || text.length > TEXT_MAX) return asItCame
  const healed = heal(text)
  return healed === null ? asItCame : { text: healed, valid: true, improved: true }
}

function heal(text: string): string | null {
  const bare = text.replace(/^\uFEFF/, '').trim()
  const fenced = FENCE.exec(bare)?.[1]?.trim()
  // The fence first: what is around it is prose. A fence inside a JSON string is no fence.
  const sources = fenced === undefined || /^[{[]/.test(bare) ? [bare] : [fenced, bare]
  for (const source of sources) if (isStructure(source)) return source
  for (const source of sources) {
    const span = longestSpan(source)
    if (span !== null) return span
  }
  for (const source of sources) {
    const repaired = repairFrom(source)
    if (repaired !== null) return repaired
  }
  return null
}

/** The longest object or array that stands whole in the text; an object goes before an array in prose. */
function longestSpan(text: string): string | null {
  let best: string | null = null
  let from = 0
  for (let tries = 0; tries < STARTS_MAX; tries++) {
    const start = nextStart(text, from)
    if (start === -1) break
    const end = endOf(text, start)
    const span = end === -1 ? null : text.slice(start, end)
    if (span !== null && isStructure(span)) {
      if (!isReference(span) && (best === null || rank(span) > rank(best))) best = span
      from = start + span.length
    } else if (best === null && end === -1) {
      // Something begins here and never ends: what follows is inside of it.
      return null
    } else {
      from = start + 1
      // A broken structure is not to be passed over for a whole one inside of it.
      if (span !== null && span.length > 2 && looksMeant(span)) return null
    }
  }
  return best
}

/** In prose `[1]` points to a source. */
function isReference(span: string): boolean {
  return /^\[[^"'{,[\]]+\]$/.test(span)
}

/** An object is more likely to be the answer than a list; length decides among the rest. */
function rank(span: string): number {
  return span.length + (span.startsWith('{') ? 1_000 : 0)
}

/** Keys with colons, or quotes: somebody meant to write JSON. */
function looksMeant(span: string): boolean {
  return span.startsWith('{') ? /[:"']/.test(span) : /["'{,]/.test(span)
}

function repairFrom(text: string): string | null {
  let from = 0
  for (let tries = 0; tries < STARTS_MAX; tries++) {
    const start = nextStart(text, from)
    if (start === -1) return null
    const end = endOf(text, start)
    const span = end === -1 ? text.slice(start) : text.slice(start, end)
    if (looksMeant(span) || end === -1) {
      const repaired = tryRepair(span)
      if (repaired !== null) return repaired
    }
    from = end === -1 ? start + 1 : end
  }
  return null
}

function tryRepair(span: string): string | null {
  try {
    const repaired = jsonrepair(span)
    // It makes a string or a list of whatever stands there; only what began as a structure may end as one.
    return repaired.trimStart()[0] === span[0] && isStructure(repaired) ? repaired : null
  } catch {
    // Beyond repair, or nested deeper than its recursion goes.
    return null
  }
}

function nextStart(text: string, from: number): number {
  for (let at = from; at < text.length; at++) {
    const char = text.charCodeAt(at)
    if (char === 0x7b || char === 0x5b) return at
  }
  return -1
}

/** Past the bracket that closes the one at `start`, strings minded; -1 when it is never closed. */
function endOf(text: string, start: number): number {
  let depth = 0
  let inString = false
  for (let at = start; at < text.length; at++) {
    const char = text[at]
    if (inString) {
      if (char === '\\') at++
      else if (char === '"') inString = false
    } else if (char === '"') inString = true
    else if (char === '{' || char === '[') depth++
    else if ((char === '}' || char === ']') && --depth === 0) return at + 1
  }
  return -1
}

function isStructure(text: string): boolean {
  return (text.startsWith('{') || text.startsWith('[')) && isJson(text)
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

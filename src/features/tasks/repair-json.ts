/**
 * Repairs almost valid JSON: code fences, surrounding prose, missing ends, trailing commas, unquoted keys. It works on
 * the text, so numbers keep their digits, and valid JSON stays unchanged. Pure; task worker.
 */
import { jsonrepair } from 'jsonrepair'
import { parseJson } from '../../base/json.ts'

interface RepairJsonInput {
  readonly text: string
}

interface RepairJsonOutput {
  /** JSON, or the original text if the repair failed. */
  readonly text: string
  readonly valid: boolean
  /** True if the repair produced JSON. */
  readonly improved: boolean
}

/** Longest text to repair, far above what models write in one answer. */
const MAX_TEXT_CHARS = 4 * 1024 * 1024
/** Maximum number of brackets in prose that are tried as the start of JSON. */
const MAX_STARTS = 16

const FENCE = /```[^\n`]*\n([\s\S]*?)(?:\n?[ \t]*```|$)/

export function repairJson({ text }: RepairJsonInput): RepairJsonOutput {
  if (parseJson(text) !== undefined) return { text, valid: true, improved: false }
  const unchanged = { text, valid: false, improved: false }
  if (text.length > MAX_TEXT_CHARS) return unchanged
  const healed = heal(text)
  return healed === null ? unchanged : { text: healed, valid: true, improved: true }
}

function heal(text: string): string | null {
  const trimmed = text.replace(/^\uFEFF/, '').trim()
  const fenced = FENCE.exec(trimmed)?.[1]?.trim()
  // The fence comes first, because the text around it is prose. A fence inside a JSON string does not count.
  const sources = fenced === undefined || /^[{[]/.test(trimmed) ? [trimmed] : [fenced, trimmed]
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

/** The longest complete object or array in the text; an object is preferred to an array that is not much longer. */
function longestSpan(text: string): string | null {
  let longest: string | null = null
  let searchFrom = 0
  for (let starts = 0; starts < MAX_STARTS; starts++) {
    const start = nextStart(text, searchFrom)
    if (start === -1) break
    const end = endOf(text, start)
    const span = end === -1 ? null : text.slice(start, end)
    if (span !== null && isStructure(span)) {
      if (!isReference(span) && (longest === null || preference(span) > preference(longest))) longest = span
      searchFrom = start + span.length
    } else if (longest === null && end === -1) {
      // A structure begins here and never ends, so everything after it is inside it.
      return null
    } else {
      searchFrom = start + 1
      // A complete structure inside a broken one must not be taken for the answer.
      if (span !== null && span.length > 2 && looksIntended(span)) return null
    }
  }
  return longest
}

/** True for `[1]`, which refers to a source in prose. */
function isReference(span: string): boolean {
  return /^\[[^"'{,[\]]+\]$/.test(span)
}

/** Prefers the longer one. An object, which is more often the answer than a list, counts as 1,000 characters longer. */
function preference(span: string): number {
  return span.length + (span.startsWith('{') ? 1_000 : 0)
}

/** True if the span has punctuation of JSON: the model tried to write it. */
function looksIntended(span: string): boolean {
  return span.startsWith('{') ? /[:"']/.test(span) : /["'{,]/.test(span)
}

function repairFrom(text: string): string | null {
  let searchFrom = 0
  for (let attempt = 0; attempt < MAX_STARTS; attempt++) {
    const start = nextStart(text, searchFrom)
    if (start === -1) return null
    const end = endOf(text, start)
    const span = end === -1 ? text.slice(start) : text.slice(start, end)
    if (looksIntended(span) || end === -1) {
      const repaired = tryRepair(span)
      if (repaired !== null) return repaired
    }
    searchFrom = end === -1 ? start + 1 : end
  }
  return null
}

function tryRepair(span: string): string | null {
  try {
    const repaired = jsonrepair(span)
    // The library makes a string or a list from any text; only text that began as a structure may end as one.
    return repaired.trimStart()[0] === span[0] && isStructure(repaired) ? repaired : null
  } catch {
    // The span cannot be repaired, or is nested too deeply.
    return null
  }
}

function nextStart(text: string, from: number): number {
  for (let index = from; index < text.length; index++) {
    const char = text.charCodeAt(index)
    if (char === 0x7b || char === 0x5b) return index
  }
  return -1
}

/** The position after the bracket that closes the one at `start`, ignoring strings; -1 if there is none. */
function endOf(text: string, start: number): number {
  let depth = 0
  let inString = false
  for (let index = start; index < text.length; index++) {
    const char = text[index]
    if (inString) {
      if (char === '\\') index++
      else if (char === '"') inString = false
    } else if (char === '"') inString = true
    else if (char === '{' || char === '[') depth++
    else if ((char === '}' || char === ']') && --depth === 0) return index + 1
  }
  return -1
}

function isStructure(text: string): boolean {
  return (text.startsWith('{') || text.startsWith('[')) && parseJson(text) !== undefined
}

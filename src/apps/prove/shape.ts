/** Compares a JSON document with a table of paths and types. Other fields are allowed. Pure. */
import { isObject } from './sse.ts'

/** `?` at the end: optional; `null` among the kinds: may be null. Quoted words are the allowed values. */
export type ShapeRow = readonly [path: string, ...kinds: string[]]

const KINDS: Readonly<Record<string, (value: unknown) => boolean>> = {
  string: value => typeof value === 'string',
  text: value => typeof value === 'string' && value !== '',
  integer: value => Number.isInteger(value),
  count: value => Number.isInteger(value) && (value as number) >= 0,
  boolean: value => typeof value === 'boolean',
  object: isObject,
  array: Array.isArray,
  filled: value => Array.isArray(value) && value.length > 0,
  null: value => value === null,
}

/** The differences in words, such as `usage.total_tokens is missing`. */
export function shapeFaults(document: unknown, rows: readonly ShapeRow[]): string[] {
  return rows.flatMap(([path, ...kinds]) => {
    const isOptional = path.endsWith('?')
    return valuesAt(document, path.replace(/\?$/, '').split('.')).flatMap(({ at, value }) => {
      if (value === undefined) return isOptional ? [] : [`${at} is missing`]
      return kinds.some(kind => fits(value, kind))
        ? []
        : [`${at} is ${excerptOf(value)}, not ${kinds.join(' or ')}`]
    })
  })
}

function fits(value: unknown, kind: string): boolean {
  return kind.startsWith("'") ? value === kind.slice(1, -1) : (KINDS[kind]?.(value) ?? false)
}

interface FoundValue {
  readonly at: string
  readonly value: unknown
}

/** `choices[].index` has a value for each choice. What is within an absent object is not missing itself. */
function valuesAt(document: unknown, parts: readonly string[]): FoundValue[] {
  let values: FoundValue[] = [{ at: '', value: document }]
  for (const part of parts) {
    const name = part.replace(/\[\]$/, '')
    const next: FoundValue[] = []
    for (const { at, value } of values) {
      if (!isObject(value)) continue
      const inner = { at: at === '' ? name : `${at}.${name}`, value: value[name] }
      if (!part.endsWith('[]')) next.push(inner)
      else if (Array.isArray(inner.value))
        for (const [index, item] of inner.value.entries())
          next.push({ at: `${inner.at}[${index}]`, value: item })
    }
    values = next
  }
  return values
}

function excerptOf(value: unknown): string {
  const text = JSON.stringify(value) ?? 'undefined'
  return text.length <= 40 ? text : `${text.slice(0, 37)}...`
}

/**
 * Objects of a request body whose JSON would change if they were parsed and written again: numbers with more digits
 * than a double has or in another form (`1.0`, `1e400`), and names like `10`, which come first in every object. Their
 * text is kept, and written instead of the object while nothing has changed it: schemas, arguments, metadata, unknown
 * fields. Code that changes an object creates a new one, without its text. Other bodies keep no texts. Pure.
 */
import { isObject } from './schema.ts'

/** The text of each such object. */
const writtenTexts = new WeakMap<object, string>()

/** Marks a body, and the request made from it, if some of its objects have a text here. */
export const AS_WRITTEN = Symbol('as written')

/** A body or request that may have the mark. */
export interface MaybeWritten {
  readonly [AS_WRITTEN]?: true
}

/** The number of objects that got a text so far. The caller of an encoder compares it to learn if there were new ones. */
export const MARKED_OBJECTS = { count: 0 }

/** Keeps the texts of a body's objects. `text` is the JSON of the body. */
export function keepTexts(value: unknown, text: string): void {
  if (isObject(value) && markObjects(value, text)) Object.assign(value, { [AS_WRITTEN]: true })
}

/** Parses a JSON text, and keeps the texts of its objects if they need one; undefined: the text is not JSON. */
export function parseWritten(text: string): unknown {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return undefined
  }
  if (UNSTABLE_JSON.test(text)) markObjects(value, text)
  return value
}

/** A number that JSON.stringify may write differently, or a name of digits. It also matches inside strings: harmless. */
const UNSTABLE_JSON = /\d{16}|\.\d*0(?!\d)|\d[eE]|"\d{1,10}"\s*:/

/** The JSON of a value, with the texts that were kept. */
export function writtenJson(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null'
  const text = writtenTexts.get(value)
  if (text !== undefined) return text
  if (Array.isArray(value)) return `[${value.map(writtenJson).join(',')}]`
  const fields = Object.entries(value).filter(([, field]) => field !== undefined)
  return `{${fields.map(([name, field]) => `${JSON.stringify(name)}:${writtenJson(field)}`).join(',')}}`
}

/** Keeps the text of each object that needs one. Returns true if there was one. */
function markObjects(value: unknown, text: string): boolean {
  const reader = new Reader(text)
  reader.read(value)
  // Two parsers may read such a text differently.
  if (reader.hasDuplicateName) return false
  for (const [object, json] of reader.marked) writtenTexts.set(object, json)
  MARKED_OBJECTS.count += reader.marked.length
  return reader.marked.length > 0
}

const STRING = /"(?:[^"\\]|\\.)*"/y
const WORD = /[^\s,\]}]+/y
const BLANKS = /[ \t\r\n]*/y
const INDEX = /^(?:0|[1-9]\d{0,9})$/

/** Reads a text that was parsed before, next to its value. */
class Reader {
  readonly marked: [object, string][] = []
  /** True if an object has a name twice. */
  hasDuplicateName = false
  readonly #text: string
  #index = 0

  constructor(text: string) {
    this.#text = text
  }

  /** Reads a value; true if its JSON would change. */
  read(value: unknown): boolean {
    this.#match(BLANKS)
    const start = this.#index
    const first = this.#text[start]
    let isChanged: boolean
    if (first === '{') isChanged = this.#readObject(value)
    else if (first === '[') isChanged = this.#readList(value)
    else if (first === '"') {
      this.#match(STRING)
      isChanged = false
    } else {
      const word = this.#match(WORD)
      isChanged = typeof value === 'number' && word !== String(value)
    }
    if (isChanged && typeof value === 'object' && value !== null)
      this.marked.push([value, this.#text.slice(start, this.#index)])
    return isChanged
  }

  #readObject(value: unknown): boolean {
    const fields = isObject(value) ? (value as Readonly<Record<string, unknown>>) : {}
    const names = new Set<string>()
    let isChanged = false
    for (;;) {
      // The brace or the comma.
      this.#index++
      this.#match(BLANKS)
      if (this.#text[this.#index] === '}') break
      const name = JSON.parse(this.#match(STRING)) as string
      if (names.has(name)) this.hasDuplicateName = true
      names.add(name)
      if (INDEX.test(name)) isChanged = true
      this.#match(BLANKS)
      this.#index++
      if (this.read(fields[name])) isChanged = true
      this.#match(BLANKS)
      if (this.#text[this.#index] !== ',') break
    }
    this.#index++
    return isChanged
  }

  #readList(value: unknown): boolean {
    const list: readonly unknown[] = Array.isArray(value) ? value : []
    let isChanged = false
    for (let index = 0; ; index++) {
      this.#index++
      this.#match(BLANKS)
      if (this.#text[this.#index] === ']') break
      if (this.read(list[index])) isChanged = true
      this.#match(BLANKS)
      if (this.#text[this.#index] !== ',') break
    }
    this.#index++
    return isChanged
  }

  #match(pattern: RegExp): string {
    pattern.lastIndex = this.#index
    const match = pattern.exec(this.#text)?.[0] ?? ''
    this.#index += match.length
    return match
  }
}

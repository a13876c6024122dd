/**
 * Objects of a request body whose JSON would change if they were parsed and written again: numbers with more digits
 * than a double has or in another form (`1.0`, `1e400`), and names like `10`, which come first in every object. Their
 * text is kept, and written in their place while nothing has changed them: schemas, arguments, metadata, unknown
 * fields. Code that changes an object creates a new one, without its text. Pure. Bodies without such parts have none of
 * this.
 */
import { isObject } from './schema.ts'

/** The text of each such object. */
const texts = new WeakMap<object, string>()

/** On a body, and on the request that is made of it: some of its objects have a text. */
export const AS_WRITTEN = Symbol('as written')

/** A body or request with such objects. */
export interface MaybeWritten {
  readonly [AS_WRITTEN]?: true
}

/** Counts the objects that were marked, so that an encoder's caller sees whether it marked any. */
export const MARKED = { objects: 0 }

/** Keeps the texts of objects of a body, which was parsed from this text. */
export function keepTexts(value: unknown, text: string): void {
  if (isObject(value) && keep(value, text)) Object.assign(value, { [AS_WRITTEN]: true })
}

/** The value of a JSON text, with the texts of its objects if they need one; undefined: it is no JSON. */
export function parsedWritten(text: string): unknown {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return undefined
  }
  if (MAY_CHANGE.test(text)) keep(value, text)
  return value
}

/** A number in another form, or a name of digits; also in texts, where it means nothing. */
const MAY_CHANGE = /\d{16}|\.\d*0(?!\d)|\d[eE]|"\d{1,10}"\s*:/

/** The JSON of a value, with the texts that were kept. */
export function writtenJson(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null'
  const text = texts.get(value)
  if (text !== undefined) return text
  if (Array.isArray(value)) return `[${value.map(writtenJson).join(',')}]`
  const fields = Object.entries(value).filter(([, field]) => field !== undefined)
  return `{${fields.map(([name, field]) => `${JSON.stringify(name)}:${writtenJson(field)}`).join(',')}}`
}

/** True if an object was marked. */
function keep(value: unknown, text: string): boolean {
  const reader = new Reader(text)
  reader.read(value)
  // Two parsers may read such a text differently.
  if (reader.isTwice) return false
  for (const [object, written] of reader.found) texts.set(object, written)
  MARKED.objects += reader.found.length
  return reader.found.length > 0
}

const STRING = /"(?:[^"\\]|\\.)*"/y
const WORD = /[^\s,\]}]+/y
const BLANKS = /[ \t\r\n]*/y
const INDEX = /^(?:0|[1-9]\d{0,9})$/

/** Reads a text that was parsed before, next to its value. */
class Reader {
  readonly found: [object, string][] = []
  /** True if an object has a name twice. */
  isTwice = false
  readonly #text: string
  #at = 0

  constructor(text: string) {
    this.#text = text
  }

  /** Reads a value; true if its JSON would change. */
  read(value: unknown): boolean {
    this.#take(BLANKS)
    const from = this.#at
    const first = this.#text[from]
    let isChanged: boolean
    if (first === '{') isChanged = this.#object(value)
    else if (first === '[') isChanged = this.#list(value)
    else if (first === '"') {
      this.#take(STRING)
      isChanged = false
    } else {
      const word = this.#take(WORD)
      isChanged = typeof value === 'number' && word !== String(value)
    }
    if (isChanged && typeof value === 'object' && value !== null)
      this.found.push([value, this.#text.slice(from, this.#at)])
    return isChanged
  }

  #object(value: unknown): boolean {
    const fields = isObject(value) ? (value as Readonly<Record<string, unknown>>) : {}
    const names = new Set<string>()
    let isChanged = false
    for (;;) {
      // The brace or the comma.
      this.#at++
      this.#take(BLANKS)
      if (this.#text[this.#at] === '}') break
      const name = JSON.parse(this.#take(STRING)) as string
      if (names.has(name)) this.isTwice = true
      names.add(name)
      if (INDEX.test(name)) isChanged = true
      this.#take(BLANKS)
      this.#at++
      if (this.read(fields[name])) isChanged = true
      this.#take(BLANKS)
      if (this.#text[this.#at] !== ',') break
    }
    this.#at++
    return isChanged
  }

  #list(value: unknown): boolean {
    const list: readonly unknown[] = Array.isArray(value) ? value : []
    let isChanged = false
    for (let index = 0; ; index++) {
      this.#at++
      this.#take(BLANKS)
      if (this.#text[this.#at] === ']') break
      if (this.read(list[index])) isChanged = true
      this.#take(BLANKS)
      if (this.#text[this.#at] !== ',') break
    }
    this.#at++
    return isChanged
  }

  #take(pattern: RegExp): string {
    pattern.lastIndex = this.#at
    const taken = pattern.exec(this.#text)?.[0] ?? ''
    this.#at += taken.length
    return taken
  }
}

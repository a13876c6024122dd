/**
 * The long list of a request body (`input` or `messages`) exactly as the client wrote it. If the encoded list has the
 * same content, these bytes are sent to the provider, because writing a text takes about ten times as long as copying
 * it. Two parsers must not read different lists, so the list may contain no duplicate member names, and no numbers,
 * which another parser may round differently. Pure.
 */
import { isObject } from './schema.ts'

const LIST_NAMES = ['input', 'messages'] as const
type RawListName = (typeof LIST_NAMES)[number]

/** Shorter bodies are written faster than compared; longer ones would be in memory twice for too long. */
export const RAW_MIN_BYTES = 16 * 1024
export const RAW_MAX_BYTES = 256 * 1024

/** A request with less memory has no such list. Two bytes of a text in memory are at most three of UTF-8. */
export const RAW_MIN_MEMORY_BYTES = RAW_MIN_BYTES / 2

interface RawList {
  readonly name: RawListName
  readonly list: readonly unknown[]
  readonly bytes: Uint8Array
  /** Arrays, objects and fields, as its bytes have them. */
  readonly parts: number
}

/** Keyed by the body, later by the request that was made of it. */
const lists = new WeakMap<object, RawList>()

/** Finds the list while the parts of a body are counted. */
export class ListFinder {
  /** Fields of the body itself. */
  fieldCount = 0
  #name: RawListName | null = null
  #lastName: RawListName | null = null
  #start = 0
  #end = 0
  #parts = 0
  #isInside = false
  #hasSeveralLists = false

  /** Notes whether a top-level text of the body, the name of a field or its value, is the name of such a list. */
  readText(bytes: Buffer, start: number, end: number): void {
    const text = end - start > 'messages'.length ? '' : bytes.toString('latin1', start, end)
    this.#lastName = LIST_NAMES.find(name => name === text) ?? null
  }

  /** Notes the beginning of a value of the body; `parts` counts the parts before it. */
  openValue(isList: boolean, start: number, parts: number): void {
    if (!isList || this.#lastName === null) return
    if (this.#name !== null) this.#hasSeveralLists = true
    this.#name = this.#lastName
    this.#start = start
    this.#parts = -parts
    this.#isInside = true
  }

  /** Notes the end of a value of the body; `parts` counts the parts so far. */
  closeValue(end: number, parts: number): void {
    if (!this.#isInside) return
    this.#isInside = false
    this.#end = end
    this.#parts += parts
  }

  /** Bytes that are kept for the list; 0 without a list. */
  get listBytes(): number {
    return this.#hasSeveralLists ? 0 : this.#end - this.#start
  }

  /** Keeps the list if the body has exactly one. `value` is the parsed body. */
  keep(value: unknown, bytes: Uint8Array): void {
    const name = this.#name
    if (name === null || this.#hasSeveralLists || !isObject(value)) return
    const list: unknown = value[name]
    if (!Array.isArray(list) || Object.keys(value).length !== this.fieldCount) return
    lists.set(value, { name, list, bytes: bytes.subarray(this.#start, this.#end), parts: this.#parts })
  }
}

/** Attaches the list of the body to the request. */
export function carryList(body: unknown, request: object): void {
  const list = isObject(body) ? lists.get(body) : undefined
  if (list !== undefined) lists.set(request, list)
}

/** The JSON for the list of an encoded body, once; null: the list must be written. */
export function takeList(
  request: object,
  encoded: Readonly<Record<string, unknown>>,
): { readonly name: RawListName; readonly json: string } | null {
  const entry = lists.get(request)
  if (entry === undefined) return null
  lists.delete(request)
  const { name, list, bytes, parts } = entry
  if (partsOfEqual(list, encoded[name]) !== parts) return null
  return { name, json: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString() }
}

/** Counts the arrays, objects and fields of two equal values; NaN if they differ or contain a number. */
function partsOfEqual(value: unknown, encoded: unknown): number {
  if (typeof value !== 'object' || value === null)
    return value === encoded && typeof value !== 'number' ? 0 : Number.NaN
  if (Array.isArray(value)) {
    if (!Array.isArray(encoded) || encoded.length !== value.length) return Number.NaN
    let parts = 1
    for (let index = 0; index < value.length && parts > 0; index++)
      parts += partsOfEqual(value[index], encoded[index])
    return parts
  }
  if (!isObject(encoded)) return Number.NaN
  const fields = value as Readonly<Record<string, unknown>>
  const names = Object.keys(fields)
  if (names.length !== Object.keys(encoded).length) return Number.NaN
  let parts = 1
  for (const name of names) {
    if (!Object.hasOwn(encoded, name)) return Number.NaN
    parts += 1 + partsOfEqual(fields[name], encoded[name])
  }
  return parts
}

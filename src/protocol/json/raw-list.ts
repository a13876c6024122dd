/**
 * The long list of a request body (`input` or `messages`) exactly as the client wrote it. If the encoded list has the
 * same content, these bytes are sent to the provider, because writing a text takes about ten times as long as copying
 * it. Two parsers must not read different lists, so the list may contain no duplicate member names, and no numbers,
 * which another parser may round differently. Pure.
 */
import { isObject } from './schema.ts'

const NAMES = ['input', 'messages'] as const
type RawListName = (typeof NAMES)[number]

/** Shorter bodies are written faster than compared; longer ones would be in memory twice for too long. */
export const RAW_MIN_BYTES = 16 * 1024
export const RAW_MAX_BYTES = 256 * 1024

/** A request with less memory has no such list. Two bytes of a text in memory are at most three of UTF-8. */
export const RAW_LEAST_HELD_BYTES = RAW_MIN_BYTES / 2

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
  fields = 0
  #name: RawListName | null = null
  #last: RawListName | null = null
  #start = 0
  #end = 0
  #parts = 0
  #isInside = false
  #isTwice = false

  /** A top-level text of the body: the name of a field, or its value. */
  text(bytes: Buffer, from: number, to: number): void {
    const text = to - from > 'messages'.length ? '' : bytes.toString('latin1', from, to)
    this.#last = NAMES.find(name => name === text) ?? null
  }

  /** A value of the body begins; `parts`: those before it. */
  opens(isList: boolean, at: number, parts: number): void {
    if (!isList || this.#last === null) return
    if (this.#name !== null) this.#isTwice = true
    this.#name = this.#last
    this.#start = at
    this.#parts = -parts
    this.#isInside = true
  }

  /** A value of the body has ended. */
  closes(end: number, parts: number): void {
    if (!this.#isInside) return
    this.#isInside = false
    this.#end = end
    this.#parts += parts
  }

  /** Bytes that are kept for the list; 0: there is none. */
  get listBytes(): number {
    return this.#isTwice ? 0 : this.#end - this.#start
  }

  /** Keeps the list, where there is one only. `value`: the parsed body. */
  keep(value: unknown, bytes: Uint8Array): void {
    const name = this.#name
    if (name === null || this.#isTwice || !isObject(value)) return
    const list: unknown = value[name]
    if (!Array.isArray(list) || Object.keys(value).length !== this.fields) return
    lists.set(value, { name, list, bytes: bytes.subarray(this.#start, this.#end), parts: this.#parts })
  }
}

/** The list of the body belongs to the request from here on. */
export function carryList(body: unknown, request: object): void {
  const list = isObject(body) ? lists.get(body) : undefined
  if (list !== undefined) lists.set(request, list)
}

/** Replaces the list of an encoded body, once; null: it must be written. */
export function takeList(
  request: object,
  encoded: Readonly<Record<string, unknown>>,
): { readonly name: RawListName; readonly json: string } | null {
  const found = lists.get(request)
  if (found === undefined) return null
  lists.delete(request)
  const { name, list, bytes, parts } = found
  if (partsOfBoth(list, encoded[name]) !== parts) return null
  return { name, json: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString() }
}

/** Arrays, objects and fields of two values that are the same; NaN if they differ, or have a number. */
function partsOfBoth(one: unknown, other: unknown): number {
  if (typeof one !== 'object' || one === null)
    return one === other && typeof one !== 'number' ? 0 : Number.NaN
  if (Array.isArray(one)) {
    if (!Array.isArray(other) || other.length !== one.length) return Number.NaN
    let parts = 1
    for (let at = 0; at < one.length && parts > 0; at++) parts += partsOfBoth(one[at], other[at])
    return parts
  }
  if (!isObject(other)) return Number.NaN
  const fields = one as Readonly<Record<string, unknown>>
  const names = Object.keys(fields)
  if (names.length !== Object.keys(other).length) return Number.NaN
  let parts = 1
  for (const name of names) {
    if (!Object.hasOwn(other, name)) return Number.NaN
    parts += 1 + partsOfBoth(fields[name], other[name])
  }
  return parts
}

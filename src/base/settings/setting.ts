/**
 * Building blocks of the settings: TypeBox schemas with a default, a description and an environment variable, and
 * shared kinds of values. Pure.
 */
import { existsSync } from 'node:fs'
import { isIP } from 'node:net'
import { availableParallelism } from 'node:os'
import { getHeapStatistics } from 'node:v8'
import { KindGuard, type Static, type TObject, type TProperties, type TSchema, Type } from '@sinclair/typebox'

export const closed = { additionalProperties: false } as const

/** A value that is readonly at every depth. */
export type Frozen<T> = T extends readonly (infer Element)[]
  ? readonly Frozen<Element>[]
  : T extends object
    ? { readonly [Key in keyof T]: Frozen<T[Key]> }
    : T

/** Properties of a setting that its schema cannot express. */
export interface Notes<T> {
  /**
   * If absent, the setting is required whenever the file contains its group, unless it is `nullable`: then it is null.
   */
  readonly default?: T | (() => T)
  /** The default in words, for the documentation of computed defaults. */
  readonly defaultText?: string
  /** The environment variable that overrides the file. */
  readonly env?: string
  /** The variable may also be in lower case, which takes precedence, as in other programs. */
  readonly anyCase?: true
  /** For secrets: `NAME_FILE` may name a file that contains the value of the variable `NAME`. */
  readonly secret?: true
  /** Not allowed in the file. */
  readonly environmentOnly?: true
  /** Required whenever the file contains its group, although it has a default. */
  readonly required?: true
  /** A further check of values that match the schema. */
  accepts?(value: T): boolean
  /** Completes "expected …" in error messages, instead of the schema's own words. */
  readonly expected?: string
}

/** A setting and its place in the configuration. */
export interface Setting {
  readonly path: readonly string[]
  /** The schema without the null of `nullable`. */
  readonly schema: TSchema
  readonly notes: Notes<unknown>
  readonly description: string
}

/** Adds meaning, default and environment variable to a schema. */
export function setting<T extends TSchema>(schema: T, description: string, notes: Notes<Static<T>> = {}): T {
  const fallback = notes.default === undefined ? {} : { default: notes.default }
  return { ...schema, ...fallback, description, notes }
}

/** A group of settings; it may be absent from the file. */
export function group<T extends TProperties>(properties: T): TObject<T> {
  return Type.Object(properties, { ...closed, default: {} })
}

/** Null if the file does not contain it. The file itself cannot contain null. */
export function nullable<T extends TSchema>(schema: T) {
  return Type.Union([schema, Type.Null()], { default: null, given: schema })
}

/** A value that must be one of these words. Its type is the union of the words. */
export function oneOf<const Words extends readonly string[]>(words: Words) {
  return Type.Unsafe<Words[number]>(Type.Union(words.map(word => Type.Literal(word))))
}

/** An optional field of a row. */
export function field<T extends TSchema>(schema: T, description: string) {
  return Type.Optional(required(schema, description))
}

/** A required field of a row. */
export function required<T extends TSchema>(schema: T, description: string): T {
  return { ...schema, description }
}

/** All settings of a group, in the order of their declaration. */
export function settingsOf(schema: TSchema, path: readonly string[] = []): readonly Setting[] {
  const notes = notesOf(schema)
  const inner = givenSchema(schema)
  if (notes !== undefined) {
    return [{ path, schema: inner, notes, description: schema.description ?? '' }]
  }
  if (!KindGuard.IsObject(inner)) throw new TypeError(`${path.join('.')} is no setting`)
  return Object.entries(inner.properties).flatMap(([name, entry]) => settingsOf(entry, [...path, name]))
}

/** The schema of the file: settings with a default are optional, settings of the environment are excluded. */
export function fileSchema(schema: TSchema): TSchema {
  const inner = givenSchema(schema)
  if (notesOf(schema) !== undefined || !KindGuard.IsObject(inner)) return inner
  const properties: TProperties = {}
  for (const [name, entry] of Object.entries(inner.properties)) {
    const notes = notesOf(entry)
    if (notes?.environmentOnly === true) continue
    const required = notes?.required === true || entry.default === undefined
    properties[name] = required ? fileSchema(entry) : Type.Optional(fileSchema(entry))
  }
  return Type.Object(properties, closed)
}

function notesOf(schema: TSchema): Notes<unknown> | undefined {
  return schema['notes'] as Notes<unknown> | undefined
}

function givenSchema(schema: TSchema): TSchema {
  return (schema['given'] as TSchema | undefined) ?? schema
}

export const Slug = Type.String({ pattern: '^[a-z0-9][a-z0-9._-]*(/[a-z0-9._-]+)?$', maxLength: 128 })
export const Address = Type.String({ minLength: 1 })
export const Host = Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9.-]*(:\\d{1,5})?$', maxLength: 253 })
export const Milliseconds = Type.Integer({ minimum: 1, maximum: 86_400_000 })
/** At most about a hundred years, because dates far beyond are not valid. */
export const Days = Type.Integer({ minimum: 1, maximum: 36_500 })
export const ModelName = Type.String({ minLength: 1, maxLength: 256 })
export const Port = Type.Integer({ minimum: 0, maximum: 65_535 })
export const Threads = Type.Integer({ minimum: 1, maximum: 256 })
export const PerMinute = Type.Union([Type.Null(), Type.Integer({ minimum: 1, maximum: 1_000_000_000 })], {
  expected: 'null or an integer from 1 to 1000000000',
})

/** Bytes. Node derives it from the memory of the container or machine, or from `--max-old-space-size`. */
const HEAP_BYTES = getHeapStatistics().heap_size_limit
/** Heap for each request that a thread works on: an open stream uses a quarter of it. */
const REQUEST_HEAP_BYTES = 128 * 1024

/** A quarter of the heap; the rest is for temporary memory, code, the catalogue, and garbage collection. */
export const quarterOfHeap = {
  default: () => Math.floor(HEAP_BYTES / 4),
  defaultText: 'a quarter of the heap that Node gives a thread',
  accepts: (bytes: number) => bytes <= HEAP_BYTES / 2,
  expected: `at most half of the heap that Node gives a thread, here ${Math.floor(HEAP_BYTES / 2)} bytes (for more: \`NODE_OPTIONS=--max-old-space-size\`, in MiB)`,
}

export const requestsThatFit = {
  default: () => Math.min(10_000, Math.floor(HEAP_BYTES / REQUEST_HEAP_BYTES)),
  defaultText: '`10000`; with a heap below 1.25 GiB, one for each 128 KiB of it',
}

/** Heap for each WebSocket of one key: an incomplete message uses an eighth of that, outside the heap. */
const SOCKET_HEAP_BYTES = 32 * 1024 * 1024

export const socketsThatFit = {
  default: () => Math.max(16, Math.min(64, Math.floor(HEAP_BYTES / SOCKET_HEAP_BYTES))),
  defaultText: '`64`; with a heap below 2 GiB, one for each 32 MiB of it, at least `16`',
}

export const coresMinusOne = {
  default: () => Math.max(1, availableParallelism() - 1),
  defaultText: 'cores minus one, at least one',
}

/** HTTP fronts, and the choice between them. */
export const FRONT_CHOICES = ['auto', 'uws', 'node'] as const

export const SANDBOX_ENGINES = ['auto', 'none', 'embedded', 'bubblewrap', 'docker'] as const

/** The embedded engine limits the memory of its processes with data from /proc. */
const HAS_PROC = existsSync('/proc/self/statm')

export const sandboxEngine = {
  default: 'auto' as const,
  accepts: (engine: string) => engine !== 'embedded' || HAS_PROC,
  expected:
    'auto, none, bubblewrap or docker: the embedded engine needs /proc to limit the memory of its processes, but this system has none',
}

/** Addresses and networks in the notation of CIDR. */
export const networks = {
  accepts: (list: readonly string[]) => list.every(isNetwork),
  expected: 'a list of addresses and networks such as 10.0.0.0/8',
}

function isNetwork(text: string): boolean {
  const [address = '', bits, ...more] = text.split('/')
  const version = isIP(address)
  if (version === 0 || more.length > 0) return false
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128))
}

/** True for the address of a proxy, with or without its scheme. */
export function isProxyUrl(text: string): boolean {
  const url = text.includes('://') ? text : `http://${text}`
  if (!/^https?:\/\/[^\s/?#]+\/?$/.test(url) || !URL.canParse(url)) return false
  const { username, password } = new URL(url)
  return [username, password].every(part => /^(?:[^%]|%[0-9A-Fa-f]{2})*$/.test(part))
}

export const proxyUrl = {
  accepts: (text: string | null) => text === null || isProxyUrl(text),
  expected: 'a URL of the form http://[USER:PASSWORD@]HOST:PORT or https://…',
}

export const redisUrl = {
  accepts: (url: string | null) =>
    url === null || (/^rediss?:\/\/[^/\s]+(\/\d+)?$/.test(url) && URL.canParse(url)),
  expected: 'a URL of the form redis://HOST:PORT or rediss://HOST:PORT',
}

export const filesUrl = {
  accepts: (url: string) =>
    /^(file:[^\0]+|s3:\/\/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](\/[A-Za-z0-9!_.*'()/-]{0,512})?)$/.test(url),
  expected: 'a URL of the form file:FOLDER or s3://BUCKET/PREFIX',
}

export const filesEndpoint = {
  accepts: (url: string | null) =>
    url === null || (/^https?:\/\/[^\s/?#@]+\/?$/.test(url) && URL.canParse(url)),
  expected: 'a URL of the form https://HOST:PORT',
}

export const storageUrl = {
  accepts: (url: string) => /^(sqlite:.|postgres(ql)?:\/\/.)/i.test(url),
  expected: 'a URL of the form sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE',
}

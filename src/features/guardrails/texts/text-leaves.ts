/**
 * Extracts the texts in one string or JSON schema of a request, and writes replaced texts back. Pure.
 * - The kind of field decides whether a string is a text. Some formats decode a string that others pass on; such a
 *   string has two texts, raw and decoded.
 * - A model sees a JSON schema unchanged, so every string in it is a text, except those that make the schema work:
 *   standard types and formats, references, and names of properties.
 */
import { isUtf8 } from 'node:buffer'
import { isRecord, parseJson } from '../../../base/json.ts'
import type { Leaf } from './text-fields.ts'

const NAME_FORM = /^[\w.:/*+-]{1,128}$/
const WHITESPACE = /\s/
const LINK_FORM = /^[a-z][a-z\d+.-]*:\S*$/i
const NOT_BASE64 = /[^\w+/=-]/
/** The head of a data URL, before its comma. A head in another form may contain text. */
const PLAIN_HEAD = /^data:[\w./+-]*(?:;[\w.=+-]{1,64})*$/i
const MEDIA_TYPE = /^[\w.+-]+\/[\w.+-]+$/
/** Media types that no format turns into text, if the bytes match the type. */
const MEDIA_OF_BYTES =
  /^(?:image\/(?!svg)|audio\/|video\/|font\/|application\/(?:pdf|zip|msword|vnd\.(?:ms-|openxml)))/
/** Media types that formats turn into text, even if it is not valid UTF-8. */
const MEDIA_OF_TEXT = /^(?:text\/|application\/(?:[\w.-]+\+)?(?:json|xml|csv|yaml|javascript)|image\/svg)/
const PDF = 'application/pdf'
/** The first characters of a PDF file (`%PDF`) in base64. */
const PDF_START = 'JVBERi'
/** The prefix of Anthropic's compactions, which are JSON: only these two fields of it are sealed. */
const COMPACTION = 'anthropic-claude-v1:'
const SEALED_FIELDS: ReadonlySet<string> = new Set(['encrypted_content', 'signature'])
const BACKSLASH = 0x5c
const QUOTE = 0x22
const SPACE = 0x20
const LETTER_U = 0x75

const LEAVES: Readonly<Record<Leaf, (text: string, replace: Replace) => string>> = {
  kept: text => text,
  text: (text, replace) => replace(text),
  name: (text, replace) => (NAME_FORM.test(text) ? text : replace(text)),
  id: (text, replace) => (WHITESPACE.test(text) ? replace(text) : text),
  json: readJson,
  sealed: readSealed,
  url: (text, replace) => (isDataUrl(text) ? readDataUrl(text, replace, NOT_BASE64) : replace(text)),
  link: (text, replace) => readLink(text, replace, replace),
  file: (text, replace) => readLink(text, replace, file => readFile(file, replace)),
}

/** Replaces the texts in the string. The number of calls of `replace` does not depend on its results. */
export function mapLeaf(leaf: Leaf, text: string, replace: Replace): string {
  return text === '' ? text : LEAVES[leaf](text, replace)
}

function readLink(text: string, replace: Replace, replaceText: Replace): string {
  // Media bytes are not searched for text: they may be many megabytes.
  if (isDataUrl(text)) return readDataUrl(text, replace, null)
  return LINK_FORM.test(text) ? text : replaceText(text)
}

function isDataUrl(text: string): boolean {
  return text.slice(0, 5).toLowerCase() === 'data:'
}

type Encode = (text: string) => string

/** Replaces the raw text and the decoded text. If both change, the decoded one counts. */
function replaceBoth(text: string, decoded: string, encode: Encode, replace: Replace): string {
  const replacedRaw = replace(text)
  const replacedDecoded = replace(decoded)
  return replacedDecoded === decoded ? replacedRaw : encode(replacedDecoded)
}

function replaceDecoded(text: string, decoded: string, encode: Encode, replace: Replace): string {
  if (decoded === '') return text
  const replaced = replace(decoded)
  return replaced === decoded ? text : encode(replaced)
}

/** `notBytes` matches data that is text although its media type says bytes; null if no data is. */
function readDataUrl(url: string, replace: Replace, notBytes: RegExp | null): string {
  const comma = url.indexOf(',')
  const head = url.slice(0, comma)
  if (comma === -1) return replace(url)
  const isPlain = PLAIN_HEAD.test(head)
  const [type = '', ...parameters] = head.slice(5).toLowerCase().split(';')
  const data = url.slice(comma + 1)
  if (!parameters.some(parameter => parameter.trim() === 'base64')) return readPercent(head, data, replace)
  const encode: Encode = text => `${head},${Buffer.from(text).toString('base64')}`
  if (isPlain && MEDIA_OF_BYTES.test(type)) {
    if (notBytes?.test(data) === true) return replace(url)
    const disguised = disguisedText(type, data)
    return disguised === null ? url : replaceDecoded(url, disguised, encode, replace)
  }
  // Without a proper media type, formats go by the name of the file.
  const decoded = decodedText(data, !MEDIA_TYPE.test(type) || MEDIA_OF_TEXT.test(type))
  const replaceData = isPlain && !NOT_BASE64.test(data) ? replaceDecoded : replaceBoth
  if (decoded === null) return replaceData === replaceBoth ? replace(url) : url
  return replaceData(url, decoded, encode, replace)
}

function readPercent(head: string, data: string, replace: Replace): string {
  const url = `${head},${data}`
  if (!data.includes('%')) return replace(url)
  let decoded: string
  try {
    decoded = decodeURIComponent(data)
  } catch {
    return replace(url)
  }
  return replaceBoth(
    url,
    decoded,
    text => `${head},${encodeURIComponent(Buffer.from(text).toString())}`,
    replace,
  )
}

/** Base64 without a data URL around it, so its media type is unknown. */
function readFile(file: string, replace: Replace): string {
  if (file.startsWith(PDF_START)) return file
  const isBase64 = !NOT_BASE64.test(file)
  const decoded = decodedText(file, false)
  if (decoded === null) return isBase64 ? file : replace(file)
  return (isBase64 ? replaceDecoded : replaceBoth)(
    file,
    decoded,
    text => Buffer.from(text).toString('base64'),
    replace,
  )
}

/** Characters of base64 that are examined: media has bytes that are no text near its start. */
const SNIFFED_BASE64_CHARS = 2_048

/** The text behind a media type of bytes; null if the bytes match the type. */
function disguisedText(type: string, base64: string): string | null {
  if (type === PDF && base64.startsWith(PDF_START)) return null
  const start = Buffer.from(base64.slice(0, SNIFFED_BASE64_CHARS), 'base64')
  if (start.includes(0)) return null
  // A character may be cut at the end.
  const isText = [0, 1, 2, 3].some(cutBytes =>
    isUtf8(start.subarray(0, Math.max(0, start.length - cutBytes))),
  )
  return isText ? decodedText(base64, false) : null
}

/** Null if the bytes are not text. Invalid UTF-8 hides nothing in a text, because formats decode it in the same way. */
function decodedText(base64: string, isText: boolean): string | null {
  const bytes = Buffer.from(base64, 'base64')
  return isText || isUtf8(bytes) ? bytes.toString('utf8') : null
}

function readSealed(ciphertext: string, replace: Replace): string {
  if (!ciphertext.startsWith(COMPACTION)) return LEAVES.id(ciphertext, replace)
  const block = parseJson(Buffer.from(ciphertext.slice(COMPACTION.length), 'base64url').toString('utf8'))
  if (!isRecord(block)) return LEAVES.id(ciphertext, replace)
  const read = mapFields(block, (value, key) => (SEALED_FIELDS.has(key) ? value : mapStrings(value, replace)))
  return read === block ? ciphertext : COMPACTION + Buffer.from(JSON.stringify(read)).toString('base64url')
}

/** Some formats parse the JSON, which turns escapes into characters. */
function readJson(text: string, replace: Replace): string {
  if (!text.includes('\\u')) return replace(text)
  const plain = unescapeJson(text)
  return plain === text ? replace(text) : replaceBoth(text, plain, changed => changed, replace)
}

/**
 * Replaces escapes in JSON by their characters, except those that JSON needs. One loop over the code units: parsing
 * takes unbounded memory and time, and a regular expression takes fifteen times as long.
 */
export function unescapeJson(json: string): string {
  const units = new Uint16Array(json.length)
  let length = 0
  for (let index = 0; index < json.length; index++) {
    const unit = json.charCodeAt(index)
    units[length++] = unit
    if (unit !== BACKSLASH || index + 1 === json.length) continue
    const next = json.charCodeAt(++index)
    const code = next === LETTER_U ? codeUnitAt(json, index + 1) : -1
    if (code < SPACE || code === QUOTE || code === BACKSLASH) {
      units[length++] = next
      continue
    }
    units[length - 1] = code
    index += 4
  }
  return Buffer.from(units.buffer, 0, 2 * length).toString('utf16le')
}

/** The value of four hexadecimal digits; -1 if they are anything else. */
function codeUnitAt(text: string, from: number): number {
  let code = 0
  for (let index = from; index < from + 4; index++) {
    const digit = digitOf(text.charCodeAt(index))
    if (digit === -1) return -1
    code = 16 * code + digit
  }
  return code
}

function digitOf(unit: number): number {
  if (unit >= 0x30 && unit <= 0x39) return unit - 0x30
  const lower = unit | 0x20
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1
}

/** Takes a text and returns its replacement. */
export type Replace = (text: string) => string
type Json = Readonly<Record<string, unknown>>
type Keyword = (value: unknown, schema: Json, replace: Replace) => unknown

const TYPES: readonly string[] = ['string', 'number', 'integer', 'boolean', 'array', 'object', 'null']
const FORMATS =
  `date-time date time duration email idn-email hostname idn-hostname ipv4 ipv6 uri uri-reference
  uri-template iri iri-reference uuid json-pointer relative-json-pointer regex int32 int64 float double byte binary
  password url`.split(/\s+/)

function onlyWords(list: readonly string[]): Keyword {
  const words = new Set(list)
  return (value, _, replace) => mapStrings(value, text => (words.has(text) ? text : replace(text)))
}
const innerSchema: Keyword = (value, _, replace) => mapSchema(value, replace)
const schemasByName: Keyword = (value, _, replace) =>
  isRecord(value) ? mapFields(value, inner => mapSchema(inner, replace)) : mapStrings(value, replace)
/** A reference is one word; several words reference nothing, so they are text. */
const reference: Keyword = (value, _, replace) =>
  mapStrings(value, text => (/\s/.test(text) ? replace(text) : text))
const propertyNames: Keyword = (value, { properties }, replace) =>
  mapStrings(value, text => (isRecord(properties) && Object.hasOwn(properties, text) ? text : replace(text)))

/**
 * Allowed values are redacted, although the tool then gets the replacement. Two values may become equal; providers
 * refuse a list with duplicates.
 */
const allowedValues: Keyword = (value, _, replace) => {
  const mapped = mapStrings(value, replace)
  return mapped === value || !Array.isArray(mapped) ? mapped : [...new Set<unknown>(mapped)]
}
/** A pattern that contains a redaction would match something else; the tool works without the pattern too. */
const pattern: Keyword = (value, _, replace) => {
  const mapped = mapStrings(value, replace)
  return mapped === value ? value : undefined
}

const KEYWORDS: ReadonlyMap<string, Keyword> = new Map<string, Keyword>([
  ['type', onlyWords([...TYPES, ...TYPES.map(type => type.toUpperCase())])],
  ['format', onlyWords(FORMATS)],
  ['enum', allowedValues],
  ['pattern', pattern],
  ...rows(propertyNames, 'required propertyOrdering'),
  ...rows(reference, '$ref $id $schema $anchor $dynamicRef $dynamicAnchor $recursiveRef'),
  ...rows(schemasByName, 'properties patternProperties $defs definitions dependentSchemas'),
  ...rows(innerSchema, 'items prefixItems additionalItems unevaluatedItems contains additionalProperties'),
  ...rows(
    innerSchema,
    'unevaluatedProperties propertyNames contentSchema anyOf oneOf allOf not if then else',
  ),
])

function rows(keyword: Keyword, list: string): [string, Keyword][] {
  return list.split(' ').map(name => [name, keyword])
}

/** Replaces every text in the schema. Unchanged parts are shared with the schema. */
export function mapSchema(schema: unknown, replace: Replace): unknown {
  if (Array.isArray(schema)) return mapList(schema, element => mapSchema(element, replace))
  if (!isRecord(schema)) return mapStrings(schema, replace)
  return mapFields(schema, (value, key) => {
    const keyword = KEYWORDS.get(key)
    return keyword === undefined ? mapStrings(value, replace) : keyword(value, schema, replace)
  })
}

/** Replaces every string, whatever its field name. */
function mapStrings(value: unknown, replace: Replace): unknown {
  if (typeof value === 'string') return value === '' ? value : replace(value)
  if (Array.isArray(value)) return mapList(value, element => mapStrings(element, replace))
  return isRecord(value) ? mapFields(value, inner => mapStrings(inner, replace)) : value
}

/**
 * Maps the fields of an object, and drops those that become undefined. Returns the object itself if nothing changes.
 */
export function mapFields(value: Json, map: (inner: unknown, key: string) => unknown): Json {
  let changed: Record<string, unknown> | null = null
  for (const key of Object.keys(value)) {
    const inner = value[key]
    const mapped = map(inner, key)
    if (mapped === inner) continue
    changed ??= { ...value }
    if (mapped === undefined) delete changed[key]
    else changed[key] = mapped
  }
  return changed ?? value
}

/** Maps the values of a list. Returns the list itself if nothing changes. */
export function mapList(list: readonly unknown[], map: (value: unknown) => unknown): readonly unknown[] {
  let changed: unknown[] | null = null
  for (let index = 0; index < list.length; index++) {
    const value = list[index]
    const mapped = map(value)
    if (mapped === value) continue
    changed ??= [...list]
    changed[index] = mapped
  }
  return changed ?? list
}

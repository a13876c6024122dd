/**
 * One string of a request by what its field is for: which texts a model may read in it, and the string with others in
 * their places. Pure. Where a string reads in two ways, since a format decodes what others pass on, both are looked at.
 */
import { isUtf8 } from 'node:buffer'
import { isObject, mapAll, mapFields } from './schema-texts.ts'
import type { Leaf } from './text-fields.ts'
import { unescaped } from './unescaped.ts'

type See = (text: string) => string

const NAME = /^[\w.:/*+-]{1,128}$/
const SPACE = /\s/
const LINK = /^[a-z][a-z\d+.-]*:\S*$/i
const NOT_BASE64 = /[^\w+/=-]/
/** A data URL up to its comma; anything else before one may be read as text. */
const PLAIN_HEAD = /^data:[\w./+-]*(?:;[\w.=+-]{1,64})*$/i
const MEDIA_TYPE = /^[\w.+-]+\/[\w.+-]+$/
/** Types of bytes that no format makes a text of. */
const BYTES =
  /^(?:image\/(?!svg)|audio\/|video\/|font\/|application\/(?:pdf|zip|msword|vnd\.(?:ms-|openxml)))/
/** Types that formats make a text of, valid UTF-8 or not. */
const TEXT = /^(?:text\/|application\/(?:[\w.-]+\+)?(?:json|xml|csv|yaml|javascript)|image\/svg)/
/** A base64 text that begins so is a PDF file (`%PDF`). */
const PDF_START = 'JVBERi'
/** A compaction of Anthropic says so at its start, and is JSON: these two fields are sealed, others are not. */
const COMPACTION = 'anthropic-claude-v1:'
const SEALED: ReadonlySet<string> = new Set(['encrypted_content', 'signature'])

const LEAVES: Readonly<Record<Leaf, (text: string, see: See) => string>> = {
  kept: text => text,
  text: (text, see) => see(text),
  name: (text, see) => (NAME.test(text) ? text : see(text)),
  id: (text, see) => (SPACE.test(text) ? see(text) : text),
  json: readJson,
  sealed: readSealed,
  url: (text, see) => (isDataUrl(text) ? readDataUrl(text, see, NOT_BASE64) : see(text)),
  link: (text, see) => readLink(text, see, see),
  file: (text, see) => readLink(text, see, file => readFile(file, see)),
}

/** Calls `see` with the texts of the string, equally often whatever it gives; the string when it gives the same. */
export function mapLeaf(leaf: Leaf, text: string, see: See): string {
  return text === '' ? text : LEAVES[leaf](text, see)
}

function readLink(text: string, see: See, other: See): string {
  // Here bytes are taken for bytes: they may be many megabytes.
  if (isDataUrl(text)) return readDataUrl(text, see, null)
  return LINK.test(text) ? text : other(text)
}

function isDataUrl(text: string): boolean {
  return text.slice(0, 5).toLowerCase() === 'data:'
}

/** As it stands and as it is decoded: what was changed in the decoded text counts. */
function both(text: string, decoded: string, encode: (text: string) => string, see: See): string {
  const seen = see(text)
  const read = see(decoded)
  return read === decoded ? seen : encode(read)
}

function decodedOnly(text: string, decoded: string, encode: (text: string) => string, see: See): string {
  if (decoded === '') return text
  const read = see(decoded)
  return read === decoded ? text : encode(read)
}

/** `bytes`: what must not be in the data of a type of bytes, or it is text after all. */
function readDataUrl(url: string, see: See, bytes: RegExp | null): string {
  const comma = url.indexOf(',')
  const head = url.slice(0, comma)
  if (comma === -1) return see(url)
  const isPlain = PLAIN_HEAD.test(head)
  const [type = '', ...parameters] = head.slice(5).toLowerCase().split(';')
  const data = url.slice(comma + 1)
  if (!parameters.some(parameter => parameter.trim() === 'base64')) return readPercent(head, data, see)
  if (isPlain && BYTES.test(type)) return bytes?.test(data) === true ? see(url) : url
  // Without a proper type, formats go by the name of a file.
  const decoded = decodedText(data, !MEDIA_TYPE.test(type) || TEXT.test(type))
  const read = isPlain && !NOT_BASE64.test(data) ? decodedOnly : both
  if (decoded === null) return read === both ? see(url) : url
  return read(url, decoded, text => `${head},${Buffer.from(text).toString('base64')}`, see)
}

function readPercent(head: string, data: string, see: See): string {
  const url = `${head},${data}`
  if (!data.includes('%')) return see(url)
  let decoded: string
  try {
    decoded = decodeURIComponent(data)
  } catch {
    return see(url)
  }
  return both(url, decoded, text => `${head},${encodeURIComponent(Buffer.from(text).toString())}`, see)
}

/** Base64 alone, whose type is told by a name elsewhere, if at all. */
function readFile(file: string, see: See): string {
  if (file.startsWith(PDF_START)) return file
  const isBase64 = !NOT_BASE64.test(file)
  const decoded = decodedText(file, false)
  if (decoded === null) return isBase64 ? file : see(file)
  return (isBase64 ? decodedOnly : both)(file, decoded, text => Buffer.from(text).toString('base64'), see)
}

/** Null: bytes that are no text. Formats read a text whatever is wrong with its bytes, so that hides nothing. */
function decodedText(base64: string, isText: boolean): string | null {
  const bytes = Buffer.from(base64, 'base64')
  return isText || isUtf8(bytes) ? bytes.toString('utf8') : null
}

function readSealed(sealed: string, see: See): string {
  if (!sealed.startsWith(COMPACTION)) return LEAVES.id(sealed, see)
  let block: unknown
  try {
    block = JSON.parse(Buffer.from(sealed.slice(COMPACTION.length), 'base64url').toString('utf8'))
  } catch {
    return LEAVES.id(sealed, see)
  }
  if (!isObject(block)) return LEAVES.id(sealed, see)
  const read = mapFields(block, (value, key) => (SEALED.has(key) ? value : mapAll(value, see)))
  return read === block ? sealed : COMPACTION + Buffer.from(JSON.stringify(read)).toString('base64url')
}

/** Some formats parse it, and then escapes are letters. */
function readJson(text: string, see: See): string {
  if (!text.includes('\\u')) return see(text)
  const plain = unescaped(text)
  return plain === text ? see(text) : both(text, plain, changed => changed, see)
}

/**
 * Bounds the metadata that clients send about themselves and their traces (app, `User-Agent`, `trace`), for records and
 * log lines. `api/request-facts.ts` reads the headers. Pure.
 */
import type { ClientFacts } from '../../exchange/exchange.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { AppFields, TraceFields } from '../../storage/usage.ts'

const TEXT_MAX_CHARS = 256
/** Maximum number of fields in a trace, and maximum length of a field name. */
const MAX_TRACE_FIELDS = 16
const FIELD_NAME = /^[\w.-]{1,64}$/

/** Makes a text storable in every database, and bounds its length. */
export function boundedText(text: string): string {
  return text.slice(0, TEXT_MAX_CHARS).toWellFormed().replaceAll('\0', '\uFFFD')
}

/** Our keys, wherever a client has put one. */
const GATEWAY_KEY = /sk-gw-/i

/**
 * Reads the field `trace`; undefined if the request has none. Leaves out lists, objects, fields with unusual names,
 * long texts, and texts that contain a key.
 */
export function traceOf({ trace }: ResponsesRequest): TraceFields | undefined {
  if (trace === undefined) return undefined
  const fields: [string, string | number | boolean][] = []
  for (const [name, value] of Object.entries<unknown>(trace)) {
    if (fields.length === MAX_TRACE_FIELDS || !FIELD_NAME.test(name)) continue
    if (typeof value === 'string') {
      if (isStorable(value)) fields.push([name, boundedText(value)])
    } else if (typeof value === 'boolean' || Number.isFinite(value)) fields.push([name, value as boolean])
  }
  return fields.length === 0 ? undefined : Object.fromEntries(fields)
}

/** The application fields to keep; undefined if the client states none of them. */
export function appOf(client: ClientFacts): AppFields | undefined {
  const referer = pageOf(client.referer)
  const title = keptName(client.title)
  const userAgent = keptName(client.userAgent)
  if (referer === undefined && title === undefined && userAgent === undefined) return undefined
  return {
    ...(referer === undefined ? undefined : { referer }),
    ...(title === undefined ? undefined : { title }),
    ...(userAgent === undefined ? undefined : { userAgent }),
  }
}

/** The page without its query, because links may carry secrets there. */
function pageOf(referer: string | undefined): string | undefined {
  if (referer === undefined || !/^https?:/i.test(referer)) return undefined
  const url = URL.parse(referer)
  return url === null ? undefined : keptName(`${url.origin}${url.pathname}`)
}

/** Accepts a name that is printable, short enough and without a key; undefined for anything else. */
export function keptName(text: string | undefined): string | undefined {
  return text !== undefined && isStorable(text) && /^[\x20-\x7e]+$/.test(text) ? text : undefined
}

function isStorable(text: string): boolean {
  return text.length <= TEXT_MAX_CHARS && !GATEWAY_KEY.test(text)
}

/** Parses an event stream by the HTML standard, and records deviations that a parser would forgive. Pure. */

/** One event of a stream. */
export interface SeenEvent {
  /** Null: no `event:` line. */
  readonly name: string | null
  readonly data: string
  /** The document in `data`; undefined: not a document, or `[DONE]`. */
  readonly json: Readonly<Record<string, unknown>> | undefined
}

export interface SeenStream {
  readonly events: readonly SeenEvent[]
  /** True if the last event is closed by a blank line. */
  readonly isClosed: boolean
  readonly comments: number
}

export const DONE = '[DONE]'

export function readStream(text: string): SeenStream {
  const events: SeenEvent[] = []
  let comments = 0
  let name: string | null = null
  let data: string[] = []
  const rows = text.replace(/^\ufeff/, '').split(/\r\n|\n|\r/)
  const last = rows.pop() ?? ''
  for (const row of rows) {
    if (row === '') {
      if (data.length > 0) events.push(eventOf(name, data.join('\n')))
      name = null
      data = []
    } else if (row.startsWith(':')) comments++
    else {
      const colon = row.indexOf(':')
      const field = colon === -1 ? row : row.slice(0, colon)
      const value = colon === -1 ? '' : row.slice(colon + 1).replace(/^ /, '')
      if (field === 'event') name = value
      else if (field === 'data') data.push(value)
    }
  }
  return { events, comments, isClosed: last === '' && data.length === 0 && name === null }
}

function eventOf(name: string | null, data: string): SeenEvent {
  return { name, data, json: data === DONE ? undefined : objectOf(data) }
}

/** A JSON object; undefined for anything else. */
export function objectOf(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) ? value : undefined
  } catch {
    return undefined
  }
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The fields of an object; none for other values. */
export function fields(value: unknown): Readonly<Record<string, unknown>> {
  return isObject(value) ? value : {}
}

export function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

export function string(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

/** Building requests for the tables of good and bad ones, and checking such tables. */
import type { Test } from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { parseResponsesRequest } from '../support/dialects.ts'

export const MODEL = 'acme/fast-1'

/** A minimal request with some fields of its own. */
export function body(fields: Record<string, unknown> = {}): Record<string, unknown> {
  return { model: MODEL, input: 'Hello', ...fields }
}

/** A request whose input is these items. */
export function input(...items: unknown[]): Record<string, unknown> {
  return body({ input: items })
}

/** A request whose only message holds these content parts. */
export function parts(...content: unknown[]): Record<string, unknown> {
  return input({ role: 'user', content })
}

export function tools(...list: unknown[]): Record<string, unknown> {
  return body({ tools: list })
}

export function plugins(...list: unknown[]): Record<string, unknown> {
  return body({ plugins: list })
}

/** The same value as a client's JSON would give it, own `__proto__` keys included. */
export function json(text: string): unknown {
  return JSON.parse(text)
}

type Parse = (body: unknown) => unknown

/** What the gateway says to a body it refuses; null when it takes it. Anything but a 400 of ours is thrown on. */
export function refusalOf(value: unknown, parse: Parse = parseResponsesRequest): string | null {
  try {
    parse(value)
    return null
  } catch (error) {
    if (error instanceof GatewayError && error.code === 'invalid_request') return error.message
    throw error
  }
}

/** A body, the path of the field that must be named, and words of what is expected there. */
export type BadRow = readonly [title: string, body: unknown, path: string, words?: RegExp]

export function refused(t: Test, rows: readonly BadRow[], parse?: Parse): void {
  for (const [title, value, path, words] of rows) {
    const message = refusalOf(value, parse)
    t.equal(message?.slice(0, path.length + 2) ?? null, `${path}: `, `${title} is refused at ${path}`)
    if (words !== undefined) t.match(message, words, `${title} says what is expected`)
  }
}

type GoodRow = readonly [title: string, body: unknown]

export function accepted(t: Test, rows: readonly GoodRow[], parse?: Parse): void {
  for (const [title, value] of rows) {
    const before = JSON.stringify(value)
    t.equal(refusalOf(value, parse), null, `${title} is accepted`)
    t.equal(JSON.stringify(value), before, `${title} is left as it came`)
  }
}

/** A value of so many levels of objects and arrays; the outermost is an object. */
export function nested(levels: number): unknown {
  let value: unknown = 'x'
  for (let level = levels; level > 0; level--) value = level % 2 === 1 ? { in: value } : [value]
  return value
}

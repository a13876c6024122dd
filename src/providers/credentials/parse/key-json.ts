/**
 * Reads provider keys that are JSON. Pure. Errors name the documented field and never repeat any part of the input, not
 * even names of unknown fields: a key may have been pasted anywhere.
 */
import { GatewayError } from '../../../base/errors.ts'

/** Characters that a header can carry. No provider has keys of nearly this length. */
export const API_KEY = /^[\x21-\x7e]{1,4096}$/
export const API_KEY_EXPECTED = 'an API key of 1 to 4096 printable ASCII characters without spaces'

/** `problem` is shown to the client. */
export function keyError(problem: string): GatewayError {
  return new GatewayError('invalid_request', `key: ${problem}`)
}

/** True if the text is an attempt at JSON. */
export function looksLikeJson(text: string): boolean {
  return /^\s*[[{"]/.test(text)
}

/** @throws GatewayError `invalid_request` */
export function parseKeyJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // The parser's own message quotes the text.
    throw keyError('must be valid JSON')
  }
}

/** The fields of one JSON object of a key. */
export class KeyFields {
  readonly #fields: ReadonlyMap<string, unknown>
  /** Prefix of field names in messages, for example `[2].`. */
  readonly #path: string

  /** @throws GatewayError `invalid_request` if it is not an object. */
  constructor(value: unknown, path = '') {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw keyError(`${path === '' ? '' : `${path.slice(0, -1)} `}must be a JSON object`)
    }
    this.#fields = new Map(Object.entries(value))
    this.#path = path
  }

  has(name: string): boolean {
    return this.#fields.has(name)
  }

  /** Checks that there are no other fields. @throws GatewayError `invalid_request` */
  only(names: readonly string[]): this {
    for (const name of this.#fields.keys()) {
      if (!names.includes(name))
        throw keyError(`${this.#pathPrefix()}must have no fields other than ${joinNames(names)}`)
    }
    return this
  }

  /** @throws GatewayError `invalid_request` if it is missing or does not match; the message contains `expected`. */
  text(name: string, pattern: RegExp | ((value: string) => boolean), expected: string): string {
    const value = this.optionalText(name, pattern, expected)
    if (value === null) throw keyError(`${this.#path}${name} is required`)
    return value
  }

  /** Null when absent or null. @throws GatewayError `invalid_request` if it does not match. */
  optionalText(
    name: string,
    pattern: RegExp | ((value: string) => boolean),
    expected: string,
  ): string | null {
    const value = this.#fields.get(name)
    if (value === undefined || value === null) return null
    const isValid =
      typeof value === 'string' && (typeof pattern === 'function' ? pattern(value) : pattern.test(value))
    if (!isValid) throw keyError(`${this.#path}${name} must be ${expected}`)
    return value
  }

  #pathPrefix(): string {
    return this.#path === '' ? '' : `${this.#path.slice(0, -1)} `
  }
}

function joinNames(names: readonly string[]): string {
  return names.length === 1 ? `${names[0]}` : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`
}

/**
 * Reading provider keys that are JSON. Pure. What is refused is told by the name of the documented field; nothing of
 * the key itself is ever repeated, names of unknown fields included: a key may have been pasted into any place.
 */
import { GatewayError } from '../../errors.ts'

/** `what` says what was expected, for the client. */
export function keyRefusal(what: string): GatewayError {
  return new GatewayError('invalid_request', `key: ${what}`)
}

/** Whether the text can only have been meant as JSON. */
export function looksLikeJson(text: string): boolean {
  return /^\s*[[{"]/.test(text)
}

/** @throws GatewayError `invalid_request` */
export function parseKeyJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // The parser's own message quotes the text.
    throw keyRefusal('must be valid JSON')
  }
}

/** The fields of one JSON object of a key. */
export class KeyFields {
  readonly #fields: ReadonlyMap<string, unknown>
  /** Before the names of fields in messages, e.g. `[2].`. */
  readonly #path: string

  /** @throws GatewayError `invalid_request` when it is no object. */
  constructor(value: unknown, path = '') {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw keyRefusal(`${path === '' ? '' : `${path.slice(0, -1)} `}must be a JSON object`)
    }
    this.#fields = new Map(Object.entries(value))
    this.#path = path
  }

  has(name: string): boolean {
    return this.#fields.has(name)
  }

  /** @throws GatewayError `invalid_request` when there are others than these. */
  only(names: readonly string[]): this {
    for (const name of this.#fields.keys()) {
      if (!names.includes(name)) throw keyRefusal(`${this.#where()}must have only ${listed(names)}`)
    }
    return this
  }

  /** @throws GatewayError `invalid_request` when it is missing or does not fit; `expected` says what would. */
  text(name: string, fits: RegExp | ((value: string) => boolean), expected: string): string {
    const value = this.optionalText(name, fits, expected)
    if (value === null) throw keyRefusal(`${this.#path}${name} is required`)
    return value
  }

  /** Null when absent or null. @throws GatewayError `invalid_request` when it does not fit. */
  optionalText(name: string, fits: RegExp | ((value: string) => boolean), expected: string): string | null {
    const value = this.#fields.get(name)
    if (value === undefined || value === null) return null
    const good = typeof value === 'string' && (typeof fits === 'function' ? fits(value) : fits.test(value))
    if (!good) throw keyRefusal(`${this.#path}${name} must be ${expected}`)
    return value
  }

  #where(): string {
    return this.#path === '' ? '' : `${this.#path.slice(0, -1)} `
  }
}

function listed(names: readonly string[]): string {
  return names.length === 1 ? `${names[0]}` : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`
}

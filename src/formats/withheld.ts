/**
 * The memory of content that a decoder emits later, which no delta counts, and the limit of items in a reply. Pure.
 * Hot path.
 */
import { GatewayError } from '../base/errors.ts'

/** Most items in one reply, and most parts in all its messages. The longest known replies have some hundreds. */
export const ITEMS_MAX = 4_096

/**
 * Returns `count` if a reply may hold one more thing. A loop in a model, or a hostile provider, must not use up memory.
 * @throws GatewayError `reply_too_large`
 */
export function checkedCount(count: number, noun: string): number {
  if (count < ITEMS_MAX) return count
  throw new GatewayError('reply_too_large', `The provider sent more than ${ITEMS_MAX} ${noun} in one reply`)
}

/** Memory per character: the text is stored as it was sent, and again when it is sealed or joined at the end. */
const CHAR_BYTES = 3
/** An object, a list or a field. */
const PART_BYTES = 64
/** A number or another short value in its place. */
const VALUE_BYTES = 32

export class Withheld {
  /** Only this class writes it. */
  bytes = 0

  /** Adds a value that is stored until the end of the reply. */
  add(value: unknown): void {
    this.bytes += weightOf(value)
  }

  /** Adds objects and fields that the decoder itself makes. */
  addParts(parts: number): void {
    this.bytes += PART_BYTES * parts
  }

  /** Replaces the weight of an earlier value by the weight of a new value, and returns the latter. */
  replace(earlierBytes: number, value: unknown): number {
    const weight = weightOf(value)
    this.bytes += weight - earlierBytes
    return weight
  }
}

/** The most memory that a value parsed from JSON takes. */
function weightOf(value: unknown): number {
  if (typeof value === 'string') return VALUE_BYTES + CHAR_BYTES * value.length
  if (typeof value !== 'object' || value === null) return VALUE_BYTES
  let bytes = PART_BYTES
  if (Array.isArray(value)) for (const element of value as readonly unknown[]) bytes += weightOf(element)
  else {
    for (const name in value) {
      bytes += PART_BYTES + name.length + weightOf((value as Readonly<Record<string, unknown>>)[name])
    }
  }
  return bytes
}

/** Longer than any id or finish reason of a provider. Names in a reply are stored but not counted. */
const NAME_MAX_CHARS = 1_024

/** An id, a finish reason or a service tier. A longer text is no such name and counts as missing. */
export function nameIn(value: unknown): string | null {
  return typeof value === 'string' && value !== '' && value.length <= NAME_MAX_CHARS ? value : null
}

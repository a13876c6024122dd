/**
 * The memory of what a decoder keeps to emit it later. No delta counts it, so each decoder tells it, and it counts as
 * held. Pure. Hot path.
 */
/** Copies of a text, in bytes for each character: as it was sent, and sealed or joined at the end. */
const CHAR_BYTES = 3
/** An object, a list or a field; see `structureBytes`. */
const PART_BYTES = 64
/** A number or another short value in its place. */
const VALUE_BYTES = 32

export class Withheld {
  /** Written here alone. */
  bytes = 0

  /** Something is kept until the end of the reply. */
  add(value: unknown): void {
    this.bytes += weightOf(value)
  }

  /** Structure that a decoder makes by itself. */
  addParts(parts: number): void {
    this.bytes += PART_BYTES * parts
  }

  /** A value takes the place of an earlier one, whose weight it gets. Returns its own weight. */
  replace(before: number, value: unknown): number {
    const weight = weightOf(value)
    this.bytes += weight - before
    return weight
  }
}

/** Memory of a value that was parsed from JSON, at most. */
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

/** Longer than any id or word of a provider; the names of a reply are kept, and do not count. */
const NAME_MAX_CHARS = 1_024

/** An id, a reason, a tier: a text of one word. A longer one names nothing, and counts as missing. */
export function nameIn(value: unknown): string | null {
  return typeof value === 'string' && value !== '' && value.length <= NAME_MAX_CHARS ? value : null
}

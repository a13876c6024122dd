/**
 * Records of requests that failed before any model was asked: they cost nothing, so a client may send any number. Of
 * each key so many a minute are kept, and a later record counts the others. One for each thread; hot path.
 */
import type { UsageRecord } from '../../storage/usage.ts'

/** One a second on the average; a person who tries something out sees each of them. */
const KEPT_PER_MINUTE = 60
/** Of the text of a time, up to its minute. */
const MINUTE_CHARS = 'YYYY-MM-DDThh:mm'.length
/** Keys that are remembered; the count of a key that is forgotten is lost. */
const KEYS_MAX = 10_000

interface Minute {
  readonly name: string
  kept: number
  /** Of this minute and of earlier ones. */
  leftOut: number
}

export class UnaskedRecords {
  /** By hash of the key; the one that was seen first is the first. */
  readonly #minutes = new Map<string, Minute>()

  /** The record as it is to be kept; null: it is only counted. */
  take(record: UsageRecord): UsageRecord | null {
    if (!isUnasked(record)) return record
    const { keyHash, createdAt } = record
    const name = createdAt.slice(0, MINUTE_CHARS)
    let minute = this.#minutes.get(keyHash)
    if (minute?.name !== name) {
      minute = { name, kept: 0, leftOut: minute?.leftOut ?? 0 }
      this.#minutes.set(keyHash, minute)
      if (this.#minutes.size > KEYS_MAX) {
        for (const first of this.#minutes.keys()) {
          this.#minutes.delete(first)
          break
        }
      }
    }
    if (minute.kept === KEPT_PER_MINUTE) {
      minute.leftOut++
      return null
    }
    minute.kept++
    const { leftOut } = minute
    minute.leftOut = 0
    return leftOut === 0 ? record : { ...record, leftOutBefore: leftOut }
  }
}

/** True if nobody was asked, and nothing is charged. */
function isUnasked({ outcome, attempts, cost, parent }: UsageRecord): boolean {
  return outcome === 'failed' && attempts.length === 0 && cost === 0 && parent === undefined
}

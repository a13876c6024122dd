/**
 * Health updates: outcomes and breaker changes that one thread reports to other threads and instances. Plain data.
 * Times are durations, because the clocks of two threads have different origins.
 */

/** The reason that an endpoint is not called: it fails, or the provider limits the rate. */
export type Cause = 'failure' | 'limit'

/** A change of a breaker. `caller`: the name of its key; empty for the breaker for all. */
export type BreakerEvent = { readonly caller: string } & (
  | {
      readonly kind: 'open'
      readonly forMs: number
      readonly streak: number
      readonly cause: Cause
      /**
       * The names of the keys if only their failures opened the breaker for all, separated by spaces; empty if there
       * may be others.
       */
      readonly alone: string
    }
  /**
   * One request is the probe; no other thread sends one for this time. `isOther`: it belongs to a key that is not in
   * `alone`.
   */
  | { readonly kind: 'probe'; readonly forMs: number; readonly isOther: boolean }
  /** The probe ended without a verdict on the endpoint. */
  | { readonly kind: 'unproved' }
  | { readonly kind: 'closed' }
)

/** The attempts of one key since the last note. */
export interface CallerNote {
  /** The first characters of the hash of the key. */
  readonly name: string
  /** A short hash of the workspace of the key. */
  readonly owner: string
  readonly ok: number
  readonly failed: number
  readonly limited: number
  /** Time that the provider asks this key to wait; 0: none. */
  readonly restMs: number
  readonly restCause: Cause
}

export interface HealthNote {
  /** The result of `endpointKey`. */
  readonly key: string
  /** Attempts of unnamed callers since the last note; a counted success that broke off later counts -1. */
  readonly ok: number
  readonly failed: number
  readonly limited: number
  /** At most eight. */
  readonly callers: readonly CallerNote[]
  /** Replies whose tool calls a client can run, and replies with faulty ones. */
  readonly goodCalls: number
  readonly faultyCalls: number
  /** In order. */
  readonly events: readonly BreakerEvent[]
  /** Time that the provider asks all callers to wait; 0: none. */
  readonly restMs: number
  readonly restCause: Cause
  /** Milliseconds to the first content. */
  readonly latencies: readonly number[]
  /** Tokens per second. */
  readonly throughputs: readonly number[]
}

/** Limit of one message between instances; longer lists are cut. */
const NOTES_MAX = 10_000
export const SAMPLES_MAX = 64
const EVENTS_MAX = 64
const CALLERS_MAX = 8
/**
 * Number of characters of a key's hash: enough to distinguish the keys of one endpoint, and too few to identify a key.
 */
export const NAME_CHARS = 10
const KEY_MAX_CHARS = 1_024
const SPAN_MAX_MS = 3_600_000
const COUNT_MAX = 1_000_000

/** Reads notes of another instance; malformed ones are skipped. */
export function readNotes(value: unknown): readonly HealthNote[] {
  if (!Array.isArray(value)) return []
  return value.slice(0, NOTES_MAX).flatMap((note: unknown) => {
    const healthNote = readNote(note)
    return healthNote === null ? [] : [healthNote]
  })
}

function readNote(value: unknown): HealthNote | null {
  if (typeof value !== 'object' || value === null) return null
  const { key, ok, failed, limited, events, restMs, restCause, latencies, throughputs } = value as Record<
    string,
    unknown
  >
  const { callers, goodCalls, faultyCalls } = value as Record<string, unknown>
  if (typeof key !== 'string' || key.length > KEY_MAX_CHARS) return null
  return {
    key,
    ok: boundedInteger(ok, -COUNT_MAX),
    failed: boundedInteger(failed, 0),
    limited: boundedInteger(limited, 0),
    callers: Array.isArray(callers) ? callers.slice(0, CALLERS_MAX).flatMap(readCaller) : [],
    goodCalls: boundedInteger(goodCalls, 0),
    faultyCalls: boundedInteger(faultyCalls, 0),
    events: Array.isArray(events) ? events.slice(0, EVENTS_MAX).flatMap(readEvent) : [],
    restMs: boundedSpan(restMs),
    restCause: causeOf(restCause),
    latencies: readSamples(latencies),
    throughputs: readSamples(throughputs),
  }
}

function readCaller(value: unknown): readonly CallerNote[] {
  if (typeof value !== 'object' || value === null) return []
  const { name, owner, ok, failed, limited, restMs, restCause } = value as Record<string, unknown>
  if (nameOf(name) === '') return []
  return [
    {
      name: nameOf(name),
      owner: nameOf(owner),
      ok: boundedInteger(ok, -COUNT_MAX),
      failed: boundedInteger(failed, 0),
      limited: boundedInteger(limited, 0),
      restMs: boundedSpan(restMs),
      restCause: causeOf(restCause),
    },
  ]
}

function readEvent(value: unknown): readonly BreakerEvent[] {
  if (typeof value !== 'object' || value === null) return []
  const { kind, caller: name, forMs, streak, cause, alone, isOther } = value as Record<string, unknown>
  const caller = nameOf(name)
  if (kind === 'open') {
    return [
      {
        kind,
        caller,
        forMs: boundedSpan(forMs),
        streak: boundedInteger(streak, 1),
        cause: causeOf(cause),
        alone: namesOf(alone),
      },
    ]
  }
  if (kind === 'probe') return [{ kind, caller, forMs: boundedSpan(forMs), isOther: isOther === true }]
  return kind === 'closed' || kind === 'unproved' ? [{ kind, caller }] : []
}

function nameOf(value: unknown): string {
  return typeof value === 'string' && /^[\da-f]{1,10}$/.test(value) ? value : ''
}

/** Names, separated by spaces. */
function namesOf(value: unknown): string {
  if (typeof value !== 'string') return ''
  const names = value.split(' ', CALLERS_MAX).map(nameOf)
  return names.includes('') ? '' : names.join(' ')
}

function causeOf(value: unknown): Cause {
  return value === 'limit' ? 'limit' : 'failure'
}

function boundedInteger(value: unknown, minimum: number): number {
  return Number.isInteger(value)
    ? Math.max(minimum, Math.min(COUNT_MAX, value as number))
    : Math.max(minimum, 0)
}

function boundedSpan(value: unknown): number {
  return typeof value === 'number' && value >= 0 ? Math.min(SPAN_MAX_MS, value) : 0
}

function readSamples(value: unknown): readonly number[] {
  if (!Array.isArray(value)) return []
  return value.slice(0, SAMPLES_MAX).filter(sample => typeof sample === 'number' && Number.isFinite(sample))
}

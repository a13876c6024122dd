/**
 * Per-caller state of one endpoint: each API key has its own breaker and counts there, so that one key's requests
 * cannot close the endpoint for all others. Bounded: eight keys individually, failing keys first, and all other keys
 * together. Pure. Hot path.
 */
import { Breaker, NEVER_MS } from './breaker.ts'
import { OutcomeWindow, WINDOW_MS } from './failure-windows.ts'
import { type Cause, NAME_CHARS } from './notes.ts'

/** The caller of a request, as health distinguishes callers. */
export interface HealthCaller {
  /** SHA-256 of the API key, lowercase hexadecimal. */
  readonly keyHash: string
  readonly organizationId: string
  readonly workspaceId: string | null
}

/** Number of values of a key that count in full in the figures of an endpoint, in each time window. */
const FULL_WEIGHT_VALUES = 8
const WEIGHT_WINDOW_MS = 60_000

/** Maximum number of keys tracked by name at one endpoint, and in one note. All other keys count as one caller. */
const NAMED_KEYS_MAX = 8
/** A key counts as served if its last success is at most this old. */
const SERVED_WINDOW_MS = 2_000
/** A served key also has at least this many successes in 30 s, and SERVED_RATIO for each failed attempt. */
const SERVED_SUCCESSES_MIN = 5
const SERVED_RATIO = 4

/** One key at one endpoint, or all unnamed keys together. */
export class CallerState extends Breaker {
  /** The first characters of the hash of its key; empty for all keys that have no name of their own. */
  readonly name: string
  /** A hash of its workspace; empty if there are several, or if it is unknown. */
  owner: string
  /** Time of its last request. */
  heardMs = NEVER_MS
  /** Time of its last success. */
  succeededMs = NEVER_MS
  readonly window: OutcomeWindow
  /** Failures since its own last success, and rate-limit refusals since then. */
  failedInRow = 0
  limitedInRow = 0
  /** Number of values for the figures of the endpoint in this minute, and the number of the minute. */
  #values = 0
  #minute = 0
  /** Number of the current row of failures: all failures since the last success of any caller. */
  #row = 0
  #rowFailed = 0
  #rowLimited = 0

  constructor(name: string, owner: string, nowMs: number) {
    super()
    this.name = name
    this.owner = owner
    this.window = new OutcomeWindow(nowMs)
  }

  /** @param row number of the row to which the failures belong */
  add(nowMs: number, row: number, ok: number, failed: number, limited: number): void {
    this.heardMs = nowMs
    this.window.add(nowMs, ok, failed, limited)
    if (ok > 0) {
      this.succeededMs = nowMs
      this.failedInRow = 0
      this.limitedInRow = 0
    } else {
      this.failedInRow += failed
      this.limitedInRow += limited
    }
    if (failed === 0 && limited === 0) return
    if (this.#row !== row) this.#rowFailed = this.#rowLimited = 0
    this.#row = row
    this.#rowFailed += failed
    this.#rowLimited += limited
  }

  /**
   * The weight of its next value in the figures of the endpoint: 1 for the first values of a minute, less for later
   * ones. All values of a minute together weigh at most as much as sixteen, so figures are close to the median over
   * keys.
   */
  weigh(nowMs: number): number {
    const minute = Math.floor(nowMs / WEIGHT_WINDOW_MS)
    if (minute !== this.#minute) this.#values = 0
    this.#minute = minute
    return Math.min(1, (FULL_WEIGHT_VALUES / ++this.#values) ** 2)
  }

  /** Number of its failures since the last success of any caller. */
  inRow(row: number, cause: Cause): number {
    if (this.#row !== row) return 0
    return cause === 'failure' ? this.#rowFailed : this.#rowLimited
  }

  /** The reason that its own breaker is open or has to open; null if neither applies. */
  verdict(nowMs: number, countMin: number): Cause | null {
    if (this.isOpen) return this.cause
    this.window.advance(nowMs)
    const { ok, failed, limited } = this.window
    // Failures in a row also count: otherwise an outage would open the breaker only after as many failures as there
    // were successes.
    if (failed >= countMin && (failed > ok || this.failedInRow >= countMin)) return 'failure'
    return limited >= countMin && (limited > ok || this.limitedInRow >= countMin) ? 'limit' : null
  }

  /** True if its requests mostly succeed, and did so until moments ago. */
  isServed(nowMs: number, row: number, cause: Cause): boolean {
    if (this.succeededMs <= nowMs - SERVED_WINDOW_MS || this.blockedUntilMs > nowMs) return false
    this.window.advance(nowMs)
    const { ok, failed, limited } = this.window
    if (ok < Math.max(SERVED_SUCCESSES_MIN, SERVED_RATIO * (failed + limited))) return false
    // For unnamed keys: some may have failed in this row while others are served.
    return this.inRow(row, cause) < (this.name === '' ? SERVED_SUCCESSES_MIN : 1)
  }

  /** Forgets its earlier failures. */
  clear(nowMs: number): void {
    this.setClosed(nowMs)
    this.window.clear()
    this.failedInRow = 0
    this.limitedInRow = 0
    this.#rowFailed = 0
    this.#rowLimited = 0
  }
}

export class CallerStates {
  readonly #named: CallerState[] = []
  /** All unnamed callers here. */
  readonly #unnamed: CallerState
  /** All callers. */
  readonly allCallers: CallerState[]

  constructor(nowMs: number) {
    this.#unnamed = new CallerState('', '', nowMs)
    this.allCallers = [this.#unnamed]
  }

  /** The callers that have a name here. */
  get named(): readonly CallerState[] {
    return this.#named
  }

  /** The caller with this key, which may be the one for unnamed keys; if it `fails`, it gets a name in any case. */
  of(nowMs: number, caller: HealthCaller | null, fails = false): CallerState {
    if (caller === null) return this.#unnamed
    for (const state of this.#named) if (caller.keyHash.startsWith(state.name)) return state
    return this.#add(nowMs, caller.keyHash.slice(0, NAME_CHARS), ownerOf(caller), fails)
  }

  /** The caller with this name in a note. */
  ofName(nowMs: number, name: string, owner: string, fails = false): CallerState {
    if (name === '') return this.#unnamed
    return this.#named.find(state => state.name === name) ?? this.#add(nowMs, name, owner, fails)
  }

  /** Null if the key has no name here. */
  find({ keyHash }: HealthCaller): CallerState | null {
    for (const state of this.#named) if (keyHash.startsWith(state.name)) return state
    return null
  }

  /**
   * True if another key had a success in the last 30 s. If other keys have to wait as well, another key must be served.
   */
  isServedBeside(caller: CallerState, nowMs: number, row: number): boolean {
    const isResting = this.allCallers.some(state => state !== caller && state.restUntilMs > nowMs)
    if (!isResting) return this.hasSuccessBeside(caller, nowMs)
    return this.allCallers.some(state => state !== caller && state.isServed(nowMs, row, 'limit'))
  }

  /** True if another key had a success in the last 30 s. */
  hasSuccessBeside(caller: CallerState, nowMs: number): boolean {
    return this.allCallers.some(state => state !== caller && state.succeededMs > nowMs - WINDOW_MS)
  }

  /** True if another key made a request in the last 30 s. */
  hasRequestBeside(caller: CallerState, nowMs: number): boolean {
    return this.allCallers.some(state => state !== caller && state.heardMs > nowMs - WINDOW_MS)
  }

  /**
   * The reason that the endpoint fails for all callers, judged by more than one key; null if it does not. While another
   * key is served, the keys that fail have their own breakers: two keys of one owner may together send requests that
   * make a provider fail.
   */
  verdict(nowMs: number, row: number, countMin: number): Cause | null {
    for (const state of this.allCallers) state.window.advance(nowMs)
    const commonCause = CAUSES.find(cause => this.#fails(nowMs, row, countMin, cause)) ?? null
    return commonCause !== null && this.allCallers.some(state => state.isServed(nowMs, row, commonCause))
      ? null
      : commonCause
  }

  /**
   * The names of the keys that have failed since the last success, separated by spaces, if no other key has failed and
   * another key had a success recently; otherwise empty.
   */
  aloneBesides(nowMs: number, row: number, cause: Cause): string {
    const failing = this.allCallers.filter(state => state.inRow(row, cause) > 0)
    const isEachNamed = failing.every(({ name }) => name !== '')
    const isOtherServed = this.allCallers.some(
      state => !failing.includes(state) && state.succeededMs > nowMs - WINDOW_MS,
    )
    return isEachNamed && isOtherServed ? failing.map(({ name }) => name).join(' ') : ''
  }

  /** True if no other key has failed since the last success. */
  isAlone(caller: CallerState, row: number, cause: Cause): boolean {
    return (
      caller.name !== '' && !this.allCallers.some(state => state !== caller && state.inRow(row, cause) > 0)
    )
  }

  clear(nowMs: number): void {
    for (const state of this.allCallers) state.clear(nowMs)
  }

  #fails(nowMs: number, row: number, countMin: number, cause: Cause): boolean {
    // Failures of a single key prove nothing; the other keys must fail too.
    const othersMin = Math.max(1, countMin >> 1)
    const rowCounts = this.#counts(nowMs, state => state.inRow(row, cause))
    if (rowCounts.total >= countMin && rowCounts.withoutHighest >= othersMin) return true
    const failing = this.#counts(nowMs, state => (state.verdict(nowMs, countMin) === cause ? 1 : 0))
    if (failing.withoutHighest >= 1) return true
    const kind = cause === 'failure' ? 'failed' : 'limited'
    const failures = this.#counts(nowMs, state => state.window[kind])
    const okCount = this.allCallers.reduce((sum, { window }) => sum + window.ok, 0)
    return (
      failures.total >= countMin &&
      failures.total > okCount &&
      failures.withoutHighest >= Math.max(othersMin, okCount + 1)
    )
  }

  /**
   * Sums a count over all callers, and over all but the caller with the highest count. Keys of one workspace count as
   * one caller while another workspace is served, because its owner can create any number of keys.
   */
  #counts(
    nowMs: number,
    countOf: (caller: CallerState) => number,
  ): { total: number; withoutHighest: number } {
    let [total, highest, highestOwned, highestOwner] = [0, 0, 0, '']
    for (const state of this.allCallers) {
      const count = countOf(state)
      total += count
      highest = Math.max(highest, count)
      if (count === 0 || state.owner === '') continue
      const ownerTotal = this.allCallers.reduce(
        (sum, otherState) => sum + (otherState.owner === state.owner ? countOf(otherState) : 0),
        0,
      )
      if (ownerTotal > highestOwned) [highestOwned, highestOwner] = [ownerTotal, state.owner]
    }
    const servesOthers =
      highestOwned > highest &&
      this.allCallers.some(
        ({ owner, succeededMs }) => owner !== highestOwner && succeededMs > nowMs - WINDOW_MS,
      )
    return { total, withoutHighest: total - (servesOthers ? highestOwned : highest) }
  }

  #silent(nowMs: number): CallerState | null {
    const silentState = lowestBy(this.#named, ({ heardMs }) => heardMs)
    const isSilent =
      silentState !== null && silentState.heardMs <= nowMs - WINDOW_MS && silentState.blockedUntilMs <= nowMs
    return isSilent ? silentState : null
  }

  /**
   * The key without failures that has been silent longest. If all have failures: one that is not blocked, or else a
   * blocked one.
   */
  #leastTroubled(nowMs: number): CallerState | null {
    for (const state of this.#named) state.window.advance(nowMs)
    const unblocked = this.#named.filter(({ blockedUntilMs }) => blockedUntilMs <= nowMs)
    const healthy = unblocked.filter(({ window }) => window.failed + window.limited === 0)
    return (
      lowestBy(healthy, ({ heardMs }) => heardMs) ??
      lowestBy(unblocked, ({ heardMs }) => heardMs) ??
      lowestBy(this.#named, ({ blockedUntilMs }) => blockedUntilMs)
    )
  }

  /**
   * Gives a key a name, replacing one that was silent for 30 s. If there is none, the key becomes one of the unnamed
   * ones, which mostly succeed, unless it fails: then it replaces another key, so that no key shares the failures of a
   * stranger.
   */
  #add(nowMs: number, name: string, owner: string, fails: boolean): CallerState {
    if (this.#named.length >= NAMED_KEYS_MAX) {
      const evicted = fails ? this.#leastTroubled(nowMs) : this.#silent(nowMs)
      if (evicted === null) {
        if (this.#unnamed.heardMs === NEVER_MS) this.#unnamed.owner = owner
        else if (this.#unnamed.owner !== owner) this.#unnamed.owner = ''
        return this.#unnamed
      }
      this.#named.splice(this.#named.indexOf(evicted), 1)
      this.allCallers.splice(this.allCallers.indexOf(evicted), 1)
    }
    const newState = new CallerState(name, owner, nowMs)
    newState.heardMs = nowMs
    this.#named.push(newState)
    this.allCallers.push(newState)
    return newState
  }
}

function lowestBy(
  states: readonly CallerState[],
  countOf: (state: CallerState) => number,
): CallerState | null {
  let lowest: CallerState | null = null
  for (const state of states) if (lowest === null || countOf(state) < countOf(lowest)) lowest = state
  return lowest
}

const CAUSES = ['failure', 'limit'] as const

/**
 * A short hash of the workspace (or of the organization, for keys without a workspace). FNV-1a, because it is not a
 * secret.
 */
function ownerOf({ organizationId, workspaceId }: HealthCaller): string {
  const text = workspaceId ?? organizationId
  let hash = 0x811c9dc5
  for (let index = 0; index < text.length; index++)
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193)
  return (hash >>> 0).toString(16).padStart(8, '0')
}

/**
 * Per-caller state of one endpoint: each API key has its own breaker and counts there, so that one key's requests
 * cannot close the endpoint for all others. Bounded: eight keys individually, failing keys first, and all the rest
 * together. Pure. Hot path.
 */
import { Breaker, NEVER } from './breaker.ts'
import { OutcomeWindow, WINDOW_MS } from './failure-windows.ts'
import { type Cause, NAME_CHARS } from './notes.ts'

/** The caller of a request, as health distinguishes callers. */
export interface HealthCaller {
  /** SHA-256 of the API key, lowercase hexadecimal. */
  readonly keyHash: string
  readonly organizationId: string
  readonly workspaceId: string | null
}

/** This many values of a key in this time count in full in the figures of an endpoint. */
const FULL_VALUES = 8
const WEIGHED_MS = 60_000

/** Maximum number of keys tracked by name at one endpoint, and in one note. All other keys count as one caller. */
const NAMED_MAX = 8
/** A key counts as served if its last success is at most this old. */
const SERVED_MS = 2_000
/** A served key also has at least this many successes in 30 s, and this many for each attempt that fails. */
const SERVED_LEAST = 5
const SERVED_RATIO = 4

/** One key at one endpoint, or all unnamed keys together. */
export class CallerState extends Breaker {
  /** The first characters of the hash of its key; empty for all keys that have no name of their own. */
  readonly name: string
  /** A hash of its workspace; empty if there are several, or if it is unknown. */
  owner: string
  /** When it last made a request. */
  heardMs = NEVER
  /** When it last had a success. */
  succeededMs = NEVER
  readonly window: OutcomeWindow
  /** Failures since its own last success, and rate-limit refusals since then. */
  failedInRow = 0
  limitedInRow = 0
  /** Number of values for the figures of the endpoint in this minute, and the number of the minute. */
  #values = 0
  #minute = 0
  /** The number of these since the last success of any caller. */
  #row = 0
  #rowFailed = 0
  #rowLimited = 0

  constructor(name: string, owner: string, nowMs: number) {
    super()
    this.name = name
    this.owner = owner
    this.window = new OutcomeWindow(nowMs)
  }

  /** @param row number of the row of failures to which these belong */
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
    const minute = Math.floor(nowMs / WEIGHED_MS)
    if (minute !== this.#minute) this.#values = 0
    this.#minute = minute
    return Math.min(1, (FULL_VALUES / ++this.#values) ** 2)
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
    if (this.succeededMs <= nowMs - SERVED_MS || this.blockedUntilMs > nowMs) return false
    this.window.advance(nowMs)
    const { ok, failed, limited } = this.window
    if (ok < Math.max(SERVED_LEAST, SERVED_RATIO * (failed + limited))) return false
    // For unnamed keys: some may have failed in this row while others are served.
    return this.inRow(row, cause) < (this.name === '' ? SERVED_LEAST : 1)
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
  readonly #others: CallerState
  /** All callers. */
  readonly all: CallerState[]

  constructor(nowMs: number) {
    this.#others = new CallerState('', '', nowMs)
    this.all = [this.#others]
  }

  /** The callers that have a name here. */
  get named(): readonly CallerState[] {
    return this.#named
  }

  /** The caller with this key, which may be the one for unnamed keys; if it `fails`, it gets a name in any case. */
  of(nowMs: number, caller: HealthCaller | null, fails = false): CallerState {
    if (caller === null) return this.#others
    for (const each of this.#named) if (caller.keyHash.startsWith(each.name)) return each
    return this.#add(nowMs, caller.keyHash.slice(0, NAME_CHARS), ownerOf(caller), fails)
  }

  /** The caller with this name in a note. */
  ofName(nowMs: number, name: string, owner: string, fails = false): CallerState {
    if (name === '') return this.#others
    return this.#named.find(each => each.name === name) ?? this.#add(nowMs, name, owner, fails)
  }

  /** Null if the key has no name here. */
  find({ keyHash }: HealthCaller): CallerState | null {
    for (const each of this.#named) if (keyHash.startsWith(each.name)) return each
    return null
  }

  /**
   * True if no other key is made to wait as this one is, and one of them had a success in the last 30 s or is served.
   */
  isServedBeside(caller: CallerState, nowMs: number, row: number): boolean {
    const isResting = this.all.some(each => each !== caller && each.restUntilMs > nowMs)
    if (!isResting) return this.hasSuccessBeside(caller, nowMs)
    return this.all.some(each => each !== caller && each.isServed(nowMs, row, 'limit'))
  }

  /** True if another key had a success in the last 30 s. */
  hasSuccessBeside(caller: CallerState, nowMs: number): boolean {
    return this.all.some(each => each !== caller && each.succeededMs > nowMs - WINDOW_MS)
  }

  /** True if another key made a request in the last 30 s. */
  hasAskedBeside(caller: CallerState, nowMs: number): boolean {
    return this.all.some(each => each !== caller && each.heardMs > nowMs - WINDOW_MS)
  }

  /**
   * The reason that the endpoint fails for all callers, judged by more than one key; null if it does not. While another
   * key is served, the keys that fail have their own breakers: two keys of one owner may together send requests that
   * make a provider fail.
   */
  verdict(nowMs: number, row: number, countMin: number): Cause | null {
    for (const each of this.all) each.window.advance(nowMs)
    const found = CAUSES.find(cause => this.#fails(nowMs, row, countMin, cause)) ?? null
    return found !== null && this.all.some(each => each.isServed(nowMs, row, found)) ? null : found
  }

  /**
   * The names of the keys that have failed since the last success, separated by spaces, if no other key has failed and
   * another key had a success recently; otherwise empty.
   */
  aloneBesides(nowMs: number, row: number, cause: Cause): string {
    const failing = this.all.filter(each => each.inRow(row, cause) > 0)
    const isEachNamed = failing.every(({ name }) => name !== '')
    const isOtherServed = this.all.some(
      each => !failing.includes(each) && each.succeededMs > nowMs - WINDOW_MS,
    )
    return isEachNamed && isOtherServed ? failing.map(({ name }) => name).join(' ') : ''
  }

  /** True if no other key has failed since the last success. */
  isAlone(caller: CallerState, row: number, cause: Cause): boolean {
    return caller.name !== '' && !this.all.some(each => each !== caller && each.inRow(row, cause) > 0)
  }

  clear(nowMs: number): void {
    for (const each of this.all) each.clear(nowMs)
  }

  #fails(nowMs: number, row: number, countMin: number, cause: Cause): boolean {
    // Failures of a single key prove nothing; the other keys must fail too.
    const fewest = Math.max(1, countMin >> 1)
    const inRow = this.#counts(nowMs, each => each.inRow(row, cause))
    if (inRow.all >= countMin && inRow.withoutWorst >= fewest) return true
    const failing = this.#counts(nowMs, each => (each.verdict(nowMs, countMin) === cause ? 1 : 0))
    if (failing.withoutWorst >= 1) return true
    const kind = cause === 'failure' ? 'failed' : 'limited'
    const failures = this.#counts(nowMs, each => each.window[kind])
    const okCount = this.all.reduce((sum, { window }) => sum + window.ok, 0)
    return (
      failures.all >= countMin &&
      failures.all > okCount &&
      failures.withoutWorst >= Math.max(fewest, okCount + 1)
    )
  }

  /**
   * Sums a count over all callers, and over all but the caller with the highest count. Keys of one workspace count as
   * one caller while another workspace is served, because its owner can create any number of keys.
   */
  #counts(nowMs: number, countOf: (caller: CallerState) => number): { all: number; withoutWorst: number } {
    let [all, worst, worstOwned, worstOwner] = [0, 0, 0, '']
    for (const each of this.all) {
      const count = countOf(each)
      all += count
      worst = Math.max(worst, count)
      if (count === 0 || each.owner === '') continue
      const owned = this.all.reduce(
        (sum, other) => sum + (other.owner === each.owner ? countOf(other) : 0),
        0,
      )
      if (owned > worstOwned) [worstOwned, worstOwner] = [owned, each.owner]
    }
    const servesOthers =
      worstOwned > worst &&
      this.all.some(({ owner, succeededMs }) => owner !== worstOwner && succeededMs > nowMs - WINDOW_MS)
    return { all, withoutWorst: all - (servesOthers ? worstOwned : worst) }
  }

  #silent(nowMs: number): CallerState | null {
    const longest = leastOf(this.#named, ({ heardMs }) => heardMs)
    const isSilent =
      longest !== null && longest.heardMs <= nowMs - WINDOW_MS && longest.blockedUntilMs <= nowMs
    return isSilent ? longest : null
  }

  /**
   * The key without failures that has been silent longest. If all have failures: one that is not blocked, or else a
   * blocked one.
   */
  #leastTroubled(nowMs: number): CallerState | null {
    for (const each of this.#named) each.window.advance(nowMs)
    const unblocked = this.#named.filter(({ blockedUntilMs }) => blockedUntilMs <= nowMs)
    const healthy = unblocked.filter(({ window }) => window.failed + window.limited === 0)
    return (
      leastOf(healthy, ({ heardMs }) => heardMs) ??
      leastOf(unblocked, ({ heardMs }) => heardMs) ??
      leastOf(this.#named, ({ blockedUntilMs }) => blockedUntilMs)
    )
  }

  /**
   * Gives a key a name, replacing one that was silent for 30 s. If there is none, the key becomes one of the unnamed
   * ones, which mostly succeed, unless it fails: then it replaces another key, so that no key shares the failures of a
   * stranger.
   */
  #add(nowMs: number, name: string, owner: string, fails: boolean): CallerState {
    if (this.#named.length >= NAMED_MAX) {
      const evicted = fails ? this.#leastTroubled(nowMs) : this.#silent(nowMs)
      if (evicted === null) {
        if (this.#others.heardMs === NEVER) this.#others.owner = owner
        else if (this.#others.owner !== owner) this.#others.owner = ''
        return this.#others
      }
      this.#named.splice(this.#named.indexOf(evicted), 1)
      this.all.splice(this.all.indexOf(evicted), 1)
    }
    const added = new CallerState(name, owner, nowMs)
    added.heardMs = nowMs
    this.#named.push(added)
    this.all.push(added)
    return added
  }
}

function leastOf(
  states: readonly CallerState[],
  countOf: (state: CallerState) => number,
): CallerState | null {
  let least: CallerState | null = null
  for (const each of states) if (least === null || countOf(each) < countOf(least)) least = each
  return least
}

const CAUSES = ['failure', 'limit'] as const

/**
 * A short hash of the workspace (or of the organization, for keys without a workspace). FNV-1a, because it is not a
 * secret.
 */
function ownerOf({ organizationId, workspaceId }: HealthCaller): string {
  const text = workspaceId ?? organizationId
  let hash = 0x811c9dc5
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193)
  return (hash >>> 0).toString(16).padStart(8, '0')
}

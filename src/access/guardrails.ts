/**
 * Which guardrails hold for a caller, remembered in the form in which the pipeline works with them. Hot path: a known
 * caller, above all one without guardrails, costs one lookup, synchronously. The store is asked once per caller and
 * refresh, however many requests wait; what is the same for many callers is prepared once.
 */
import { LRUCache } from 'lru-cache'
import type { Clock } from '../clock.ts'
import { serviceUnavailable } from '../errors.ts'
import type { Log } from '../log.ts'
import type { Caller } from '../protocol/records.ts'
import type { AppliedGuardrail } from '../storage/guardrails.ts'
import { DEFAULT_WORKSPACE_ID, type Store } from '../storage/store.ts'
import { type Budget, budgetsOf } from './budgets.ts'
import { within } from './keys.ts'

/** Whom guardrails are looked up for. */
export type Guarded = Pick<Caller, 'keyHash' | 'organizationId' | 'workspaceId' | 'memberId'>

export interface GuardrailsSettings<Prepared> {
  readonly store: { readonly guardrails: Pick<Store['guardrails'], 'applying'> }
  readonly clock: Clock
  readonly log?: Pick<Log, 'fault' | 'notice'>
  /** What the pipeline works with; null when the guardrails rule nothing. Called once for the same guardrails. */
  readonly prepare: (applied: readonly AppliedGuardrail[]) => Prepared | null
  /** API keys kept in memory: some hundred bytes each. */
  readonly maxCallers?: number
  /** Prepared combinations of guardrails kept in memory: up to some megabytes each, where patterns are many. */
  readonly maxPrepared?: number
  /** How long a caller is believed without asking again: the longest a change goes unseen if no word of it comes. */
  readonly freshMs?: number
  /** How long after its last confirmation what is known goes on to hold while the store fails. */
  readonly staleMs?: number
  /** How long a request waits for the store. */
  readonly lookupMs?: number
  /** Callers that may be looked up at once; above it they are told to come again. */
  readonly maxLookups?: number
}

const DEFAULTS = {
  maxCallers: 10_000,
  maxPrepared: 200,
  freshMs: 30_000,
  // As for API keys: a store that is away for longer than this needs people anyway.
  staleMs: 600_000,
  lookupMs: 2_000,
  maxLookups: 1_000,
}
type Limits = typeof DEFAULTS

/** While the store fails, a known caller asks it again only this often. */
const RETRY_MS = 1_000

interface Entry<Prepared> {
  readonly organizationId: string
  readonly prepared: Prepared | null
  readonly budgets: readonly Budget[] | null
  /** Monotonic; until then the store is not asked. */
  freshUntilMs: number
  /** Monotonic; until then what is known holds although the store fails. */
  readonly staleUntilMs: number
  /** The store failed when it was last asked: who comes next does not wait for it again. */
  failing: boolean
}

interface Lookup<Prepared> {
  readonly organizationId: string
  readonly result: Promise<Held<Prepared>>
}

/** What an entry tells. */
type Held<Prepared> = Pick<Entry<Prepared>, 'prepared' | 'budgets'>

export class Guardrails<Prepared extends object> {
  readonly #settings: Pick<GuardrailsSettings<Prepared>, 'store' | 'clock' | 'log' | 'prepare'>
  readonly #limits: Limits
  /** By the hash of the API key, which alone decides its organization, workspace and member. */
  readonly #known: LRUCache<string, Entry<Prepared>>
  /** By the revisions of what applies. */
  readonly #prepared: LRUCache<string, Prepared>
  readonly #lookups = new Map<string, Lookup<Prepared>>()
  #storeFails = false

  constructor(settings: GuardrailsSettings<Prepared>) {
    const { store, clock, log, prepare, ...limits } = settings
    this.#settings = { store, clock, prepare, ...(log === undefined ? {} : { log }) }
    this.#limits = { ...DEFAULTS, ...limits }
    this.#known = new LRUCache({ max: this.#limits.maxCallers })
    this.#prepared = new LRUCache({ max: this.#limits.maxPrepared })
  }

  /**
   * What holds for the caller, null: nothing; a promise only when the store has to be asked.
   * Rejects with GatewayError `service_unavailable` when the store fails and nothing is known: such a request must
   * not go on, since a guardrail may forbid it.
   */
  of(caller: Guarded): Prepared | null | Promise<Prepared | null> {
    const entry = this.#known.get(caller.keyHash)
    const nowMs = this.#settings.clock.monotonicMs()
    if (entry !== undefined && nowMs < entry.freshUntilMs) return entry.prepared
    if (entry?.failing === true && nowMs < entry.staleUntilMs) {
      this.#ask(caller).catch(() => undefined)
      return entry.prepared
    }
    return this.#ask(caller).then(held => held.prepared)
  }

  /**
   * The budgets of the caller, null: none; for requests that came by `of`, so that what is known is new enough. Rejects
   * as `of` does, where it was forgotten in between.
   */
  budgets(caller: Guarded): readonly Budget[] | null | Promise<readonly Budget[] | null> {
    const entry = this.#known.get(caller.keyHash)
    if (entry !== undefined) return entry.budgets
    return this.#ask(caller).then(held => held.budgets)
  }

  /** Drops what is remembered of the callers of an organization, after its guardrails or assignments were changed. */
  forget(organizationId: string): void {
    // A list of its own: the cache cannot be walked while entries leave it.
    for (const [keyHash, entry] of [...this.#known.entries()]) {
      if (entry.organizationId === organizationId) this.#known.delete(keyHash)
    }
    for (const [keyHash, lookup] of this.#lookups) {
      if (lookup.organizationId === organizationId) this.#lookups.delete(keyHash)
    }
  }

  /** Has every caller read anew at its next request; what was known holds on only while the store fails. */
  doubtAll(): void {
    for (const entry of this.#known.values()) {
      entry.freshUntilMs = Number.NEGATIVE_INFINITY
      entry.failing = false
    }
    this.#lookups.clear()
  }

  #ask(caller: Guarded): Promise<Held<Prepared>> {
    const lookups = this.#lookups
    const { keyHash, organizationId } = caller
    const running = lookups.get(keyHash)
    if (running !== undefined) return running.result
    // Async, so that a refusal comes as a rejection like every other.
    if (lookups.size >= this.#limits.maxLookups) return (async () => this.#lastKnown(keyHash))()
    // What is read for a caller that was forgotten meanwhile may be the old state, and is not kept.
    const current = (): boolean => lookups.get(keyHash)?.result === result
    const result: Promise<Held<Prepared>> = this.#refresh(caller, current).finally(() => {
      if (current()) lookups.delete(keyHash)
    })
    lookups.set(keyHash, { organizationId, result })
    return result
  }

  async #refresh(caller: Guarded, current: () => boolean): Promise<Held<Prepared>> {
    const { store, clock, log } = this.#settings
    const { lookupMs, freshMs, staleMs } = this.#limits
    const { organizationId, workspaceId, keyHash, memberId } = caller
    const workspace = workspaceId ?? DEFAULT_WORKSPACE_ID
    let applied: readonly AppliedGuardrail[]
    try {
      const asked = store.guardrails.applying(organizationId, workspace, keyHash, memberId)
      applied = await within(clock, lookupMs, asked)
    } catch (error) {
      // Once per outage: the next thousand lines would say the same.
      if (!this.#storeFails) log?.fault('guardrails cannot be looked up', error)
      this.#storeFails = true
      return this.#lastKnown(keyHash, error)
    }
    if (this.#storeFails) {
      this.#storeFails = false
      log?.notice('guardrails can be looked up again')
    }
    const held = { prepared: this.#prepare(applied), budgets: budgetsOf(applied) }
    const nowMs = clock.monotonicMs()
    if (current()) {
      this.#known.set(keyHash, {
        organizationId,
        ...held,
        freshUntilMs: nowMs + freshMs,
        staleUntilMs: nowMs + freshMs + staleMs,
        failing: false,
      })
    }
    return held
  }

  #prepare(applied: readonly AppliedGuardrail[]): Prepared | null {
    if (applied.length === 0) return null
    const name = applied
      .map(({ scope, guardrail }) => `${scope} ${guardrail.id} ${guardrail.revision}`)
      .join()
    const known = this.#prepared.get(name)
    if (known !== undefined) return known
    const prepared = this.#settings.prepare(applied)
    if (prepared !== null) this.#prepared.set(name, prepared)
    return prepared
  }

  #lastKnown(keyHash: string, cause?: unknown): Held<Prepared> {
    const entry = this.#known.get(keyHash)
    const nowMs = this.#settings.clock.monotonicMs()
    if (entry === undefined || nowMs >= entry.staleUntilMs) throw serviceUnavailable(cause)
    entry.freshUntilMs = Math.min(nowMs + RETRY_MS, entry.staleUntilMs)
    entry.failing = true
    return entry
  }
}

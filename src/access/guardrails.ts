/**
 * Which guardrails hold for a caller, remembered in the form in which the pipeline works with them. Hot path: a known
 * caller, above all one without guardrails, costs one lookup, synchronously. The store is asked once per caller and
 * refresh, however many requests wait; what is the same for many callers is prepared once.
 */
import { LRUCache } from 'lru-cache'
import type { Clock } from '../clock.ts'
import { Remembered, type RememberedLimits } from '../invalidation/store-cache.ts'
import { type Budget, budgetsOf } from '../limits/budgets.ts'
import type { Log } from '../log/log.ts'
import type { Caller } from '../protocol/records.ts'
import type { AppliedGuardrail } from '../storage/guardrails.ts'
import { DEFAULT_WORKSPACE_ID, type Store } from '../storage/store.ts'

/** Whom guardrails are looked up for. */
export type Guarded = Pick<Caller, 'keyHash' | 'organizationId' | 'workspaceId' | 'memberId'>

export interface GuardrailsSettings<Prepared> extends Partial<RememberedLimits> {
  readonly store: { readonly guardrails: Pick<Store['guardrails'], 'applying'> }
  readonly clock: Clock
  readonly log?: Pick<Log, 'fault' | 'notice'>
  /** What the pipeline works with; null when the guardrails rule nothing. Called once for the same guardrails. */
  readonly prepare: (applied: readonly AppliedGuardrail[]) => Prepared | null
  /** API keys kept in memory: some hundred bytes each. */
  readonly maxCallers?: number
  /** Prepared combinations of guardrails kept in memory: up to some megabytes each, where patterns are many. */
  readonly maxPrepared?: number
}

const DEFAULTS = { maxCallers: 10_000, maxPrepared: 200 }

/** What is remembered of a caller. */
interface Held<Prepared> {
  readonly prepared: Prepared | null
  readonly budgets: readonly Budget[] | null
}

export class Guardrails<Prepared extends object> {
  readonly #store: GuardrailsSettings<Prepared>['store']
  readonly #prepare: GuardrailsSettings<Prepared>['prepare']
  /** By the hash of the API key, which alone decides its organization, workspace and member. */
  readonly #known: Remembered<readonly AppliedGuardrail[], Held<Prepared>>
  /** By the revisions of what applies. */
  readonly #prepared: LRUCache<string, Prepared>

  constructor(settings: GuardrailsSettings<Prepared>) {
    const { store, prepare, maxCallers, maxPrepared, ...others } = { ...DEFAULTS, ...settings }
    this.#store = store
    this.#prepare = prepare
    this.#known = new Remembered({
      ...others,
      what: 'guardrails',
      maxEntries: maxCallers,
      make: applied => ({ prepared: this.#preparedOf(applied), budgets: budgetsOf(applied) }),
    })
    this.#prepared = new LRUCache({ max: maxPrepared })
  }

  /**
   * What holds for the caller, null: nothing; a promise only when the store has to be asked.
   * Rejects with GatewayError `service_unavailable` when the store fails and nothing is known: such a request must
   * not go on, since a guardrail may forbid it.
   */
  of(caller: Guarded): Prepared | null | Promise<Prepared | null> {
    const held = this.#known.fresh(caller.keyHash)
    return held === undefined ? this.#ask(caller, ({ prepared }) => prepared) : held.prepared
  }

  /**
   * The budgets of the caller, null: none; for requests that came by `of`, so that what is known is new enough. Rejects
   * as `of` does, where it was forgotten in between.
   */
  budgets(caller: Guarded): readonly Budget[] | null | Promise<readonly Budget[] | null> {
    const held = this.#known.last(caller.keyHash)
    return held === undefined ? this.#ask(caller, ({ budgets }) => budgets) : held.budgets
  }

  /** Drops what is remembered of the callers of an organization, after its guardrails or assignments were changed. */
  forget(organizationId: string): void {
    this.#known.forgetAllOf(organizationId)
  }

  /** Has every caller read anew at its next request; what was known holds on only while the store fails. */
  doubtAll(): void {
    this.#known.doubtAll()
  }

  #ask<Part>(caller: Guarded, partOf: (held: Held<Prepared>) => Part): Part | Promise<Part> {
    const { keyHash, organizationId, workspaceId, memberId } = caller
    const workspace = workspaceId ?? DEFAULT_WORKSPACE_ID
    const read = () => this.#store.guardrails.applying(organizationId, workspace, keyHash, memberId)
    const held = this.#known.ask(keyHash, read, organizationId)
    return held instanceof Promise ? held.then(partOf) : partOf(held)
  }

  #preparedOf(applied: readonly AppliedGuardrail[]): Prepared | null {
    if (applied.length === 0) return null
    const name = applied
      .map(({ scope, guardrail }) => `${scope} ${guardrail.id} ${guardrail.revision}`)
      .join()
    const known = this.#prepared.get(name)
    if (known !== undefined) return known
    const prepared = this.#prepare(applied)
    if (prepared !== null) this.#prepared.set(name, prepared)
    return prepared
  }
}

/**
 * The guardrails and budgets that apply to a caller, cached in the form that the pipeline uses. Hot path: a known
 * caller, and above all one without guardrails, costs one synchronous lookup. Concurrent requests of one caller share
 * one read of the store. Callers with the same guardrails share one prepared form.
 */
import { LRUCache } from 'lru-cache'
import type { Clock } from '../base/clock.ts'
import type { Log } from '../base/log/log.ts'
import { whenReady } from '../base/maybe-promise.ts'
import type { Budget, Caller } from '../protocol/records.ts'
import type { AppliedGuardrail } from '../storage/guardrails.ts'
import { StoreCache, type StoreCacheLimits } from '../storage/invalidation/store-cache.ts'
import { DEFAULT_WORKSPACE_ID, type Store } from '../storage/store.ts'

/** The part of a caller that its guardrails depend on. */
type GuardedCaller = Pick<Caller, 'keyHash' | 'organizationId' | 'workspaceId' | 'memberId'>

export interface GuardrailsOptions<Prepared> extends Partial<StoreCacheLimits> {
  readonly store: { readonly guardrails: Pick<Store['guardrails'], 'guardrailsFor'> }
  readonly clock: Clock
  readonly log?: Pick<Log, 'fault' | 'notice'>
  /** Creates the form that the pipeline uses; null if there are no rules. Called once for each set of guardrails. */
  readonly prepare: (applied: readonly AppliedGuardrail[]) => Prepared | null
  /** Maximum of cached API keys, a few hundred bytes each. */
  readonly maxCallers?: number
  /** Maximum of cached combinations of guardrails, up to a few megabytes each if they have many patterns. */
  readonly maxPrepared?: number
}

const DEFAULTS = { maxCallers: 10_000, maxPrepared: 200 }

interface CallerGuardrails<Prepared> {
  readonly prepared: Prepared | null
  readonly budgets: readonly Budget[] | null
}

export class Guardrails<Prepared extends object> {
  readonly #store: GuardrailsOptions<Prepared>['store']
  readonly #prepare: GuardrailsOptions<Prepared>['prepare']
  /** Keyed by the hash of the API key, which decides organization, workspace and member. */
  readonly #callers: StoreCache<readonly AppliedGuardrail[], CallerGuardrails<Prepared>>
  /** Keyed by the revisions of the guardrails that apply. */
  readonly #prepared: LRUCache<string, Prepared>

  constructor(options: GuardrailsOptions<Prepared>) {
    const { store, prepare, maxCallers, maxPrepared, ...others } = { ...DEFAULTS, ...options }
    this.#store = store
    this.#prepare = prepare
    this.#callers = new StoreCache({
      ...others,
      plural: 'guardrails',
      maxEntries: maxCallers,
      make: applied => ({ prepared: this.#prepareOnce(applied), budgets: budgetsOf(applied) }),
    })
    this.#prepared = new LRUCache({ max: maxPrepared })
  }

  /**
   * Finds the guardrails of the caller; null if there are none. A promise only if the store has to be read. Rejects
   * with GatewayError `store_unavailable` if the store fails and nothing is cached, because a guardrail may forbid
   * the request.
   */
  of(caller: GuardedCaller): Prepared | null | Promise<Prepared | null> {
    const entry = this.#callers.get(caller.keyHash)
    return entry === undefined ? this.#load(caller, ({ prepared }) => prepared) : entry.prepared
  }

  /**
   * Finds the budgets of the caller; null if there are none. Call it after `of`, which keeps the cached record fresh.
   * Rejects like `of` if the caller was invalidated in between.
   */
  budgets(caller: GuardedCaller): readonly Budget[] | null | Promise<readonly Budget[] | null> {
    const entry = this.#callers.peek(caller.keyHash)
    return entry === undefined ? this.#load(caller, ({ budgets }) => budgets) : entry.budgets
  }

  /** Monotonic milliseconds until which `of` and `budgets` need not read the store; 0 if they must. */
  freshUntilMs({ keyHash }: GuardedCaller): number {
    return this.#callers.freshUntilMs(keyHash)
  }

  /** Call it after guardrails or assignments of an organization have changed. */
  invalidate(organizationId: string): void {
    this.#callers.invalidateOwner(organizationId)
  }

  /** Forces a new read of every caller at its next request; cached guardrails are used only while the store fails. */
  invalidateAll(): void {
    this.#callers.invalidateAll()
  }

  #load<Part>(
    caller: GuardedCaller,
    partOf: (entry: CallerGuardrails<Prepared>) => Part,
  ): Part | Promise<Part> {
    const { keyHash, organizationId, workspaceId, memberId } = caller
    const workspace = workspaceId ?? DEFAULT_WORKSPACE_ID
    const read = () => this.#store.guardrails.guardrailsFor(organizationId, workspace, keyHash, memberId)
    return whenReady(this.#callers.load(keyHash, read, organizationId), partOf)
  }

  #prepareOnce(applied: readonly AppliedGuardrail[]): Prepared | null {
    if (applied.length === 0) return null
    const name = applied
      .map(({ scope, guardrail }) => `${scope} ${guardrail.id} ${guardrail.revision}`)
      .join()
    const cachedForm = this.#prepared.get(name)
    if (cachedForm !== undefined) return cachedForm
    const form = this.#prepare(applied)
    if (form !== null) this.#prepared.set(name, form)
    return form
  }
}

/** Picks the budgets among the guardrails of a caller, smallest first; null if there are none. */
export function budgetsOf(applied: readonly AppliedGuardrail[]): readonly Budget[] | null {
  const budgets = applied.flatMap(({ scope, guardrail }): Budget[] => {
    const { id, name, workspaceId, limit, resetInterval, includeByokInBudgets } = guardrail
    if (limit === null || resetInterval === null) return []
    return [
      {
        guardrailId: id,
        name,
        scope,
        workspaceId,
        amount: limit,
        reset: resetInterval,
        includeByok: includeByokInBudgets,
      },
    ]
  })
  return budgets.length === 0 ? null : budgets.sort((first, second) => first.amount - second.amount)
}

/**
 * Moves the rollouts of routes: begins those of the configuration, adds up what both arms did, and takes a candidate a
 * step on or back. All instances add to the same sums; of several moves at once only the first is made. Main thread.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import type { Log } from '../../base/log/log.ts'
import { toUsd } from '../../base/money.ts'
import {
  ALL_PERCENT,
  firstStep,
  isFinished,
  isShadowSpent,
  NO_SHADOWS,
  nextStep,
  ROLLED_BACK,
  type RolloutProgress,
} from '../../protocol/rollout.ts'
import type { Route, RouteRollout } from '../../protocol/route.ts'
import type { ArmSums, NewSums, RolloutRecord } from '../../storage/rollouts.ts'
import type { Store } from '../../storage/store.ts'
import type { UsageRecord } from '../../storage/usage.ts'
import type { AlertEvent } from '../alerts/alert-body.ts'
import { decide } from '../rollouts/decision.ts'
import { additionsOf, NO_SUMS } from '../rollouts/sums.ts'

interface RolloutKeeperDeps {
  readonly store: Pick<Store, 'rollouts'>
  /** The routes of the configuration. */
  readonly routes: readonly Pick<Route, 'name' | 'rollout'>[]
  readonly raise: (event: AlertEvent) => void
  /** Called when a rollout has moved, or its budget was spent or raised: threads and other instances read it again. */
  readonly onMove: () => void
  readonly clock: Clock
  readonly log: Pick<Log, 'fault' | 'notice'>
}

const BUDGET_SPENT = 'the budget of its shadows is spent'
export interface MeasuredRollout extends RolloutProgress {
  /** The part of the budget of its shadows that is spent or reserved; null: it has no shadows. */
  readonly shadowUsed: number | null
}

/** Interval at which sums are stored and rollouts are checked. */
const CHECK_INTERVAL_MS = 1_000

export class RolloutKeeper {
  readonly #deps: RolloutKeeperDeps
  #rollouts: ReadonlyMap<string, RouteRollout>
  /** Sums that are not in the Store yet, keyed by route, candidate, step and arm. */
  #waitingSums = new Map<string, NewSums>()
  /** The rollouts of the Store, as last read. */
  #records: readonly RolloutRecord[] = []
  #timer: Timer | null = null
  #running: Promise<void> = Promise.resolve()
  /** Spent budgets that were logged. */
  readonly #loggedBudgets = new Set<string>()
  #isFailing = false
  #closed = false

  constructor(deps: RolloutKeeperDeps) {
    this.#deps = deps
    this.#rollouts = rolloutsOf(deps.routes)
    if (this.isWanted) this.#schedule()
  }

  /** False: no route has a rollout, and nothing is done. */
  get isWanted(): boolean {
    return this.#rollouts.size > 0
  }

  /** The rollouts of the configuration, as last read from the Store. */
  get progress(): readonly RolloutRecord[] {
    return this.#records.filter(record => this.#isConfigured(record))
  }

  /** The rollouts of the configuration, as metrics show them. */
  get measured(): readonly MeasuredRollout[] {
    return this.progress.map(record => {
      const { shadow = null } = this.#rollouts.get(record.route) ?? {}
      return { ...record, shadowUsed: shadow === null ? null : record.shadowSpent / shadow.budget }
    })
  }

  /** Takes the routes of another configuration. */
  reconfigure(routes: RolloutKeeperDeps['routes']): void {
    this.#rollouts = rolloutsOf(routes)
    if (this.isWanted && this.#timer === null) this.#schedule()
  }

  /** Takes usage records of this instance. */
  receive(records: readonly UsageRecord[]): void {
    for (const record of records) {
      const { rollout, requestedModel: route } = record
      if (rollout === undefined || route === undefined || !this.#rollouts.has(route)) continue
      const { candidate, step } = rollout
      for (const { arm, add } of additionsOf(record, rollout)) {
        const key = JSON.stringify([route, candidate, step, arm])
        const sums = add(this.#waitingSums.get(key)?.sums ?? NO_SUMS)
        this.#waitingSums.set(key, { route, candidate, step, arm, sums })
      }
    }
  }

  /** Stores the new sums, and changes the shares that are due. Never rejects: failed writes are repeated. */
  check(): Promise<void> {
    this.#running = this.#running
      .then(() => this.#check())
      .then(
        () => {
          this.#isFailing = false
        },
        (error: unknown) => {
          if (!this.#isFailing)
            this.#deps.log.fault('rollouts', 'cannot store the rollouts; their shares do not change', error)
          this.#isFailing = true
        },
      )
    return this.#running
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    await this.#running
  }

  #schedule(): void {
    this.#timer = this.#deps.clock.after(CHECK_INTERVAL_MS, () => {
      void this.check().then(() => {
        this.#timer = null
        if (!this.#closed && this.isWanted) this.#schedule()
      })
    })
  }

  async #check(): Promise<void> {
    await this.#readRecords()
    await this.#begin()
    await this.#flush()
    for (const record of this.progress) if (!isFinished(record)) await this.#judge(record)
  }

  #isConfigured({ route, candidate }: RolloutProgress): boolean {
    return this.#rollouts.get(route)?.candidate.model === candidate
  }

  /** Begins rollouts whose candidate differs from the one in the Store, so that a finished rollout is not repeated. */
  async #begin(): Promise<void> {
    const { store, clock, log } = this.#deps
    for (const [route, { candidate, steps }] of this.#rollouts) {
      const before = this.#records.find(record => record.route === route) ?? null
      if (before?.candidate === candidate.model) continue
      const first = firstStep(steps)
      const record: RolloutRecord = {
        route,
        candidate: candidate.model,
        ...first,
        reason: 'has begun',
        ...NO_SHADOWS,
        revision: (before?.revision ?? 0) + 1,
        sinceMs: clock.nowMs(),
      }
      if (!(await store.rollouts.begin(record, before))) continue
      log.notice('rollouts', 'a rollout has begun', {
        route,
        candidate: record.candidate,
        share: first.share,
      })
      await this.#moved()
    }
  }

  /** Adds the sums to the sums of all instances; drops sums of an earlier candidate or a finished rollout. */
  async #flush(): Promise<void> {
    const waitingSums = this.#waitingSums
    if (waitingSums.size === 0) return
    this.#waitingSums = new Map()
    const runningRollouts = this.#records.filter(record => !isFinished(record))
    const current = [...waitingSums.values()].filter(({ route, candidate }) =>
      runningRollouts.some(record => record.route === route && record.candidate === candidate),
    )
    try {
      await this.#deps.store.rollouts.add(current)
    } catch (error) {
      for (const [key, { sums, ...place }] of waitingSums) {
        const newer = this.#waitingSums.get(key)
        this.#waitingSums.set(key, { ...place, sums: newer === undefined ? sums : addSums(sums, newer.sums) })
      }
      throw error
    }
  }

  async #judge(record: RolloutRecord): Promise<void> {
    const { store, clock } = this.#deps
    const rollout = this.#rollouts.get(record.route)
    if (rollout === undefined) return
    const { guard, holdMs, shadow, steps } = rollout
    const decision = decide(await store.rollouts.sums(record), {
      guard,
      isShadowed: shadow !== null,
      comparedSteps: steps.filter(step => step < ALL_PERCENT).length,
      isTimeOver: clock.nowMs() >= record.sinceMs + holdMs,
    })
    const isSpent = shadow !== null && isShadowSpent(record, shadow)
    const reason = isSpent ? `${decision.reason}; ${BUDGET_SPENT}` : decision.reason
    if (decision.move === 'back') await this.#move(record, { step: record.step, ...ROLLED_BACK }, reason)
    else if (decision.move === 'on' && record.state === 'running')
      await this.#move(record, nextStep(steps, record), reason)
    else if (reason !== record.reason && record.state === 'running')
      await store.rollouts.explain(record, reason)
  }

  async #move(
    before: RolloutRecord,
    to: Pick<RolloutProgress, 'state' | 'step' | 'share'>,
    reason: string,
  ): Promise<void> {
    const { store, clock } = this.#deps
    if (await store.rollouts.move(before, { ...to, reason, sinceMs: clock.nowMs() })) await this.#moved()
  }

  async #moved(): Promise<void> {
    this.#deps.onMove()
    await this.#readRecords()
  }

  /** Makes the threads read the record again: they begin no shadows once its budget is used up. Logs that once. */
  #reportBudget(record: RolloutRecord): void {
    this.#deps.onMove()
    const { route, candidate, shadowSpent, shadowRefused } = record
    const key = JSON.stringify([route, candidate, shadowRefused])
    if (shadowRefused === 0 || this.#loggedBudgets.has(key)) return
    this.#loggedBudgets.add(key)
    this.#deps.log.notice('rollouts', BUDGET_SPENT, { route, candidate, spentUsd: toUsd(shadowSpent) })
  }

  /**
   * Reads the rollouts, logs the moves since, and raises the alerts of those that have ended. Every instance does, also
   * for the moves of operators and of others: an alert with the same id is sent once.
   */
  async #readRecords(): Promise<void> {
    const before = this.#records
    this.#records = await this.#deps.store.rollouts.list()
    for (const record of this.#records) {
      const { route, candidate, state, share, reason, revision } = record
      const last = before.find(earlier => earlier.route === route && earlier.candidate === candidate)
      if (last === undefined) continue
      if (last.shadowRefused !== record.shadowRefused) this.#reportBudget(record)
      if (last.revision === revision) continue
      this.#deps.log.notice('rollouts', 'a rollout has moved', { route, candidate, state, share, reason })
      if (last.state === state) continue
      if (state !== 'promoted' && state !== 'rolled_back') continue
      this.#deps.raise({
        type: `rollout.${state}`,
        object: { kind: 'route', id: route, name: route, workspaceId: null },
        window: `${candidate} ${revision}`,
        data: { candidate, share_before: last.share, reason },
      })
    }
  }
}

function rolloutsOf(routes: RolloutKeeperDeps['routes']): ReadonlyMap<string, RouteRollout> {
  return new Map(routes.flatMap(({ name, rollout }) => (rollout === null ? [] : [[name, rollout]])))
}

function addSums(first: ArmSums, second: ArmSums): ArmSums {
  const figure = (name: 'firstTokenMs' | 'tokensPerSecond' | 'cost') => ({
    count: first[name].count + second[name].count,
    sum: first[name].sum + second[name].sum,
    squares: first[name].squares + second[name].squares,
  })
  return {
    requests: first.requests + second.requests,
    errors: first.errors + second.errors,
    firstTokenMs: figure('firstTokenMs'),
    tokensPerSecond: figure('tokensPerSecond'),
    cost: figure('cost'),
    judged: first.judged + second.judged,
    unaccepted: first.unaccepted + second.unaccepted,
  }
}

/** Rollouts of routes, which all instances share: the position of each, and the sums of its arms. Types only. */
import type { PicoUsd } from '../base/money.ts'
import type { RolloutArm, RolloutProgress } from '../protocol/rollout.ts'

export interface RolloutRecord extends RolloutProgress {
  /** Grows by 1 with each change. */
  readonly revision: number
  /** Unix milliseconds at which this step began. */
  readonly sinceMs: number
}

/** Sums of the logarithms of a figure. */
interface FigureSums {
  readonly count: number
  readonly sum: number
  readonly squares: number
}

/** The results of one arm at one step. */
export interface ArmSums {
  readonly requests: number
  readonly errors: number
  readonly firstTokenMs: FigureSums
  readonly tokensPerSecond: FigureSums
  /** USD of a request. */
  readonly cost: FigureSums
  /** Answers that a judge has seen, and the number that it did not accept. */
  readonly judged: number
  readonly unaccepted: number
}

export type StepSums = Readonly<Record<RolloutArm, ArmSums>>

/** The results of one arm at one step that an instance adds. */
export interface NewSums extends Pick<RolloutProgress, 'route' | 'candidate' | 'step'> {
  readonly arm: RolloutArm
  readonly sums: ArmSums
}

/** A rollout, as its shadows name it. */
export type ShadowedRollout = Pick<RolloutProgress, 'route' | 'candidate'>

export interface RolloutStore {
  /** By route. */
  list(): Promise<readonly RolloutRecord[]>
  find(route: string): Promise<RolloutRecord | null>
  /**
   * Begins a rollout. Replaces the rollout `before` with its sums; null: there is none. False if another instance was
   * faster.
   */
  begin(record: RolloutRecord, before: RolloutRecord | null): Promise<boolean>
  /** Moves a rollout, if it still has the revision of `before`. False if another instance was faster. */
  move(
    before: Pick<RolloutRecord, 'route' | 'revision'>,
    target: Pick<RolloutRecord, 'state' | 'step' | 'share' | 'reason' | 'sinceMs'>,
  ): Promise<boolean>
  /** Replaces the reason. The revision stays unchanged. */
  explain(before: Pick<RolloutRecord, 'route' | 'revision'>, reason: string): Promise<void>
  /** Adds the sums in one transaction. */
  add(sums: readonly NewSums[]): Promise<void>
  /**
   * Reserves an amount of the budget of a rollout's shadows. False: the rest of the budget is too small. With `isLast`, no
   * running shadow can return a reserved amount; the budget is then marked as spent if at most a quarter of it is left.
   */
  reserveShadow(rollout: ShadowedRollout, amount: PicoUsd, budget: PicoUsd, isLast: boolean): Promise<boolean>
  /** Replaces a reserved amount by the real cost. `shadows`: the number of shadows sent for it, 0 or 1. */
  settleShadow(rollout: ShadowedRollout, reserved: PicoUsd, cost: PicoUsd, shadows: number): Promise<void>
  /** The sums of all arms at a step. */
  sums(rollout: Pick<RolloutRecord, 'route' | 'candidate' | 'step'>): Promise<StepSums>
}

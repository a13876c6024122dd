/** Rollouts of routes, which all instances share: the position of each, and the sums of its arms. Types only. */
import type { PicoUsd } from '../base/money.ts'
import type { RolloutArm, RolloutProgress } from '../protocol/rollout.ts'

export interface RolloutRecord extends RolloutProgress {
  /** Counts its changes. */
  readonly revision: number
  /** Unix milliseconds: since when it has been at this step. */
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
  /** Answers that a judge has seen, and those of them that it did not accept. */
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
   * Begins a rollout, instead of `before` and without its sums; null: there is none. False if another instance was
   * faster.
   */
  begin(record: RolloutRecord, before: RolloutRecord | null): Promise<boolean>
  /** Moves a rollout, if it still has the revision of `before`. False if another instance was faster. */
  move(
    before: Pick<RolloutRecord, 'route' | 'revision'>,
    to: Pick<RolloutRecord, 'state' | 'step' | 'share' | 'reason' | 'sinceMs'>,
  ): Promise<boolean>
  /** Replaces the reason, which is no move. */
  explain(before: Pick<RolloutRecord, 'route' | 'revision'>, reason: string): Promise<void>
  /** Adds sums, all or none. */
  add(sums: readonly NewSums[]): Promise<void>
  /**
   * Takes the amount from the budget of a rollout's shadows before it is spent. False: there is not enough left; if
   * `isLast`, nothing is under way that would give anything back, so a budget that is used up but for a quarter at most is
   * noted as spent.
   */
  reserveShadow(of: ShadowedRollout, amount: PicoUsd, budget: PicoUsd, isLast: boolean): Promise<boolean>
  /** Replaces a reserved amount by the real cost. `shadows`: how many were sent for it, 0 or 1. */
  settleShadow(of: ShadowedRollout, reserved: PicoUsd, cost: PicoUsd, shadows: number): Promise<void>
  /** The sums of all arms at a step. */
  sums(of: Pick<RolloutRecord, 'route' | 'candidate' | 'step'>): Promise<StepSums>
}

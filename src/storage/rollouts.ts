/** Rollouts of routes, which all instances share: the position of each, and the sums of its arms. Types only. */
import type { RolloutPart, RolloutProgress } from '../protocol/rollout.ts'

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
}

export interface StepSums {
  readonly base: ArmSums
  readonly candidate: ArmSums
}

/** The results of one arm at one step that an instance adds. */
export interface NewSums extends RolloutPart {
  readonly route: string
  readonly sums: ArmSums
}

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
    to: Omit<RolloutProgress, 'route' | 'candidate'> & Pick<RolloutRecord, 'sinceMs'>,
  ): Promise<boolean>
  /** Replaces the reason, which is no move. */
  explain(before: Pick<RolloutRecord, 'route' | 'revision'>, reason: string): Promise<void>
  /** Adds sums, all or none. */
  add(sums: readonly NewSums[]): Promise<void>
  /** The sums of both arms at a step. */
  sums(of: Pick<RolloutRecord, 'route' | 'candidate' | 'step'>): Promise<StepSums>
}

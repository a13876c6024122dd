/** Rollouts: a route's candidate gets a growing share of its requests. Types and tables. Pure. */

/** How much worse than the base the candidate may be. A figure without a guard is not compared. */
export interface RolloutGuard {
  /** Points of the share of requests that the model did not answer. */
  readonly errors: number
  /** Milliseconds until the first content. */
  readonly firstTokenMs?: number
  /** Relative: 0.1 is a tenth slower. */
  readonly tokensPerSecond?: number
  /** Relative, by request. */
  readonly cost?: number
}

/** `running`: moves by itself. `holding`: an operator holds it at its share; it may still be rolled back. */
export const ROLLOUT_STATES = ['running', 'holding', 'promoted', 'rolled_back'] as const
export type RolloutState = (typeof ROLLOUT_STATES)[number]

/** One arm of a rollout at one step: the part that a request takes in it. */
export interface RolloutPart {
  readonly candidate: string
  /** From 0. */
  readonly step: number
  readonly arm: 'base' | 'candidate'
}

/** The part in a rollout of a request that is over. */
export interface EndedPart extends RolloutPart {
  /** True if the model of this arm did not answer, even if a fallback did. */
  readonly failed: boolean
}

export interface RolloutProgress {
  readonly route: string
  /** The id of a model. */
  readonly candidate: string
  readonly state: RolloutState
  /** From 0. */
  readonly step: number
  /** Per cent of the route's requests that go to the candidate. */
  readonly share: number
  /** In words: why it is where it is. */
  readonly reason: string
}

/** The whole of a route. */
export const ALL_PERCENT = 100
/** Per cent of each step. */
export const DEFAULT_STEPS: readonly number[] = [1, 10, 50, ALL_PERCENT]
export const DEFAULT_GUARD_ERRORS = 0.02

/** True if nothing moves it any more. */
export function isFinished({ state }: Pick<RolloutProgress, 'state'>): boolean {
  return state === 'promoted' || state === 'rolled_back'
}

type Position = Pick<RolloutProgress, 'state' | 'step' | 'share'>

/** The position after the next step with a greater share; at 100 % the candidate is promoted. */
export function nextStep(steps: readonly number[], { share }: Pick<RolloutProgress, 'share'>): Position {
  const step = steps.findIndex(each => each > share)
  const next = steps[step] ?? ALL_PERCENT
  return next >= ALL_PERCENT
    ? { state: 'promoted', step: steps.length - 1, share: ALL_PERCENT }
    : { state: 'running', step, share: next }
}

export const ROLLED_BACK = { state: 'rolled_back', share: 0 } as const

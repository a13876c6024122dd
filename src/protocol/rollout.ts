/** Rollouts: a route's candidate gets a growing share of its requests. Types and tables. Pure. */
import type { PicoUsd } from '../base/money.ts'

/** How much worse than the base the candidate may be. A figure without a guard is not compared. */
export interface RolloutGuard {
  /** Difference of the shares of requests that the model did not answer: 0.02 is two percentage points. */
  readonly errors: number
  /** Milliseconds until the first content. */
  readonly firstTokenMs?: number
  /** Relative: 0.1 is a tenth slower. */
  readonly tokensPerSecond?: number
  /** Relative cost of a request: 0.1 is a tenth more. */
  readonly cost?: number
  /** Difference of the shares of answers that a judge does not accept. */
  readonly judged?: number
}

/** Shadows: when requests of the base are over, they are also sent to the candidate. No client sees the answers. */
export interface ShadowTerms {
  /** Per cent of the route's requests. */
  readonly share: number
  /** Maximum cost of the shadows and their judge together, over the whole rollout. */
  readonly budget: PicoUsd
}

/** `running`: moves by itself. `holding`: an operator holds it at its share; it may still be rolled back. */
export const ROLLOUT_STATES = ['running', 'holding', 'promoted', 'rolled_back'] as const
export type RolloutState = (typeof ROLLOUT_STATES)[number]

/**
 * The arms of a rollout: the requests of callers that went to the base and to the candidate, and the requests of the base
 * that were shadowed, with their shadows.
 */
export const ROLLOUT_ARMS = ['base', 'candidate', 'shadowed', 'shadow'] as const
export type RolloutArm = (typeof ROLLOUT_ARMS)[number]

/** A step of a rollout. */
interface RolloutStep {
  readonly candidate: string
  /** From 0. */
  readonly step: number
}

/** The part that a request takes in a rollout. */
export interface RolloutPart extends RolloutStep {
  readonly arm: 'base' | 'candidate'
  /** The request is also sent to the candidate when it is over, for its figures or also for its answer; null: it is not. */
  readonly shadow: 'figures' | 'answers' | null
}

/** The part in a rollout of a request that is over. */
interface EndedPart extends RolloutStep {
  readonly arm: 'base' | 'candidate'
  /** True if the model of this arm did not answer, even if a fallback did. */
  readonly failed: boolean
}

/** The figures of a request that count in a rollout. */
export interface RolloutFigures {
  readonly latencyMs: number
  readonly generationMs: number | null
  readonly outputTokens: number
  readonly cost: PicoUsd
}

/** The part of a shadow that is over, with the figures of the request that it repeats. */
interface EndedShadow extends RolloutStep {
  readonly arm: 'shadow'
  readonly failed: boolean
  readonly shadowed: RolloutFigures & { readonly failed: boolean }
}

/** The verdict of a judge about both answers to a shadowed request. */
interface JudgedShadow extends RolloutStep {
  readonly arm: 'judged'
  readonly accepted: ShadowVerdict
}

/** For each answer: true if it is acceptable. */
export interface ShadowVerdict {
  readonly shadowed: boolean
  readonly shadow: boolean
}

export type EndedRollout = EndedPart | EndedShadow | JudgedShadow

export interface RolloutProgress {
  readonly route: string
  /** The id of a model. */
  readonly candidate: string
  readonly state: RolloutState
  /** From 0. */
  readonly step: number
  /** Per cent of the route's requests that go to the candidate. */
  readonly share: number
  /** The reason for the current state, as text. */
  readonly reason: string
  /** Shadows that were sent. */
  readonly shadows: number
  /** Cost of the shadows and their judge so far, and the maximum cost of the running ones. */
  readonly shadowSpent: PicoUsd
  /** The budget that was too small for another shadow; 0: there was always enough. */
  readonly shadowRefused: PicoUsd
}

/** All requests of a route, in per cent. */
export const ALL_PERCENT = 100
/** The share at each step, in per cent. */
export const DEFAULT_STEPS: readonly number[] = [1, 10, 50, ALL_PERCENT]
export const DEFAULT_GUARD_ERRORS = 0.02

/** True if the rollout never moves again. */
export function isFinished({ state }: Pick<RolloutProgress, 'state'>): boolean {
  return state === 'promoted' || state === 'rolled_back'
}

/** The shadows of a rollout that begins. */
export const NO_SHADOWS = { shadows: 0, shadowSpent: 0, shadowRefused: 0 } as const

/** True if the budget of its shadows is spent, so that no more are sent. */
export function isShadowSpent(
  { shadowRefused }: Pick<RolloutProgress, 'shadowRefused'>,
  { budget }: ShadowTerms,
): boolean {
  return shadowRefused >= budget
}

type Position = Pick<RolloutProgress, 'state' | 'step' | 'share'>

/** The position after the next step with a greater share; at 100 % the candidate is promoted. */
export function nextStep(steps: readonly number[], { share }: Pick<RolloutProgress, 'share'>): Position {
  const step = steps.findIndex(stepShare => stepShare > share)
  const next = steps[step] ?? ALL_PERCENT
  return next >= ALL_PERCENT
    ? { state: 'promoted', step: steps.length - 1, share: ALL_PERCENT }
    : { state: 'running', step, share: next }
}

/** The position at which a rollout begins. Its first step may have the share 0, for shadows alone. */
export function firstStep(steps: readonly number[]): Position {
  return nextStep(steps, { share: -1 })
}

export const ROLLED_BACK = { state: 'rolled_back', share: 0 } as const

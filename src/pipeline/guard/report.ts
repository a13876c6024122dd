/**
 * Guardrail reports: pipeline stages, the error for a blocked request or reply, and the metric. They name patterns and
 * labels, never the text that matched. Pure, except for the counter.
 */
import { GatewayError, RETRY_AFTER_SECONDS } from '../../base/errors.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { GuardrailAction } from '../../base/metrics/table.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import type { Finding } from '../../features/guardrails/detector.ts'
import { strictest } from '../../features/guardrails/rules.ts'
import { BUILTIN_LABELS, INJECTION_SLUG } from '../../protocol/management/guardrails.ts'
import type { PipelineStage } from '../../protocol/response.ts'
import type { GuardRules, RuleOwner, RuleSource } from './compiled-rules.ts'
import type { WindowResult } from './evaluate.ts'

type Side = 'request' | 'reply'
/** A pattern that matched, without its position in the text. */
export type RuleMatch = Pick<Finding, 'rule' | 'action' | 'pattern' | 'detector'>

const PAST_TENSE = {
  block: 'blocked',
  redact: 'redacted',
  mask: 'masked',
  flag: 'flagged',
} as const satisfies Record<Finding['action'], GuardrailAction>
const ENGINES = ['regex']

/** Adds the findings to the matches: one match per rule and pattern. */
export function noteMatches(matches: Map<string, RuleMatch>, findings: readonly Finding[]): void {
  for (const { rule, action, pattern, detector } of findings) {
    matches.set(`${rule} ${pattern}`, { rule, action, pattern, detector })
  }
}

/** Builds one stage per guardrail, kind of rule and action, in the order of the rules. */
export function stagesOf(
  rules: GuardRules,
  matches: readonly RuleMatch[],
  side: Side,
): readonly PipelineStage[] {
  const groups = new Map<string, { source: RuleSource; action: Finding['action']; patterns: Set<string> }>()
  for (const { rule, action, pattern, detector } of matches.toSorted((a, b) => a.rule - b.rule)) {
    const source = rules.sources[rule]
    if (source === undefined) continue
    const name = `${source.guardrailId} ${source.scope} ${stageName(detector)} ${action}`
    const group = groups.get(name)
    if (group === undefined) groups.set(name, { source, action, patterns: new Set([pattern]) })
    else group.patterns.add(pattern)
  }
  return [...groups.values()].map(({ source, action, patterns }) => ({
    type: 'guardrail',
    name: stageName(source.detector),
    guardrail_id: source.guardrailId,
    guardrail_scope: source.scope,
    summary: `${capital(PAST_TENSE[action])} ${side === 'request' ? 'in the request' : 'in the reply'}: ${[...patterns].join(', ')}`,
    data: { action: PAST_TENSE[action], detected: true, engines: ENGINES, patterns: [...patterns] },
  }))
}

/** Counts each rule that matched, once. */
export function countMatches(
  metrics: Pick<Metrics, 'guardrailDecisions'>,
  rules: GuardRules,
  matches: readonly RuleMatch[],
): void {
  const countedRules = new Set<number>()
  for (const { rule, action, detector } of matches) {
    if (countedRules.has(rule)) continue
    countedRules.add(rule)
    metrics.guardrailDecisions.inc({
      guardrail: rules.sources[rule]?.detector ?? detector,
      action: PAST_TENSE[action],
    })
  }
}

/** The error of a blocked request, or of a blocked reply if the client has seen nothing of it. */
export function blockedError(matches: readonly RuleMatch[], side: Side): GatewayError {
  return new GatewayError('permission_denied', blockMessage(matches, side), { metadata: metadataOf(matches) })
}

/** The error that ends a blocked reply which the client has begun to read. */
function cutOffError(matches: readonly RuleMatch[]): GatewayError {
  return new GatewayError('content_policy_violation', blockMessage(matches, 'reply'), {
    metadata: metadataOf(matches),
  })
}

/** The error if the rules could not be evaluated and a guardrail fails closed. */
export function uncheckedError(owner: RuleOwner, side: Side, cause: unknown): GatewayError {
  return new GatewayError(
    'guardrail_unavailable',
    `Guardrail ${owner.name} could not be evaluated on the ${side} in time. Try again.`,
    { metadata: { guardrail_id: owner.guardrailId }, retryAfterSeconds: RETRY_AFTER_SECONDS.moment, cause },
  )
}

/** The stages if the rules could not be evaluated and every guardrail fails open. */
export function uncheckedStages(rules: GuardRules, side: Side): readonly PipelineStage[] {
  return rules.owners.map(({ guardrailId, scope }) => ({
    type: 'guardrail',
    name: 'content-filter',
    guardrail_id: guardrailId,
    guardrail_scope: scope,
    summary: `The ${side} passed although it could not be evaluated in time`,
    data: { action: 'flagged', detected: false, engines: ENGINES, patterns: [] },
  }))
}

/**
 * Collects the results of the windows of one reply, decides if the reply may continue, and reports. One per attempt.
 */
export class ReplyReport {
  readonly #rules: GuardRules
  readonly #metrics: Pick<Metrics, 'guardrailDecisions'>
  /** The first guardrail that fails closed. */
  readonly #refusingOwner: RuleOwner | undefined
  readonly #matches = new Map<string, RuleMatch>()
  #isUnchecked = false

  constructor(rules: GuardRules, metrics: Pick<Metrics, 'guardrailDecisions'>) {
    this.#rules = rules
    this.#metrics = metrics
    this.#refusingOwner = rules.owners.find(({ failMode }) => failMode === 'closed')
  }

  /** True if the reply ends with this result. */
  isFinal({ findings, failure }: WindowResult): boolean {
    return strictest(findings) === 'block' || (failure !== null && this.#refusingOwner !== undefined)
  }

  /** Adds a result; returns the error that ends the reply, or null. `committed`: the client has seen some of it. */
  add({ findings, failure }: WindowResult, committed: boolean): GatewayError | null {
    if (failure !== null) {
      this.#isUnchecked = true
      if (this.#refusingOwner !== undefined)
        return uncheckedError(this.#refusingOwner, 'reply', failure.cause)
    }
    noteMatches(this.#matches, findings)
    if (strictest(findings) !== 'block') return null
    const matches = [...this.#matches.values()]
    return committed ? cutOffError(matches) : blockedError(matches, 'reply')
  }

  /** Adds the pipeline stages to the exchange and counts the decisions. */
  publish({ pipeline }: Pick<Exchange, 'pipeline'>): void {
    const matches = [...this.#matches.values()]
    pipeline.push(...stagesOf(this.#rules, matches, 'reply'))
    countMatches(this.#metrics, this.#rules, matches)
    if (!this.#isUnchecked) return
    const isRefused = this.#refusingOwner !== undefined
    if (!isRefused) pipeline.push(...uncheckedStages(this.#rules, 'reply'))
    const action = isRefused ? 'refused_unchecked' : 'passed_unchecked'
    this.#metrics.guardrailDecisions.inc({ guardrail: 'all', action })
  }
}

function stageName(detector: RuleMatch['detector']): string {
  return detector === INJECTION_SLUG ? 'regex_pi_detection' : 'content-filter'
}

/** Names the patterns that block; the others that matched are in the pipeline. */
function blockMessage(matches: readonly RuleMatch[], side: Side): string {
  const subject = side === 'request' ? 'Request' : 'Response'
  const blockingMatches = matches.filter(({ action }) => action === 'block')
  const injection = blockingMatches.find(({ detector }) => detector === INJECTION_SLUG)
  if (injection !== undefined) return `${subject} blocked: prompt injection patterns detected`
  return `${subject} blocked by content filter: ${[...new Set(blockingMatches.map(shownPattern))].join(', ')}`
}

function metadataOf(matches: readonly RuleMatch[]): { readonly patterns: readonly string[] } {
  const blockingMatches = matches.filter(({ action }) => action === 'block')
  return { patterns: [...new Set(blockingMatches.map(({ pattern }) => pattern))] }
}

function shownPattern({ detector, pattern }: RuleMatch): string {
  if (detector !== 'custom') return BUILTIN_LABELS[detector]
  return pattern === detector ? '[BLOCKED]' : pattern
}

function capital(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1)
}

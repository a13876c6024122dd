/**
 * What guardrails did, as the interface tells it: stages of the pipeline, the error of a refused request or reply, and
 * the metric. Names and labels of patterns only, never what they matched. Pure but for the counter.
 */
import { GatewayError } from '../../errors.ts'
import type { Finding } from '../../guardrails/rules.ts'
import type { GuardrailAction, Metrics } from '../../metrics/metrics.ts'
import { BUILTIN_LABELS, INJECTION_SLUG } from '../../protocol/guardrails.ts'
import type { PipelineStage } from '../../protocol/response.ts'
import type { GuardRules, RuleOwner, RuleSource } from './rules.ts'

export type Side = 'request' | 'reply'
/** A rule that matched, without where. */
export type Match = Pick<Finding, 'rule' | 'action' | 'pattern' | 'detector'>

const DONE = { block: 'blocked', redact: 'redacted', flag: 'flagged' } as const satisfies Record<
  Finding['action'],
  GuardrailAction
>
const ENGINES = ['regex']
/** One guardrail that cannot be evaluated may be so for long; a client that comes at once makes it no better. */
const RETRY_AFTER_SECONDS = 1

/** One stage for each guardrail, kind of rule and action, in the order of the rules. */
export function stagesOf(rules: GuardRules, matches: readonly Match[], side: Side): readonly PipelineStage[] {
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
    summary: `${capital(DONE[action])} ${side === 'request' ? 'in the request' : 'in the reply'}: ${[...patterns].join(', ')}`,
    data: { action: DONE[action], detected: true, engines: ENGINES, patterns: [...patterns] },
  }))
}

export function countMatches(
  metrics: Pick<Metrics, 'guardrailDecisions'>,
  rules: GuardRules,
  matches: readonly Match[],
): void {
  const counted = new Set<number>()
  for (const { rule, action, detector } of matches) {
    if (counted.has(rule)) continue
    counted.add(rule)
    metrics.guardrailDecisions.inc({
      guardrail: rules.sources[rule]?.detector ?? detector,
      action: DONE[action],
    })
  }
}

/** The refusal of a request, or of a reply of which the client has seen nothing. */
export function blocked(matches: readonly Match[], side: Side): GatewayError {
  return new GatewayError('permission_denied', blockMessage(matches, side), { metadata: metadataOf(matches) })
}

/** The end of a reply that the client has begun to read. */
export function cutOff(matches: readonly Match[]): GatewayError {
  return new GatewayError('content_policy_violation', blockMessage(matches, 'reply'), {
    metadata: metadataOf(matches),
  })
}

/** The guardrails could not be evaluated, and one of them refuses then. */
export function unchecked(owner: RuleOwner, side: Side, cause: unknown): GatewayError {
  return new GatewayError(
    'guardrail_unavailable',
    `Guardrail ${owner.name} could not be evaluated on the ${side} in time. Try again.`,
    { metadata: { guardrail_id: owner.guardrailId }, retryAfterSeconds: RETRY_AFTER_SECONDS, cause },
  )
}

/** What goes on although nothing could be looked for. */
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

function stageName(detector: Match['detector']): string {
  return detector === INJECTION_SLUG ? 'regex_pi_detection' : 'content-filter'
}

/** Names those patterns that block; the others that matched are in the pipeline. */
function blockMessage(matches: readonly Match[], side: Side): string {
  const what = side === 'request' ? 'Request' : 'Response'
  const blocking = matches.filter(({ action }) => action === 'block')
  const first = blocking.find(({ detector }) => detector === INJECTION_SLUG)
  if (first !== undefined) return `${what} blocked: prompt injection patterns detected`
  return `${what} blocked by content filter: ${[...new Set(blocking.map(shownPattern))].join(', ')}`
}

function metadataOf(matches: readonly Match[]): { readonly patterns: readonly string[] } {
  const blocking = matches.filter(({ action }) => action === 'block')
  return { patterns: [...new Set(blocking.map(({ pattern }) => pattern))] }
}

function shownPattern({ detector, pattern }: Match): string {
  if (detector !== 'custom') return BUILTIN_LABELS[detector]
  return pattern === detector ? '[BLOCKED]' : pattern
}

function capital(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1)
}

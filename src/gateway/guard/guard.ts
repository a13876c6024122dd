/**
 * Guardrails at work on a request, before it is routed: its texts are looked at, and it is refused, rewritten or only
 * reported on; what holds for its candidates and reply is handed on. Hot path: a caller without them costs a lookup.
 */
import type { Guardrails } from '../../access/guardrails.ts'
import { GatewayError } from '../../errors.ts'
import { mergeGuardrails } from '../../guardrails/policy.ts'
import { type Finding, redact, strictest } from '../../guardrails/rules.ts'
import type { Metrics } from '../../metrics/metrics.ts'
import type { Caller } from '../../protocol/records.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { AppliedGuardrail } from '../../storage/guardrails.ts'
import type { Exchange } from '../exchange.ts'
import { type Restrictions, restrictionsOf } from '../routing/restrictions.ts'
import { evaluateTexts, type GuardTasks, type TextsSeen } from './evaluate.ts'
import type { ReplyGuarding } from './reply.ts'
import { blocked, countMatches, type Match, stagesOf, unchecked, uncheckedStages } from './report.ts'
import { type GuardRules, inputRulesOf, type OutputGuardRules, outputRulesOf } from './rules.ts'
import { type RequestText, textsOf, unseenTexts, withTexts } from './texts.ts'

/** All guardrails of a caller together, ready for use. */
export interface Guardrail {
  readonly restrictions: Restrictions | null
  readonly input: GuardRules | null
  readonly output: OutputGuardRules | null
}

/** What holds for the rest of an exchange. */
export interface Guarding {
  readonly restrictions: Restrictions | null
  /** Null: nothing to look for in what is sent. */
  readonly look: Look | null
  /** Null: replies may be passed on unseen. */
  readonly reply: ReplyGuarding | null
}

/**
 * Looks at what the prompt holds that it did not hold before, as at the request itself; a promise only where something
 * has to be waited for. Throws as Guard.request does.
 */
export type Look = (exchange: Exchange, before: ResponsesRequest) => Promise<void> | null

export interface Guard {
  /**
   * Looks at the request; null where no guardrail holds; a promise only where something has to be waited for.
   * @throws (or rejects with) GatewayError `permission_denied`, or `guardrail_unavailable` where nobody can look at it.
   */
  request(exchange: Exchange): Guarding | null | Promise<Guarding | null>
  /** What holds for the candidates of the caller's requests, whatever they say; null: nothing. */
  restrictions(caller: Caller): Restrictions | null | Promise<Restrictions | null>
}

export interface GuardTools {
  readonly guardrails: Pick<Guardrails<Guardrail>, 'of'>
  readonly tasks: GuardTasks
  readonly metrics: Pick<Metrics, 'guardrailDecisions'>
}

/** For `Guardrails`: null where they rule nothing. */
export function prepareGuardrail(applied: readonly AppliedGuardrail[]): Guardrail | null {
  const policy = mergeGuardrails(applied)
  const restrictions = restrictionsOf(policy.restrictions)
  const input = inputRulesOf(policy, applied)
  const output = outputRulesOf(policy, applied)
  return restrictions === null && input === null && output === null ? null : { restrictions, input, output }
}

export function createGuard(tools: GuardTools): Guard {
  return {
    request(exchange) {
      const known = tools.guardrails.of(exchange.caller)
      if (known === null) return null
      if (known instanceof Promise) {
        return known.then(guardrail => (guardrail === null ? null : guardRequest(tools, guardrail, exchange)))
      }
      return guardRequest(tools, known, exchange)
    },
    restrictions(caller) {
      const known = tools.guardrails.of(caller)
      if (known instanceof Promise) return known.then(guardrail => guardrail?.restrictions ?? null)
      return known?.restrictions ?? null
    },
  }
}

/** For exchanges of the gateway itself. */
export const NO_GUARD: Guard = { request: () => null, restrictions: () => null }

function guardRequest(
  tools: GuardTools,
  { restrictions, input, output }: Guardrail,
  exchange: Exchange,
): Guarding | Promise<Guarding> {
  const { tasks, metrics } = tools
  if (restrictions !== null && !restrictions.admitsRegion(exchange.dataRegion)) {
    metrics.guardrailDecisions.inc({ guardrail: 'restriction', action: 'blocked' })
    throw new GatewayError('permission_denied', 'A guardrail of this API key forbids requests by this host')
  }
  const guarding: Guarding = {
    restrictions,
    look:
      input === null
        ? null
        : (looked, before) => guardTexts(tools, input, looked, unseenTexts(looked.prompt, before)),
    reply: output === null ? null : { rules: output, tasks, metrics },
  }
  const looked = input === null ? null : guardTexts(tools, input, exchange, textsOf(exchange.prompt))
  return looked === null ? guarding : looked.then(() => guarding)
}

/** `texts` are those of the prompt in their places; empty ones stay empty. A promise only where the pool is asked. */
function guardTexts(
  tools: GuardTools,
  rules: GuardRules,
  exchange: Exchange,
  texts: readonly RequestText[],
): Promise<void> | null {
  const seen = evaluateTexts(tools.tasks, rules, texts, exchange.signal)
  if (seen instanceof Promise) return seen.then(later => decide(tools, rules, exchange, later))
  decide(tools, rules, exchange, seen)
  return null
}

function decide(
  tools: GuardTools,
  rules: GuardRules,
  exchange: Exchange,
  { findings, failure }: TextsSeen,
): void {
  if (failure !== null) passUnseen(tools, rules, exchange, failure.cause)
  const matches = matchesOf(findings)
  if (matches.length === 0) return
  exchange.pipeline.push(...stagesOf(rules, matches, 'request'))
  countMatches(tools.metrics, rules, matches)
  if (strictest(matches) === 'block') throw blocked(matches, 'request')
  const rewritten = textsOf(exchange.prompt).map(({ text }, at) => redact(text, findings[at] ?? []))
  exchange.prompt = withTexts(exchange.prompt, rewritten)
}

/** Not everything could be looked for: whether the request goes on is for its guardrails to say. */
function passUnseen({ metrics }: GuardTools, rules: GuardRules, exchange: Exchange, cause: unknown): void {
  exchange.signal.throwIfAborted()
  const refusing = rules.owners.find(({ failMode }) => failMode === 'closed')
  const action = refusing === undefined ? 'passed_unchecked' : 'refused_unchecked'
  metrics.guardrailDecisions.inc({ guardrail: 'all', action })
  if (refusing !== undefined) throw unchecked(refusing, 'request', cause)
  exchange.pipeline.push(...uncheckedStages(rules, 'request'))
}

function matchesOf(findings: readonly (readonly Finding[])[]): readonly Match[] {
  const matches = new Map<string, Match>()
  for (const { rule, action, pattern, detector } of findings.flat()) {
    matches.set(`${rule} ${pattern}`, { rule, action, pattern, detector })
  }
  return [...matches.values()]
}

/**
 * Guardrails of a caller, applied to one exchange: the door of this room. A request is checked before it is routed, its
 * candidates are restricted, and its reply is scanned while it streams. Serve threads. Hot path: a caller without
 * guardrails costs one lookup.
 */
import type { Guardrails } from '../../access/guardrails.ts'
import { GatewayError } from '../../errors.ts'
import { mergeGuardrails } from '../../guardrails/policy.ts'
import type { Metrics } from '../../metrics/metrics.ts'
import type { Caller } from '../../protocol/records.ts'
import { whenReady } from '../../ready.ts'
import type { AppliedGuardrail } from '../../storage/guardrails.ts'
import type { Exchange } from '../exchange.ts'
import { type Restrictions, restrictionsOf } from '../routing/restrictions.ts'
import type { GuardTasks } from './evaluate.ts'
import type { ReplyGuarding } from './reply.ts'
import { type InputGuard, RequestGuard } from './request.ts'
import { type GuardRules, inputRulesOf, type OutputGuardRules, outputRulesOf } from './rules.ts'

export { type GuardedAttempt, OutputGuard, type ReplyGuarding } from './reply.ts'
export type { InputGuard } from './request.ts'

/** All guardrails of one caller, merged and compiled. */
export interface Guardrail {
  readonly restrictions: Restrictions | null
  readonly input: GuardRules | null
  readonly output: OutputGuardRules | null
}

/** What holds for the rest of an exchange. */
export interface Guarding {
  /** Null: every candidate is allowed. */
  readonly restrictions: Restrictions | null
  /** Null: no rule looks at input. */
  readonly input: InputGuard | null
  /** Null: no rule looks at output, so replies need no scan. */
  readonly reply: ReplyGuarding | null
}

export interface Guard {
  /**
   * Checks the request; null if no guardrail applies. Returns a promise only if something has to be awaited.
   * @throws (or rejects with) GatewayError `permission_denied`, or `guardrail_unavailable` if it cannot be checked.
   */
  request(exchange: Exchange): Guarding | null | Promise<Guarding | null>
  /** The restrictions on every request of the caller; null: none. */
  restrictions(caller: Caller): Restrictions | null | Promise<Restrictions | null>
}

export interface GuardDeps {
  readonly guardrails: Pick<Guardrails<Guardrail>, 'of'>
  readonly tasks: GuardTasks
  readonly metrics: Pick<Metrics, 'guardrailDecisions'>
}

/** Merges and compiles the guardrails that apply to a caller; null if they rule nothing. */
export function prepareGuardrail(applied: readonly AppliedGuardrail[]): Guardrail | null {
  const policy = mergeGuardrails(applied)
  const restrictions = restrictionsOf(policy.restrictions)
  const input = inputRulesOf(policy, applied)
  const output = outputRulesOf(policy, applied)
  return restrictions === null && input === null && output === null ? null : { restrictions, input, output }
}

export function createGuard(deps: GuardDeps): Guard {
  return {
    request(exchange) {
      const known = deps.guardrails.of(exchange.caller)
      // The usual case makes no closure.
      if (known === null) return null
      return whenReady(known, guardrail =>
        guardrail === null ? null : guardRequest(deps, guardrail, exchange),
      )
    },
    restrictions(caller) {
      return whenReady(deps.guardrails.of(caller), guardrail => guardrail?.restrictions ?? null)
    },
  }
}

/** For exchanges of the gateway itself. */
export const NO_GUARD: Guard = { request: () => null, restrictions: () => null }

function guardRequest(
  { tasks, metrics }: GuardDeps,
  { restrictions, input, output }: Guardrail,
  exchange: Exchange,
): Guarding | Promise<Guarding> {
  if (restrictions !== null && !restrictions.allowsRegion(exchange.dataRegion)) {
    metrics.guardrailDecisions.inc({ guardrail: 'restriction', action: 'blocked' })
    throw new GatewayError(
      'permission_denied',
      'A guardrail on this API key does not allow this regional host',
    )
  }
  const reply = output === null ? null : { rules: output, tasks, metrics }
  if (input === null) return { restrictions, input: null, reply }
  const guard = new RequestGuard(input, tasks, metrics)
  return whenReady(guard.wholePrompt(exchange), () => ({ restrictions, input: guard, reply }))
}

/** Checks a text against one guardrail, as a request or a reply would be, for those who write its rules. */
import { GatewayError } from '../../errors.ts'
import { mergeGuardrails } from '../../guardrails/policy.ts'
import { type Action, type Finding, redact, strictest } from '../../guardrails/rules.ts'
import type { RequestSignal } from '../../signal.ts'
import type { GuardrailRecord } from '../../storage/guardrails.ts'
import { evaluateTexts, type GuardTasks } from './evaluate.ts'
import { inputRulesOf, outputRulesOf } from './rules.ts'

export interface TextToCheck {
  readonly text: string
  /** Rules for requests, or for replies. */
  readonly side: 'input' | 'output'
}

export interface CheckedText {
  /** The strictest; null: nothing was found. */
  readonly action: Action | null
  /** The text with all that is to be redacted replaced. */
  readonly redacted: string
  readonly findings: readonly Finding[]
}

/** @throws (rejects with) GatewayError `guardrail_unavailable` if the rules cannot be evaluated now */
export type CheckText = (
  guardrail: GuardrailRecord,
  text: TextToCheck,
  signal: RequestSignal,
) => Promise<CheckedText>

export function createCheckText(tasks: GuardTasks): CheckText {
  return async (guardrail, { text, side }, signal) => {
    const applied = [{ scope: 'workspace', guardrail }] as const
    const policy = mergeGuardrails(applied)
    const rules =
      side === 'input' ? inputRulesOf(policy, applied) : (outputRulesOf(policy, applied)?.rules ?? null)
    if (rules === null) return { action: null, redacted: text, findings: [] }
    // As a user writes it, and as a model does.
    const who = side === 'input' ? 'user' : 'other'
    const { findings, failure } = await evaluateTexts(tasks, rules, [{ text, who }], signal)
    if (failure !== null) {
      throw new GatewayError('guardrail_unavailable', 'The rules could not be evaluated now: try again', {
        cause: failure.cause,
      })
    }
    const found = findings[0] ?? []
    return { action: strictest(found), redacted: redact(text, found), findings: found }
  }
}

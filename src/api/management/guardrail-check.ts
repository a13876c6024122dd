/** POST /guardrails/{id}/check: tests a text against the rules of a guardrail. Nothing is stored, counted or logged. */

import { checkGuardrailCheck } from '../../protocol/management/guardrails.ts'
import type { Handler } from '../operation.ts'
import { findNamedGuardrail } from './guardrails.ts'
import type { ManagementParts } from './parts.ts'

/** Enough for the longest text with every non-ASCII character escaped. */
export const GUARDRAIL_CHECK_BODY_MAX_BYTES = 256 * 1024
/** Maximum findings in an answer; more would add nothing useful. */
const FINDINGS_MAX = 1_000

export function checkGuardrailText({ store, checkText }: ManagementParts): Handler {
  return async (request, reply) => {
    const { text, side = 'input' } = checkGuardrailCheck(request.body)
    const guardrail = await findNamedGuardrail(store, request)
    const { action, redacted, findings } = await checkText(guardrail, { text, side }, request.context.signal)
    reply.json(200, {
      data: {
        action,
        redacted,
        findings: findings.slice(0, FINDINGS_MAX).map(found => ({
          detector: found.detector,
          pattern: found.pattern,
          action: found.action,
          start: found.start,
          end: found.end,
        })),
      },
    })
  }
}

/** The check of the patterns that users write: whether guardrails can run them, in time linear in the text. */
import { setImmediate as turn } from 'node:timers/promises'
import { GatewayError } from '../errors.ts'
import type { GuardrailUpdate } from '../protocol/guardrails.ts'

/**
 * Why a pattern cannot be run, in words that follow the name of its field; null when it can. `listed` counts what the
 * patterns before it in its list stand for, and is added to.
 */
export type PatternProblem = (pattern: string, listed: { positions: number }) => string | null

/** @throws GatewayError `invalid_request` that names the first pattern of the body that cannot be run. */
export async function checkPatterns(patternProblem: PatternProblem, body: GuardrailUpdate): Promise<void> {
  for (const [path, filters] of [
    ['content_filters', body.content_filters],
    ['output.content_filters', body.output?.content_filters],
  ] as const) {
    const listed = { positions: 0 }
    for (const [at, { pattern }] of (filters ?? []).entries()) {
      const problem = patternProblem(pattern, listed)
      if (problem !== null) {
        throw new GatewayError('invalid_request', `${path}[${at}].pattern: ${problem}`, {
          metadata: { code: 'invalid_regex_pattern' },
        })
      }
      // Some take tens of milliseconds, and there may be two hundred: the streams of this thread must not wait for all.
      await turn()
    }
  }
}

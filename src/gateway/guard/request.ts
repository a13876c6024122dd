/**
 * Guardrails on what is sent: texts are evaluated, and then blocked, redacted or only reported. The same for the
 * request as it came and for texts that plugins add later. Hot path of guarded callers.
 */
import { type Author, type Finding, redact, strictest } from '../../guardrails/rules.ts'
import { type RequestText, textsOf, unseenTexts, withTexts } from '../../guardrails/texts/request-texts.ts'
import type { Metrics } from '../../metrics/metrics.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { whenReady } from '../../ready.ts'
import type { Exchange } from '../exchange.ts'
import { evaluateTexts, type GuardTasks, type TextsResult } from './evaluate.ts'
import {
  blockedError,
  countMatches,
  type Match,
  noteMatches,
  stagesOf,
  uncheckedError,
  uncheckedStages,
} from './report.ts'
import type { GuardRules } from './rules.ts'

/** Checks what plugins add to an exchange. All methods return a promise only if something has to be awaited. */
export interface InputGuard {
  /**
   * Checks the texts of `exchange.prompt` that `before` did not have. Rewrites the prompt; adds findings to
   * `exchange.pipeline`. Throws or rejects as `Guard.request` does.
   */
  prompt(exchange: Exchange, before: ResponsesRequest): void | Promise<void>
  /**
   * Checks one text outside the prompt and returns it redacted; adds findings to `exchange.pipeline`. `who` wrote it:
   * `other` unless given, as for a system message. Throws or rejects as `Guard.request` does.
   */
  text(exchange: Exchange, text: string, who?: Author): string | Promise<string>
}

/** The findings of each text, in the order of the texts. */
type TextFindings = readonly (readonly Finding[])[]

export class RequestGuard implements InputGuard {
  readonly #rules: GuardRules
  readonly #tasks: GuardTasks
  readonly #metrics: Pick<Metrics, 'guardrailDecisions'>

  constructor(rules: GuardRules, tasks: GuardTasks, metrics: Pick<Metrics, 'guardrailDecisions'>) {
    this.#rules = rules
    this.#tasks = tasks
    this.#metrics = metrics
  }

  /** As `prompt`, for a request that nothing has checked yet. */
  wholePrompt(exchange: Exchange): void | Promise<void> {
    return this.#checkPrompt(exchange, textsOf(exchange.prompt))
  }

  prompt(exchange: Exchange, before: ResponsesRequest): void | Promise<void> {
    return this.#checkPrompt(exchange, unseenTexts(exchange.prompt, before))
  }

  text(exchange: Exchange, text: string, who: Author = 'other'): string | Promise<string> {
    if (text === '') return text
    return whenReady(this.#check(exchange, [{ text, who }]), ([findings = []]) => redact(text, findings))
  }

  /** `texts` are those of the prompt, in their order; what needs no check is empty. */
  #checkPrompt(exchange: Exchange, texts: readonly RequestText[]): void | Promise<void> {
    return whenReady(this.#check(exchange, texts), findings => {
      if (!findings.some(each => each.some(({ action }) => action === 'redact'))) return
      const redacted = textsOf(exchange.prompt).map(({ text }, at) => redact(text, findings[at] ?? []))
      exchange.prompt = withTexts(exchange.prompt, redacted)
    })
  }

  #check(exchange: Exchange, texts: readonly RequestText[]): TextFindings | Promise<TextFindings> {
    const evaluating = evaluateTexts(this.#tasks, this.#rules, texts, exchange.signal)
    return whenReady(evaluating, result => this.#decide(exchange, result))
  }

  /** Reports the findings and returns them. @throws GatewayError if one blocks, or if nothing could be checked */
  #decide(exchange: Exchange, { findings, failure }: TextsResult): TextFindings {
    if (failure !== null) this.#passUnchecked(exchange, failure.cause)
    const noted = new Map<string, Match>()
    for (const each of findings) noteMatches(noted, each)
    if (noted.size === 0) return findings
    const matches = [...noted.values()]
    exchange.pipeline.push(...stagesOf(this.#rules, matches, 'request'))
    countMatches(this.#metrics, this.#rules, matches)
    if (strictest(matches) === 'block') throw blockedError(matches, 'request')
    return findings
  }

  /** Not everything could be evaluated: the request goes on only if every guardrail fails open. */
  #passUnchecked(exchange: Exchange, cause: unknown): void {
    exchange.signal.throwIfAborted()
    const refusing = this.#rules.owners.find(({ failMode }) => failMode === 'closed')
    const action = refusing === undefined ? 'passed_unchecked' : 'refused_unchecked'
    this.#metrics.guardrailDecisions.inc({ guardrail: 'all', action })
    if (refusing !== undefined) throw uncheckedError(refusing, 'request', cause)
    exchange.pipeline.push(...uncheckedStages(this.#rules, 'request'))
  }
}

/**
 * A caller's guardrails, applied to one exchange: checks the request, restricts its candidates, and scans its reply.
 * Serve threads. Hot path: a caller without guardrails costs one lookup.
 */

import { GatewayError } from '../../base/errors.ts'
import { whenReady } from '../../base/maybe-promise.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { RequestSignal } from '../../base/signal.ts'
import type { Guardrails } from '../../callers/guardrails.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import { Masks } from '../../exchange/masks.ts'
import type { PolicyLookup } from '../../exchange/plugin.ts'
import type { Action, Author, Finding } from '../../features/guardrails/detector.ts'
import { mergeGuardrails } from '../../features/guardrails/policy.ts'
import { redact, strictest } from '../../features/guardrails/rules.ts'
import {
  type RequestText,
  textsOf,
  unseenTexts,
  withTexts,
} from '../../features/guardrails/texts/request-texts.ts'
import { PATIENT_WAIT_MS } from '../../features/tasks/pool/pool.ts'
import type { GuardrailRecord } from '../../protocol/management/guardrails.ts'
import type { Provider } from '../../protocol/provider.ts'
import type { Caller } from '../../protocol/records.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Catalog } from '../../providers/catalog.ts'
import type { AppliedGuardrail } from '../../storage/guardrails.ts'
import { hostPhrase, type Restriction, type Restrictions, restrictionsOf } from '../routing/restrictions.ts'
import { type GuardRules, inputRulesOf, type OutputGuardRules, outputRulesOf } from './compiled-rules.ts'
import { evaluateTexts, type GuardTasks, type TextsResult } from './evaluate.ts'
import { Masking, type MaskingDeps } from './masking.ts'
import type { ReplyGuarding } from './reply.ts'
import {
  blockedError,
  countMatches,
  noteMatches,
  type RuleMatch,
  stagesOf,
  uncheckedError,
  uncheckedStages,
} from './report.ts'

/** All guardrails of one caller, merged and compiled. */
export interface Guardrail {
  /** Names its rule sets, each with its revision: two policies with the same name are the same. */
  readonly revision: string
  readonly restrictions: Restrictions | null
  readonly input: GuardRules | null
  readonly output: OutputGuardRules | null
}

/** The guardrails for the rest of an exchange. */
export interface Guarding {
  /** See Guardrail. */
  readonly revision: string
  /** Null: every candidate is allowed. */
  readonly restrictions: Restrictions | null
  /** Null: no rule looks at input. */
  readonly input: InputGuard | null
  /** Null: no rule looks at output, so replies need no scan. */
  readonly reply: ReplyGuarding | null
}

export interface Guard {
  /**
   * Checks the request; null if no guardrail applies. Returns a promise only if it has to wait.
   * @throws (or rejects with) GatewayError `permission_denied`, `guardrail_unavailable` if it cannot be checked, or
   * `service_unavailable` if the guardrails cannot be read.
   */
  request(exchange: Exchange): Guarding | null | Promise<Guarding | null>
  /**
   * Like `request`, for a request that was checked before its provider got it; only its reply remains to be checked.
   */
  storedReply(exchange: Exchange): Guarding | null | Promise<Guarding | null>
  /** The restrictions on every request of the caller; null if there are none. */
  restrictions(caller: Caller): Restrictions | null | Promise<Restrictions | null>
}

interface GuardDeps {
  readonly guardrails: Pick<Guardrails<Guardrail>, 'of'>
  readonly tasks: GuardTasks
  readonly metrics: Pick<Metrics, 'guardrailDecisions'>
  /** Absent: placeholders are given for one request only. */
  readonly masking?: MaskingDeps
}

/** Merges and compiles the guardrails that apply to a caller; null if they contain no rule. */
export function prepareGuardrail(applied: readonly AppliedGuardrail[]): Guardrail | null {
  const policy = mergeGuardrails(applied)
  const restrictions = restrictionsOf(policy.restrictions)
  const input = inputRulesOf(policy, applied)
  const output = outputRulesOf(policy, applied)
  if (restrictions === null && input === null && output === null) return null
  const revision = applied
    .map(({ scope, guardrail }) => `${scope} ${guardrail.id} ${guardrail.revision}`)
    .join()
  return { revision, restrictions, input, output }
}

export function createGuard(deps: GuardDeps): Guard {
  return {
    request(exchange) {
      const guardrailOrPromise = deps.guardrails.of(exchange.caller)
      // The usual case creates no closure.
      if (guardrailOrPromise === null) return null
      return whenReady(guardrailOrPromise, guardrail =>
        guardrail === null ? null : guardRequest(deps, guardrail, exchange),
      )
    },
    storedReply(exchange) {
      return whenReady(deps.guardrails.of(exchange.caller), guardrail =>
        guardrail === null ? null : guardReply(deps, guardrail, exchange),
      )
    },
    restrictions(caller) {
      return whenReady(deps.guardrails.of(caller), guardrail => guardrail?.restrictions ?? null)
    },
  }
}

/** The guard for exchanges of the gateway itself. */
export const NO_GUARD: Guard = { request: () => null, storedReply: () => null, restrictions: () => null }

function guardRequest(
  deps: GuardDeps,
  guardrail: Guardrail,
  exchange: Exchange,
): Guarding | Promise<Guarding> {
  const { metrics } = deps
  const { restrictions } = guardrail
  if (restrictions !== null && !restrictions.allowsRegion(exchange.dataRegion)) {
    metrics.guardrailDecisions.inc({ guardrail: 'restriction', action: 'blocked' })
    throw new GatewayError(
      'permission_denied',
      `A guardrail on this API key does not allow ${hostPhrase(exchange.dataRegion)}: use a host that its allowed_data_regions allow`,
    )
  }
  const guarding = guardReply(deps, guardrail, exchange)
  const { input } = guarding
  return input === null ? guarding : whenReady(input.wholePrompt(exchange), () => guarding)
}

function guardReply(
  { tasks, metrics, masking }: GuardDeps,
  { revision, restrictions, input, output }: Guardrail,
  exchange: Exchange,
): Guarding & { readonly input: RequestGuard | null } {
  const callerTasks = onBehalfOf(exchange.caller, tasks)
  return {
    revision,
    restrictions,
    input:
      input === null
        ? null
        : new RequestGuard(
            input,
            callerTasks,
            metrics,
            new Masking(
              masking ?? null,
              output === null ? null : { rules: output.rules, tasks: callerTasks },
            ),
          ),
    reply: output === null ? null : { rules: output, tasks: callerTasks, metrics },
  }
}

/** The task pool for the texts of one key: keys take turns, and a full pool slows down their callers. */
function onBehalfOf({ keyHash }: Caller, tasks: GuardTasks): GuardTasks {
  return {
    run: (name, input, options) =>
      tasks.run(name, input, { waitMs: PATIENT_WAIT_MS, key: keyHash, ...options }),
  }
}

interface HelperPolicyDeps {
  readonly guard: Pick<Guard, 'restrictions'>
  readonly catalog: Pick<Catalog, 'model'>
  /** Null: OCR is not configured. */
  readonly ocrProvider: Provider | null
}

export function createPolicyAgainst({ guard, catalog, ocrProvider }: HelperPolicyDeps): PolicyLookup {
  return async (caller, helper) => {
    const restrictions = await guard.restrictions(caller)
    if (restrictions === null) return null
    if (helper === 'ocr') return ocrProvider === null ? null : restrictions.providerExcludedBy(ocrProvider)
    return modelExcludedBy(restrictions, catalog, helper)
  }
}

/**
 * Null if the service's own keys may be used at one of the model's endpoints, or if it has none; otherwise the first
 * restriction.
 */
function modelExcludedBy(
  restrictions: Restrictions,
  catalog: Pick<Catalog, 'model'>,
  { model: id, obeysLists }: { readonly model: string; readonly obeysLists?: true },
): Restriction | null {
  let first: Restriction | null = null
  for (const endpoint of catalog.model(id)?.endpoints ?? []) {
    const candidate = { endpoint, credential: null }
    const restriction =
      obeysLists === true ? restrictions.excludedBy(candidate) : restrictions.helperExcludedBy(candidate)
    if (restriction === null) return null
    first ??= restriction
  }
  return first
}

/** Checks what plugins add to an exchange. All methods return a promise only if they have to wait. */
export interface InputGuard {
  /**
   * Checks the texts of `exchange.prompt` that `before` did not have. Rewrites the prompt; adds findings to
   * `exchange.pipeline`. Throws or rejects as `Guard.request` does.
   */
  prompt(exchange: Exchange, before: ResponsesRequest): void | Promise<void>
  /**
   * Checks one text outside the prompt and returns it redacted; adds findings to `exchange.pipeline`. `author`:
   * `other` by default, as for a system message. Throws or rejects like `Guard.request`.
   */
  text(exchange: Exchange, text: string, author?: Author): string | Promise<string>
}

/** The findings of each text, in the order of the texts. */
type TextFindings = readonly (readonly Finding[])[]

class RequestGuard implements InputGuard {
  readonly #rules: GuardRules
  readonly #tasks: GuardTasks
  readonly #metrics: Pick<Metrics, 'guardrailDecisions'>
  readonly #masking: Masking

  constructor(
    rules: GuardRules,
    tasks: GuardTasks,
    metrics: Pick<Metrics, 'guardrailDecisions'>,
    masking: Masking,
  ) {
    this.#rules = rules
    this.#tasks = tasks
    this.#metrics = metrics
    this.#masking = masking
  }

  /** Like `prompt`, for a request that has not been checked yet. */
  wholePrompt(exchange: Exchange): void | Promise<void> {
    return this.#checkPrompt(exchange, textsOf(exchange.prompt), true)
  }

  prompt(exchange: Exchange, before: ResponsesRequest): void | Promise<void> {
    return this.#checkPrompt(exchange, unseenTexts(exchange.prompt, before), false)
  }

  text(exchange: Exchange, text: string, author: Author = 'other'): string | Promise<string> {
    if (text === '') return text
    return whenReady(this.#check(exchange, [{ text, who: author }]), ([findings = []]) =>
      whenReady(
        this.#masking.cover(exchange, [{ text, findings }], false),
        ([coveredText = '']) => coveredText,
      ),
    )
  }

  /**
   * `texts`: the texts of the prompt, in order; texts that need no check are empty. `isCallers`: nothing in the prompt
   * has been masked yet.
   */
  #checkPrompt(exchange: Exchange, texts: readonly RequestText[], isCallers: boolean): void | Promise<void> {
    return whenReady(this.#check(exchange, texts), findings => {
      if (
        !this.#rules.masks &&
        !findings.some(textFindings => textFindings.some(({ action }) => action === 'redact'))
      )
        return
      const promptTexts = textsOf(exchange.prompt)
      const foundTexts = promptTexts.map((text, index) => ({ ...text, findings: findings[index] ?? [] }))
      return whenReady(this.#masking.cover(exchange, foundTexts, isCallers), coveredTexts => {
        if (coveredTexts.some((text, index) => text !== promptTexts[index]?.text))
          exchange.prompt = withTexts(exchange.prompt, coveredTexts)
      })
    })
  }

  #check(exchange: Exchange, texts: readonly RequestText[]): TextFindings | Promise<TextFindings> {
    const evaluating = evaluateTexts(this.#tasks, this.#rules, texts, exchange.signal)
    return whenReady(evaluating, result => this.#decide(exchange, result))
  }

  /**
   * Reports the findings and returns them.
   * @throws GatewayError if one blocks, or if not everything could be checked and a guardrail fails closed
   */
  #decide(exchange: Exchange, { findings, failure }: TextsResult): TextFindings {
    if (failure !== null) this.#passUnchecked(exchange, failure.cause)
    const matchesByRule = new Map<string, RuleMatch>()
    for (const textFindings of findings) noteMatches(matchesByRule, textFindings)
    if (matchesByRule.size === 0) return findings
    const matches = [...matchesByRule.values()]
    exchange.pipeline.push(...stagesOf(this.#rules, matches, 'request'))
    countMatches(this.#metrics, this.#rules, matches)
    if (strictest(matches) === 'block') throw blockedError(matches, 'request')
    return findings
  }

  /** Called if not everything could be evaluated: the request continues only if every guardrail fails open. */
  #passUnchecked(exchange: Exchange, cause: unknown): void {
    exchange.signal.throwIfAborted()
    const refusingGuardrail = this.#rules.owners.find(({ failMode }) => failMode === 'closed')
    const action = refusingGuardrail === undefined ? 'passed_unchecked' : 'refused_unchecked'
    this.#metrics.guardrailDecisions.inc({ guardrail: 'all', action })
    if (refusingGuardrail !== undefined) throw uncheckedError(refusingGuardrail, 'request', cause)
    exchange.pipeline.push(...uncheckedStages(this.#rules, 'request'))
  }
}

// One text against one guardrail, as a request or a reply would be, for those who write its rules.

interface TextToCheck {
  readonly text: string
  /** Rules for requests, or for replies. */
  readonly side: 'input' | 'output'
}

interface CheckedText {
  /** The strictest; null: nothing was found. */
  readonly action: Action | null
  /** The text, with everything that must be redacted replaced. */
  readonly redacted: string
  readonly findings: readonly Finding[]
}

/** Checks a text. @throws (rejects with) GatewayError `guardrail_unavailable` if the rules cannot be evaluated now */
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
    // Input is checked as a user's text, a reply as a model's.
    const author = side === 'input' ? 'user' : 'other'
    const { findings, failure } = await evaluateTexts(tasks, rules, [{ text, who: author }], signal)
    if (failure !== null) {
      throw new GatewayError(
        'guardrail_unavailable',
        'The guardrail rules could not be evaluated; try again',
        {
          cause: failure.cause,
        },
      )
    }
    const textFindings = findings[0] ?? []
    const masks = new Masks()
    const redacted = redact(text, textFindings, (kind, value) => masks.give(kind, value))
    return { action: strictest(textFindings), redacted, findings: textFindings }
  }
}

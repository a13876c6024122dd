/**
 * Alignment: a second model checks each message of the first one against the caller's rules. `enforce` withholds a
 * message that breaks a rule, requests another one, and finally refuses; it also refuses a message that cannot be
 * judged. `audit` delivers everything and reports.
 */
import { GatewayError } from '../../base/errors.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { Exchange, Turn } from '../../exchange/exchange.ts'
import type { ActivePlugin, Inspect, Plugin, PluginReport, Verdict } from '../../exchange/plugin.ts'
import { ALIGNMENT_RETRIES_DEFAULT, ALIGNMENT_THRESHOLD_DEFAULT } from '../../protocol/limits.ts'
import type { PluginSettings } from '../../protocol/plugins.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { AlignmentCall, AlignmentReport, ResponseResource } from '../../protocol/response.ts'
import type { GatewayTasks } from '../tasks/pool/pool.ts'
import { TaskError } from '../tasks/task.ts'
import {
  evaluatorRequest,
  extractMessage,
  type JudgedMessage,
  rejectedItems,
  rewriteRequest,
  textsOfMessage,
  withRules,
} from './alignment-message.ts'
import type { PluginDeps } from './plugin-deps.ts'
import { isPrivate } from './question.ts'
import type { AlignmentSettings } from './settings.ts'

interface AlignmentDeps extends Pick<PluginDeps, 'ask' | 'clock' | 'policyAgainst'> {
  readonly config: { readonly alignment: AlignmentSettings }
  readonly metrics: Pick<Metrics, 'alignmentOutcomes'>
  readonly tasks: Pick<GatewayTasks, 'runInlineOr'>
}

type Settings = Extract<PluginSettings, { id: 'alignment' }>
type Reason = 'cut' | 'evaluator_error' | 'malformed_answer' | 'time_limit'
type Judgement =
  | { readonly reason: Reason }
  | { readonly probabilities: readonly number[]; readonly message: JudgedMessage }

/** Judging an answer and a message of this total length takes about ten microseconds. */
const SMALL_ANSWER_CHARS = 2_048

export function createAlignment(deps: AlignmentDeps): Plugin<'alignment'> {
  return {
    id: 'alignment',
    activate: settings => (settings === null ? null : new ActiveAlignment(deps, settings)),
  }
}

class ActiveAlignment implements ActivePlugin {
  readonly id = 'alignment'
  readonly skipsRescan = true
  readonly holds: boolean
  readonly maxCalls: number
  readonly #deps: AlignmentDeps
  readonly #settings: Settings
  readonly #mode: 'enforce' | 'audit'
  readonly #threshold: number
  /** Redacted by the guardrails in `prepare`; the caller's original rules are never used. */
  #rules: readonly string[] = []
  readonly #report: AlignmentReport = { calls: [] }
  #prepared = false
  /** Retries left for the current message; each new message starts with all of them. */
  #retriesLeft: number

  constructor(deps: AlignmentDeps, settings: Settings) {
    this.#deps = deps
    this.#settings = settings
    this.#mode = settings.mode ?? 'enforce'
    this.#threshold = settings.threshold ?? ALIGNMENT_THRESHOLD_DEFAULT
    this.#retriesLeft = this.#retries
    this.holds = this.#mode === 'enforce'
    this.maxCalls = this.holds ? 1 + this.#retries : 1
  }

  report(): PluginReport {
    if (!this.#prepared) return {}
    const alignment = this.#report
    return { response: { alignment }, ...(alignment.calls.length === 0 ? {} : { failure: { alignment } }) }
  }

  async prepare(exchange: Exchange, inspect: Inspect): Promise<ResponsesRequest | undefined> {
    const { workspaceId } = exchange.caller
    if (workspaceId !== null && this.#deps.config.alignment.hipaaWorkspaces.includes(workspaceId)) {
      throw new GatewayError('permission_denied', 'Alignment plugin: not available to HIPAA workspaces')
    }
    const obstacle = await obstacleTo(exchange, this.#deps)
    if (obstacle !== null) {
      throw new GatewayError(
        'invalid_request',
        `Alignment plugin: the request cannot be evaluated: ${obstacle}`,
      )
    }
    this.#rules = await inspectRules(this.#settings.rules, inspect)
    this.#prepared = true
    exchange.pipeline.push({
      type: 'plugin',
      name: 'alignment',
      summary: this.holds
        ? 'the reply is held back until it has been evaluated'
        : 'the reply is evaluated after its delivery',
      data: { mode: this.#mode, buffered: this.holds },
    })
    return this.#settings.instruct === false ? undefined : withRules(exchange.prompt, this.#rules)
  }

  async judge(turn: Turn, exchange: Exchange): Promise<Verdict> {
    const judgement = await this.#judgement(turn, exchange)
    const call = this.#callOf(turn.number, judgement)
    this.#report.calls.push(call)
    this.#deps.metrics.alignmentOutcomes.inc({ mode: this.#mode, outcome: call.outcome })
    if (!this.holds) return { kind: 'pass' }
    if (call.outcome === 'unavailable' || 'reason' in judgement) {
      return this.#refuse(
        'service_unavailable',
        `the reply could not be evaluated: ${unavailableReason(call)}`,
        turn,
      )
    }
    if (call.outcome === 'allowed') {
      this.#retriesLeft = this.#retries
      return { kind: 'pass' }
    }
    const rules = this.#rules
    const brokenIndexes = [...rules.keys()].filter(index => call.rules[index]?.broken === true)
    if (this.#retriesLeft-- > 0) {
      const brokenRules = brokenIndexes.map(index => rules[index] ?? '')
      return { kind: 'again', prompt: rewriteRequest(exchange.prompt, judgement.message, brokenRules) }
    }
    const ruleList = brokenIndexes.map(index => `${index + 1}: "${rules[index]}"`).join(', ')
    return this.#refuse('permission_denied', `the reply broke these rules: ${ruleList}`, turn)
  }

  get #retries(): number {
    return this.#settings.max_retries ?? ALIGNMENT_RETRIES_DEFAULT
  }

  #callOf(call: number, judgement: Judgement): AlignmentCall {
    if ('reason' in judgement) return { call, outcome: 'unavailable', reason: judgement.reason }
    const rules = judgement.probabilities.map(probability => ({
      probability,
      broken: probability >= this.#threshold,
    }))
    return { call, outcome: rules.some(rule => rule.broken) ? 'blocked' : 'allowed', rules }
  }

  #refuse(code: 'permission_denied' | 'service_unavailable', reason: string, turn: Turn): Verdict {
    const alignment = { ...this.#report, rejected: rejectedItems(turn.output, turn.number) }
    const error = new GatewayError(code, `Alignment plugin: ${reason}`, { metadata: { alignment } })
    return { kind: 'refuse', error }
  }

  async #judgement({ output }: Turn, exchange: Exchange): Promise<Judgement> {
    const { ask, clock, tasks, config } = this.#deps
    const { evaluator, timeoutMs } = config.alignment
    const rules = this.#rules
    const judgedOutput = extractMessage(output, this.holds)
    if (judgedOutput === null || evaluator === null) return { reason: 'cut' }
    const deadlineAtMs = clock.monotonicMs() + timeoutMs
    try {
      const answer = await ask(
        evaluatorRequest(evaluator.model, rules, { ...judgedOutput, isPrivate: isPrivate(exchange.request) }),
        {
          parent: exchange,
          deadlineMs: timeoutMs,
        },
      )
      // The answer of a stopped evaluator may end in the middle of a quotation.
      const text = answer.status === 'completed' ? textOf(answer) : ''
      const judgedTexts = textsOfMessage(judgedOutput.message)
      const chars = judgedTexts.reduce((sum, judgedText) => sum + judgedText.length, text.length)
      const probabilities = await tasks.runInlineOr(
        'judge-answer',
        { text, rules: rules.length, judged: judgedTexts },
        chars > SMALL_ANSWER_CHARS ? 'large' : 'small',
        {
          deadlineMs: Math.max(1, deadlineAtMs - clock.monotonicMs()),
          key: exchange.caller.keyHash,
          signal: exchange.signal,
        },
      )
      if (this.holds) exchange.signal.throwIfAborted()
      return probabilities === null
        ? { reason: 'malformed_answer' }
        : { probabilities, message: judgedOutput.message }
    } catch (thrown) {
      if (this.#hasEnded(exchange)) throw exchange.signal.reason
      return { reason: reasonFor(thrown) }
    }
  }

  /** True if no verdict is needed any more: the client has left, or the exchange was aborted before delivery. */
  #hasEnded({ signal }: Exchange): boolean {
    return signal.aborted && (this.holds || (signal.reason as GatewayError).code === 'client_closed')
  }
}

/** Checks the rules as one text, as a model reads them, so that nothing hides between two rules. */
async function inspectRules(rules: readonly string[], inspect: Inspect): Promise<readonly string[]> {
  const lines = (await inspect(rules.join('\n'))).split('\n')
  if (lines.length === rules.length) return lines
  throw new GatewayError(
    'permission_denied',
    "Alignment plugin: a guardrail's redaction spans more than one rule",
  )
}

/** The reason that a request cannot be evaluated; null if it can. */
async function obstacleTo(
  { request, caller, dataRegion, zeroRetention }: Exchange,
  { config, policyAgainst }: AlignmentDeps,
): Promise<string | null> {
  const { evaluator } = config.alignment
  if (evaluator === null) return 'not_admitted'
  if (zeroRetention || request.provider?.zdr === true) return 'zero_data_retention'
  if (dataRegion !== null) return 'regional_host'
  return await policyAgainst(caller, evaluator)
}

function reasonFor(thrown: unknown): Reason {
  if (thrown instanceof GatewayError && thrown.code === 'deadline_exceeded') return 'time_limit'
  if (thrown instanceof TaskError && thrown.outcome === 'timeout') return 'time_limit'
  return 'evaluator_error'
}

function unavailableReason(call: AlignmentCall): string {
  return call.outcome === 'unavailable' ? call.reason : ''
}

/** The text of the answer; empty if the evaluator refused a part of it. */
function textOf({ output }: ResponseResource): string {
  let text = ''
  for (const item of output) {
    if (item.type !== 'message' || !Array.isArray(item.content)) continue
    for (const part of item.content) {
      if (part.type !== 'output_text') return ''
      text += part.text
    }
  }
  return text
}

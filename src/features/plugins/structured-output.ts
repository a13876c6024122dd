/**
 * Structured output: validates answers against the requested JSON schema if the provider does not. It applies to every
 * request with a schema. It withholds a whole answer that breaks a strict schema; for streams, and without `strict`, it
 * only reports.
 */
import { GatewayError } from '../../base/errors.ts'
import type { Exchange, Turn } from '../../exchange/exchange.ts'
import type { ActivePlugin, BuiltInRule, Verdict } from '../../exchange/plugin.ts'
import type { OutputItem } from '../../protocol/items.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import { type GatewayTasks, PATIENT_WAIT_MS } from '../tasks/pool/pool.ts'
import { TaskError } from '../tasks/task.ts'
import { answerText } from './question.ts'

export interface StructuredOutputDeps {
  readonly tasks: Pick<GatewayTasks, 'run'>
}

/** Bounds the schemas of hostile clients. A typical one takes milliseconds; the first check also starts the worker. */
const CHECK_TIMEOUT_MS = 5_000

/** Finish reasons after which the answer is not complete. */
const UNFINISHED: ReadonlySet<Turn['finish']> = new Set(['length', 'content_filter', 'tool_calls'])

type Format = Extract<NonNullable<NonNullable<ResponsesRequest['text']>['format']>, { type: 'json_schema' }>

/** The place where an answer does not match the schema; null if it matches or was not checked. */
type Misfit = { readonly path: string; readonly keyword: string } | null

export function createStructuredOutput({ tasks }: StructuredOutputDeps): BuiltInRule {
  return {
    id: 'structured-output',
    alwaysOn: true,
    activate(_, { text, stream }) {
      const format = text?.format
      if (format?.type !== 'json_schema') return null
      return stream === true ? new StreamCheck(tasks, format) : new WholeAnswerCheck(tasks, format)
    },
  }
}

const PASS_VERDICT: Verdict = { kind: 'pass' }

class Check {
  readonly id = 'structured-output'
  readonly isRepeatable = true
  readonly format: Format
  readonly #tasks: StructuredOutputDeps['tasks']

  constructor(tasks: StructuredOutputDeps['tasks'], format: Format) {
    this.#tasks = tasks
    this.format = format
  }

  /** The text of an answer that must be checked; empty if there is none. */
  textToCheck(turn: Turn): string {
    return isEnforced(turn) || UNFINISHED.has(turn.finish) ? '' : answerText(turn.output)
  }

  async misfit(text: string, exchange: Exchange): Promise<Misfit> {
    try {
      const { valid, faults } = await this.#tasks.run(
        'check-schema',
        { schema: this.format.schema, text },
        {
          deadlineMs: CHECK_TIMEOUT_MS,
          waitMs: PATIENT_WAIT_MS,
          key: exchange.caller.keyHash,
          signal: exchange.signal,
        },
      )
      if (valid) return null
      const misfit = faults[0] ?? { path: '', keyword: 'schema' }
      note(exchange, 'the answer does not match the requested schema', { valid: false, ...misfit })
      return misfit
    } catch (thrown) {
      exchange.signal.throwIfAborted()
      if (!(thrown instanceof TaskError)) throw thrown
      const reason = thrown.failure?.code ?? thrown.outcome
      note(exchange, 'the answer was not checked against the requested schema', { checked: false, reason })
      return null
    }
  }
}

class WholeAnswerCheck extends Check implements ActivePlugin {
  finish(turn: Turn, exchange: Exchange): readonly OutputItem[] | Promise<readonly OutputItem[]> {
    const text = this.textToCheck(turn)
    return text === '' ? turn.output : this.#check(text, turn.output, exchange)
  }

  async #check(
    text: string,
    output: readonly OutputItem[],
    exchange: Exchange,
  ): Promise<readonly OutputItem[]> {
    const misfit = await this.misfit(text, exchange)
    if (misfit === null || this.format.strict !== true) return output
    throw new GatewayError(
      'answer_mismatch',
      `The model's answer does not match the requested schema: at "${misfit.path}" (${misfit.keyword})`,
    )
  }
}

class StreamCheck extends Check implements ActivePlugin {
  judge(turn: Turn, exchange: Exchange): Verdict | Promise<Verdict> {
    const text = this.textToCheck(turn)
    return text === '' ? PASS_VERDICT : this.misfit(text, exchange).then(() => PASS_VERDICT)
  }
}

/** True if the provider enforces schemas itself, which is assumed if its parameters are unknown. */
function isEnforced({ attempt: { endpoint } }: Turn): boolean {
  const supported = endpoint.supportedParameters
  return supported === null || supported.has('structured_outputs')
}

function note(exchange: Exchange, summary: string, data: Readonly<Record<string, unknown>>): void {
  exchange.pipeline.push({ type: 'plugin', name: 'structured-output', summary, data })
}

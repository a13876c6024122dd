/** Compares the answer of a captured request with that of the same request to another configuration. Pure. */
import { isDeepStrictEqual } from 'node:util'
import { parseJson } from '../../../base/json.ts'
import { toUsd } from '../../../base/money.ts'
import type { OutputItem } from '../../../protocol/items.ts'
import type { UsageRecord } from '../../../storage/usage.ts'

/** The facts of an answer that are compared. */
export interface AnswerFacts {
  readonly status: 'ok' | string
  readonly model: string | null
  readonly provider: string | null
  readonly finish: string | null
  readonly text: string
  readonly tool_calls: readonly { readonly name: string; readonly arguments: unknown }[]
  readonly input_tokens: number
  readonly output_tokens: number
  /** USD. */
  readonly cost: number
  readonly latency_ms: number
}

/** Fields that a model decides, so a simulated answer says nothing about them. */
const MODEL_FIELDS = ['finish', 'text', 'tool_calls', 'input_tokens', 'output_tokens', 'cost'] as const
const ROUTE_FIELDS = ['status', 'model', 'provider'] as const
/** Fields that can differ; a latency always does. */
export const COMPARED_FIELDS = [...ROUTE_FIELDS, ...MODEL_FIELDS] as const
export type ComparedField = (typeof COMPARED_FIELDS)[number]

export interface Comparison {
  readonly generation: string
  /** The simulated provider answered, because no reply was recorded: only status, model and provider are compared. */
  readonly simulated: boolean
  readonly differences: readonly ComparedField[]
  readonly from: AnswerFacts
  readonly to: AnswerFacts
}

export function answerFacts(
  usage: UsageRecord | null,
  output: readonly OutputItem[],
  error: string | null,
): AnswerFacts {
  return {
    status: error ?? 'ok',
    model: usage?.model ?? null,
    provider: usage?.provider ?? null,
    finish: usage?.finishReason ?? null,
    text: textOf(output),
    tool_calls: callsOf(output),
    input_tokens: usage?.inputTokens ?? 0,
    output_tokens: usage?.outputTokens ?? 0,
    cost: toUsd(usage?.cost ?? 0),
    latency_ms: Math.round(usage?.latencyMs ?? 0),
  }
}

export function compare(
  generation: string,
  simulated: boolean,
  from: AnswerFacts,
  to: AnswerFacts,
): Comparison {
  const fields: readonly ComparedField[] = simulated ? ROUTE_FIELDS : COMPARED_FIELDS
  const differences = fields.filter(name => !isDeepStrictEqual(from[name], to[name]))
  return { generation, simulated, differences, from, to }
}

/** Counts of requests and differences. The other sums leave out requests that the simulated provider answered. */
export interface ReplaySums {
  readonly requests: number
  readonly different: number
  readonly simulated: number
  readonly by_field: Readonly<Record<ComparedField, number>>
  readonly cost: { readonly from: number; readonly to: number }
  readonly input_tokens: { readonly from: number; readonly to: number }
  readonly output_tokens: { readonly from: number; readonly to: number }
  /** Medians. */
  readonly latency_ms: { readonly from: number; readonly to: number }
}

export function sumsOf(comparisons: readonly Comparison[]): ReplaySums {
  const answers = comparisons.filter(({ simulated }) => !simulated)
  const sum = (name: 'cost' | 'input_tokens' | 'output_tokens') => ({
    from: answers.reduce((total, { from }) => total + from[name], 0),
    to: answers.reduce((total, { to }) => total + to[name], 0),
  })
  const median = (values: readonly number[]): number =>
    values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0
  const byField = COMPARED_FIELDS.map(
    name => [name, comparisons.filter(({ differences }) => differences.includes(name)).length] as const,
  )
  return {
    requests: comparisons.length,
    different: comparisons.filter(({ differences }) => differences.length > 0).length,
    simulated: comparisons.length - answers.length,
    by_field: Object.fromEntries(byField) as Record<ComparedField, number>,
    cost: sum('cost'),
    input_tokens: sum('input_tokens'),
    output_tokens: sum('output_tokens'),
    latency_ms: {
      from: median(answers.map(({ from }) => from.latency_ms)),
      to: median(answers.map(({ to }) => to.latency_ms)),
    },
  }
}

function textOf(output: readonly OutputItem[]): string {
  return output
    .flatMap(item => (item.type === 'message' ? item.content : []))
    .map(part => (part.type === 'output_text' ? part.text : part.type === 'refusal' ? part.refusal : ''))
    .join('')
}

function callsOf(output: readonly OutputItem[]): AnswerFacts['tool_calls'] {
  return output.flatMap(item =>
    item.type === 'function_call'
      ? [{ name: item.name, arguments: parseJson(item.arguments) ?? item.arguments }]
      : [],
  )
}

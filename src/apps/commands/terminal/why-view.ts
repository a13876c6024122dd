/** The explanation of a request as lines of at most 80 columns, without colours. Pure. */

import type { Stage } from '../../../base/metrics/stages.ts'
import type { Explanation } from '../../../features/explanations/explanation.ts'
import { reasonsOf } from '../../../features/explanations/reasons.ts'
import { exactUsd, plain, shortUsd } from './text.ts'

const COLUMNS = 80
const NAME_CHARS = 27
const NUMBER_CHARS = 11
const COST_CHARS = 10
const BAR_CHARS = 16

/** A part of the request. Milliseconds since it came. */
interface Part {
  readonly name: string
  readonly startMs: number
  readonly ms: number
  /** USD; null: it has no cost of its own. */
  readonly cost: number | null
}

/** The lines of an explanation: the request, its times, and the reasons. */
export function shown(explanation: Explanation): string[] {
  return [
    ...header(explanation),
    '',
    ...waterfall(explanation),
    '',
    ...reasonsOf(explanation).flatMap(reason => wrap(plain(reason, 600), '- ', '  ')),
  ]
}

function header(explanation: Explanation): string[] {
  const { id, request_id, created_at, method, route, status, outcome, duration_ms } = explanation
  const { key, organization_id, workspace_id, requested_model, model, provider, cost } = explanation
  const tokens =
    explanation.input_tokens === null && explanation.output_tokens === null
      ? null
      : `${explanation.input_tokens ?? 0} in, ${explanation.output_tokens ?? 0} out`
  const facts: readonly (readonly [string, string | null])[] = [
    ['request', id],
    ['X-Request-Id', request_id],
    ['received', `${created_at}, took ${milliseconds(duration_ms)} ms`],
    ['operation', method === null ? null : `${method} ${route ?? ''}`],
    ['ended', status === null ? outcome : `${status} ${outcome}`],
    ['model', modelOf(requested_model, model, provider)],
    ['router', explanation.router],
    ['tokens', tokens],
    ['cost', cost === null ? null : exactUsd(cost)],
    ['finish', explanation.finish],
    ['data region', explanation.data_region],
    ['key', key ?? explanation.key_hash],
    ['organization', organization_id === '' ? null : organization_id],
    ['workspace', workspace_id],
  ]
  return facts.flatMap(([name, value]) =>
    value === null ? [] : wrap(plain(value), name.padEnd(14), ' '.repeat(14)),
  )
}

function modelOf(requested: string | null, model: string | null, provider: string | null): string | null {
  if (model === null) return requested === null ? null : `${requested} (requested)`
  const target = provider === null ? model : `${model} at ${provider}`
  return requested === null || requested === model ? target : `${target} (requested ${requested})`
}

/** One row for each stage, attempt, tool call and inner call. */
function waterfall(explanation: Explanation): string[] {
  const { duration_ms: duration } = explanation
  const parts = partsOf(explanation)
  const title = [
    'part'.padEnd(NAME_CHARS),
    'from ms'.padStart(NUMBER_CHARS),
    'took ms'.padStart(NUMBER_CHARS),
    'cost'.padStart(COST_CHARS),
  ].join(' ')
  return [title, ...parts.map(part => row(part, duration))]
}

function row({ name, startMs, ms, cost }: Part, durationMs: number): string {
  const totalMs = durationMs > 0 ? durationMs : 1
  const from = Math.min(BAR_CHARS - 1, Math.max(0, Math.floor((startMs / totalMs) * BAR_CHARS)))
  const length = Math.max(1, Math.min(BAR_CHARS - from, Math.round((ms / totalMs) * BAR_CHARS)))
  const bar = `${' '.repeat(from)}${'#'.repeat(length)}`
  return [
    plain(name, NAME_CHARS).padEnd(NAME_CHARS),
    milliseconds(startMs).padStart(NUMBER_CHARS),
    milliseconds(ms).padStart(NUMBER_CHARS),
    (cost === null || cost === 0 ? '' : shortUsd(cost)).padStart(COST_CHARS),
    bar,
  ]
    .join(' ')
    .trimEnd()
}

/** Stages in which attempts run; the rows of attempts come before the first of them. */
const ATTEMPT_STAGES: ReadonlySet<Stage> = new Set<Stage>([
  'failover',
  'encode',
  'upstream_first_byte',
  'first_token',
  'stream',
])

function partsOf(explanation: Explanation): Part[] {
  const attempts = attemptsOf(explanation)
  const calls = callsOf(explanation)
  const { stages_ms: stages, duration_ms: duration, first_token_ms: first } = explanation
  if (stages === null) {
    const answer: Part[] =
      first === null
        ? [{ name: 'waiting', startMs: 0, ms: duration, cost: null }]
        : [
            { name: 'waiting', startMs: 0, ms: first, cost: null },
            { name: 'answer', startMs: first, ms: duration - first, cost: null },
          ]
    return [...answer, ...attempts]
  }
  const before: Part[] = []
  const after: Part[] = []
  let atMs = 0
  for (const [stage, ms] of Object.entries(stages)) {
    const isLate = after.length > 0 || ATTEMPT_STAGES.has(stage as Stage)
    const part = { name: stage, startMs: atMs, ms, cost: null }
    if (isLate) after.push(part)
    else before.push(part)
    atMs += ms
  }
  return [...before, ...attempts, ...after, ...calls]
}

function attemptsOf({ attempts, duration_ms: duration }: Explanation): Part[] {
  return attempts.flatMap(
    ({ provider, start_ms: start, end_ms: end, status, error, outrun, cost }, index) => {
      if (start === null) return []
      const outcome = outrun ? 'outrun' : error === null ? (status ?? 'ok') : (status ?? error)
      const name = `attempt ${index + 1} ${provider} ${outcome}`
      return [{ name, startMs: start, ms: (end ?? duration) - start, cost }]
    },
  )
}

function callsOf({ tools, inner_calls: inner }: Explanation): Part[] {
  return [
    ...tools.map(({ tool, start_ms: startMs, end_ms: endMs, cost }) => ({
      name: `tool ${tool}`,
      startMs,
      ms: endMs - startMs,
      cost,
    })),
    ...inner.map(({ model, start_ms: startMs, end_ms: endMs, cost }) => ({
      name: `inner ${model ?? 'call'}`,
      startMs,
      ms: endMs - startMs,
      cost,
    })),
  ]
}

/** With microseconds. */
function milliseconds(ms: number): string {
  return ms.toFixed(3)
}

/** Words wrapped to lines of at most 80 columns; longer words are split. */
function wrap(text: string, first: string, later: string): string[] {
  const lines: string[] = []
  let line = first
  let isEmpty = true
  const room = COLUMNS - later.length
  for (const word of text.split(' ').flatMap(part => pieces(part, room))) {
    if (!isEmpty && line.length + 1 + word.length > COLUMNS) {
      lines.push(line)
      line = later
      isEmpty = true
    }
    line += isEmpty ? word : ` ${word}`
    isEmpty = false
  }
  return [...lines, line.trimEnd()]
}

function pieces(word: string, maxChars: number): string[] {
  const parts: string[] = []
  for (let start = 0; start < word.length; start += maxChars) parts.push(word.slice(start, start + maxChars))
  return parts
}

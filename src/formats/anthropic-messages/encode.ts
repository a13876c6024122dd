/**
 * Encodes a request as the body of POST /messages. Pure. Only fields named here go out. The encoder drops parameters
 * that this API lacks if they only tune a reply (penalties, log probabilities, verbosity, seeds), and refuses a field
 * with its path if dropping it would change the meaning of the request.
 */
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { Endpoint } from '../../providers/provider.ts'
import { withLastMarks } from '../cache-marks.ts'
import { inexpressible } from '../failure.ts'
import type { ModelRequest, WireRequest } from '../format.ts'
import { type Json, record, strings, wholeNumber } from '../json.ts'
import { isUnknownField } from '../outgoing.ts'
import { EFFORT_SHARES, type Effort } from '../reasoning.ts'
import { cacheControl, conversation, type MessagesBlock, type MessagesTurn } from './input.ts'
import { type LocatedTool, toolbox } from './tools.ts'

/** The latest version of the API, which this format implements. */
export const API_VERSION = '2023-06-01'
/** The API accepts compaction blocks in the input only with this flag. */
const COMPACTION_BETA = 'compact-2026-01-12'

/** The field with flags for features that are not out yet; they travel in a header. */
const BETAS = 'betas'
const BETA = /^[a-zA-Z0-9._-]{1,100}$/

/** Service tiers by the caller's name. The API uses its default for others. */
const TIERS: ReadonlyMap<string, string> = new Map([
  ['auto', 'auto'],
  ['default', 'standard_only'],
  ['priority', 'auto'],
  ['fast', 'auto'],
  ['ultrafast', 'auto'],
])

/** @throws GatewayError `unprocessable` naming what the Messages API cannot express */
export function encodeMessages({ request, stream, endUser }: ModelRequest, endpoint: Endpoint): WireRequest {
  refuseUnknownModes(request)
  const { system, turns, tools: added, effort, compacted } = conversation(request)
  const own = (request.tools ?? []).map((tool, index): LocatedTool => ({ tool, path: `tools[${index}]` }))
  const { quirks } = endpoint.provider
  const { tools, tool_choice, container } = toolbox(
    request,
    [...own, ...added],
    !quirks.includes('no-strict-tools'),
  )
  const {
    max_tokens,
    thinking,
    effort: level,
    sampling,
  } = generation({
    request,
    effort,
    upstreamModel: endpoint.upstreamModel,
    maxOutputTokens: endpoint.maxOutputTokens,
    turns,
    toolForced: tool_choice?.['type'] === 'any' || tool_choice?.['type'] === 'tool',
  })
  const last = turns.at(-1)
  const messages =
    last?.role === 'assistant' ? [...turns.slice(0, -1), { ...last, content: trimEnd(last.content) }] : turns

  const body: MessagesBlock = {
    ...unknownFields(request),
    model: endpoint.upstreamModel,
    max_tokens,
    messages,
    ...sampling,
  }
  const put = (name: string, value: unknown): void => {
    if (value !== null && value !== undefined) body[name] = value
  }
  put('system', systemPrompt(system))
  put('stream', stream ? true : null)
  put('thinking', thinking)
  put('tools', tools.length === 0 ? null : tools)
  put('tool_choice', tool_choice)
  put('container', container)
  put('output_config', outputConfig(request, level))
  put('stop_sequences', stopSequences(request))
  put('cache_control', cacheControl(request.cache_control))
  put('service_tier', TIERS.get(request.service_tier ?? ''))
  const named = endUser !== null && !quirks.includes('no-user')
  put('metadata', named ? { user_id: endUser } : null)

  const headers: Record<string, string> = { 'anthropic-version': API_VERSION }
  const betas = new Set(betasOf(request))
  if (compacted) betas.add(COMPACTION_BETA)
  if (betas.size > 0) headers['anthropic-beta'] = [...betas].join(',')
  return { path: '/messages', headers, body: withLastMarks(body) }
}

/** Names that the encoder writes itself, if the request asks for them: an unknown field cannot replace them. */
const OWN_NAMES: ReadonlySet<string> = new Set([
  'messages',
  'max_tokens',
  'system',
  'thinking',
  'output_config',
  'output_format',
  'stop_sequences',
  BETAS,
])

/** Fields that neither a request nor the gateway knows: only a client of this API's own dialect has them here. */
function unknownFields(request: ResponsesRequest): MessagesBlock {
  return Object.fromEntries(
    Object.entries(request).filter(
      ([name, value]) => value != null && isUnknownField(name) && !OWN_NAMES.has(name),
    ),
  )
}

/** The features of the API that a client of its dialect asks for. */
function betasOf(request: ResponsesRequest): readonly string[] {
  return strings((request as { readonly [BETAS]?: unknown })[BETAS]).filter(beta => BETA.test(beta))
}

/** With this feature, a budget is for all thoughts between calls together. */
function isInterleaved(request: ResponsesRequest): boolean {
  return betasOf(request).some(beta => beta.startsWith('interleaved-thinking-'))
}

function refuseUnknownModes(request: ResponsesRequest): void {
  if (request.modalities?.includes('image') === true)
    throw inexpressible('modalities', 'this provider writes text only')
  if (request.prompt != null) throw inexpressible('prompt', 'this provider has no stored prompts')
}

/** One plain text goes out as a string; only several texts or a cache mark need blocks. */
function systemPrompt(blocks: readonly MessagesBlock[]): unknown {
  const [only] = blocks
  if (only === undefined) return null
  return blocks.length === 1 && only['cache_control'] === undefined ? only['text'] : blocks
}

/** The API refuses to continue an assistant text that ends in white space. */
function trimEnd(content: readonly MessagesBlock[]): readonly MessagesBlock[] {
  const end = content.at(-1)
  if (end?.['type'] !== 'text') return content
  return [...content.slice(0, -1), { ...end, text: String(end['text']).trimEnd() }]
}

function outputConfig(request: ResponsesRequest, effort: string | null): MessagesBlock | null {
  const format = request.text?.format
  if (format?.type === 'json_object') {
    throw inexpressible('text.format', 'this provider writes JSON only to a schema: use json_schema')
  }
  const schema =
    format?.type === 'json_schema' ? { format: { type: 'json_schema', schema: format.schema } } : null
  if (schema === null && effort === null) return null
  return effort === null ? schema : { ...schema, effort }
}

/** Skips empty sequences, which the API refuses. */
function stopSequences({ stop }: ResponsesRequest): readonly string[] | null {
  const given = typeof stop === 'string' ? [stop] : (stop ?? [])
  const sequences = given.filter(one => one !== '')
  return sequences.length === 0 ? null : sequences
}

// Thinking, length and sampling. Two generations differ:
// - up to Claude 4.6, thinking has a budget of tokens. With it, temperature and top_k must be absent, and top_p must be
//   at least 0.95;
// - from Claude 4.7 on, the request sets an effort, and the API has no sampling parameters.
// Sampling is a wish: the encoder drops it where the model does not take it. A name without a version counts as the
// older generation.

/**
 * Output limit in tokens if neither caller nor catalogue sets one. The API requires a limit, and every model of this
 * family accepts this one.
 */
export const DEFAULT_MAX_TOKENS = 4096

const BUDGET_MIN = 1024
const BUDGET_MAX = 128_000
/** The lowest top_p that the API accepts together with a thinking budget. */
const TOP_P_MIN_WHEN_THINKING = 0.95
/** The API's highest temperature; other providers accept 2. */
const TEMPERATURE_MAX = 1

/** From this version on: an effort instead of a budget, and no sampling parameters. */
const EFFORT_SINCE = 4.07
/** From this version on, the model may decide by itself how much it thinks. */
const ADAPTIVE_SINCE = 4.06
/** From this version on, temperature and top_p exclude each other. */
const ONE_SAMPLING_SINCE = 4.01

/** The efforts of the API, weakest first. */
const LEVELS = ['low', 'medium', 'high', 'xhigh'] as const

interface Generation {
  readonly max_tokens: number
  readonly thinking: Readonly<Record<string, unknown>> | null
  readonly effort: string | null
  /** The sampling parameters that go out: temperature, top_p, top_k. */
  readonly sampling: Readonly<Record<string, number>>
}

interface GenerationWishes {
  readonly request: ResponsesRequest
  readonly effort: NonNullable<ResponsesRequest['reasoning']>['effort'] | undefined
  readonly upstreamModel: string
  readonly maxOutputTokens: number | null
  readonly turns: readonly MessagesTurn[]
  /** True if the model must call a tool: it cannot think before that. */
  readonly toolForced: boolean
}

function generation(wishes: GenerationWishes): Generation {
  const { request } = wishes
  const version = claudeVersion(wishes.upstreamModel)
  const asked = request.max_output_tokens ?? wishes.maxOutputTokens
  const own = ownThinking(request, version)
  if (own !== undefined) return ownGeneration(wishes, own, version, asked ?? DEFAULT_MAX_TOKENS)
  const wanted = wishes.toolForced ? null : wantedThinking(wishes)
  if (version !== null && version >= EFFORT_SINCE) {
    const max_tokens = asked ?? DEFAULT_MAX_TOKENS
    const effort = wanted === null ? null : effortOf(wanted, max_tokens)
    // Without the wish for a summary these models keep their thinking to themselves.
    const thinking = effort === null ? null : { type: 'adaptive', display: 'summarized' }
    return { max_tokens, thinking, effort, sampling: {} }
  }
  const budgeted = wanted === null || thinkingImpossible(wishes.turns) ? null : budget(wanted, asked)
  return {
    max_tokens: budgeted?.max_tokens ?? asked ?? DEFAULT_MAX_TOKENS,
    thinking: budgeted === null ? null : { type: 'enabled', budget_tokens: budgeted.tokens },
    effort: null,
    sampling: sampling(request, budgeted !== null, version),
  }
}

/**
 * The setting as a client of this API's dialect sent it; null: it sent none. Undefined: the client speaks another
 * dialect, or the model is of a generation without this setting.
 */
function ownThinking({ reasoning }: ResponsesRequest, version: number | null): Json | null | undefined {
  if (reasoning == null || !Object.hasOwn(reasoning, 'thinking')) return undefined
  const own = record((reasoning as { readonly thinking?: unknown }).thinking)
  if (own === null) return reasoning.enabled === true ? undefined : null
  if (version === null || own['type'] === 'disabled') return own
  const isKnown = own['type'] === 'enabled' ? version < EFFORT_SINCE : version >= ADAPTIVE_SINCE
  return isKnown ? own : undefined
}

/** Passes on the client's own setting, except what its output limit or the conversation no longer allows. */
function ownGeneration(
  { request, effort, turns }: GenerationWishes,
  own: Json | null,
  version: number | null,
  max_tokens: number,
): Generation {
  const level = effort ?? request.reasoning?.effort ?? null
  const budget = wholeNumber(own?.['budget_tokens'])
  const isOff = own === null || own['type'] === 'disabled'
  if (budget === null) {
    const hasSampling = version === null || version < EFFORT_SINCE
    return {
      max_tokens,
      thinking: own,
      effort: level,
      sampling: hasSampling ? sampling(request, !isOff, version) : {},
    }
  }
  const isPossible = max_tokens > BUDGET_MIN && !thinkingImpossible(turns)
  return {
    max_tokens,
    // The limit may be lower than what the client asked for.
    thinking: isPossible
      ? { ...own, budget_tokens: isInterleaved(request) ? budget : Math.min(budget, max_tokens - 1) }
      : null,
    effort: level,
    sampling: sampling(request, isPossible, version),
  }
}

/** The wanted thinking: an effort or a number of tokens; null for none. */
function wantedThinking({ request, effort }: GenerationWishes): Effort | number | null {
  const reasoning = request.reasoning
  const level = effort === undefined ? reasoning?.effort : effort
  if (reasoning?.enabled === false || level === 'none') return null
  if (reasoning?.max_tokens != null) return reasoning.max_tokens === 0 ? null : reasoning.max_tokens
  return level ?? (reasoning?.enabled === true ? 'medium' : null)
}

/** The thinking budget and the output limit that includes it; null if the limit is too low for thinking. */
function budget(
  wanted: Effort | number,
  asked: number | null,
): { tokens: number; max_tokens: number } | null {
  if (asked === null && typeof wanted === 'number') {
    const tokens = clamp(wanted)
    return { tokens, max_tokens: tokens + DEFAULT_MAX_TOKENS }
  }
  const max_tokens = asked ?? DEFAULT_MAX_TOKENS
  const tokens = clamp(typeof wanted === 'number' ? wanted : Math.floor(max_tokens * EFFORT_SHARES[wanted]))
  if (max_tokens <= BUDGET_MIN) return null
  return { tokens: Math.min(tokens, max_tokens - 1), max_tokens }
}

function clamp(tokens: number): number {
  return Math.min(Math.max(tokens, BUDGET_MIN), BUDGET_MAX)
}

function effortOf(wanted: Effort | number, max_tokens: number): string {
  if (typeof wanted !== 'number') return wanted === 'minimal' ? 'low' : wanted
  const share = wanted / max_tokens
  return LEVELS.find(level => share <= EFFORT_SHARES[level]) ?? 'max'
}

/**
 * True if the last turns lack a thinking block that the API demands. With a budget, a reply that continues after tool
 * results, or continues given words, must begin with its thought. Turns of another provider have none.
 */
function thinkingImpossible(turns: readonly MessagesTurn[]): boolean {
  let at = turns.length - 1
  let first: MessagesTurn | undefined
  if (turns[at]?.role === 'assistant') first = turns[at--]
  for (; at > 0 && turns[at]?.content.some(block => block['type'] === 'tool_result') === true; at -= 2) {
    first = turns[at - 1]
  }
  const type = first?.content.find(block => block['type'] !== 'compaction')?.['type']
  return first !== undefined && type !== 'thinking' && type !== 'redacted_thinking'
}

function sampling(
  request: ResponsesRequest,
  thinking: boolean,
  version: number | null,
): Record<string, number> {
  const wire: Record<string, number> = {}
  const { temperature, top_p, top_k } = request
  if (temperature != null && !thinking) wire['temperature'] = Math.min(temperature, TEMPERATURE_MAX)
  if (top_k != null && top_k > 0 && !thinking) wire['top_k'] = top_k
  const exclusive = version !== null && version >= ONE_SAMPLING_SINCE && wire['temperature'] !== undefined
  if (top_p != null && !exclusive && (!thinking || top_p >= TOP_P_MIN_WHEN_THINKING)) wire['top_p'] = top_p
  return wire
}

/**
 * The version in a model's name with the minor part in hundredths (4.05 for 4.5, so that 4.10 follows 4.9); null for a
 * name without one. Reads `claude-sonnet-4-5-20250929`, `claude-3-5-sonnet-…`, `anthropic/claude-haiku-4.5`.
 */
export function claudeVersion(model: string): number | null {
  const found = /claude-(?:[a-z]+-)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?/.exec(model)
  if (found === null) return null
  return (Number(found[1]) * 100 + Number(found[2] ?? 0)) / 100
}

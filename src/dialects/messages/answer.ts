/** Parts of a Messages reply that events and whole messages share. Pure. */
import { type HostedItem, type MessageItem, type OutputItem, refusalIn } from '../../protocol/items.ts'
import { nativeOf } from '../../protocol/json/native.ts'
import type { ResponseResource, ResponseUsage } from '../../protocol/response.ts'
import { type CallItem, isCall } from '../chat-completions/answer.ts'
import { citedTexts } from './citations.ts'
import { hostedBlocks, type OutputBlock, objectIn } from './hosted.ts'
import { callSeal, thinkingBlock } from './thinking-blocks.ts'

export type MessageFields = Record<string, unknown>

/** The blocks of a finished item. */
export function blocksOf(item: OutputItem): readonly OutputBlock[] {
  switch (item.type) {
    case 'message':
      return textBlocks(item)
    case 'reasoning': {
      const block = thinkingBlock(item)
      return block === null ? [] : [block]
    }
    case 'function_call':
    case 'custom_tool_call': {
      // Clients run the calls that they get, and an incomplete input is not valid.
      if (item.status === 'incomplete') return []
      const seal = callSeal(item)
      const call = { ...toolUse(item), input: inputOf(item) }
      return seal === null ? [call] : [call, seal]
    }
    default:
      return hostedBlocks(item as HostedItem)
  }
}

function textBlocks({ content }: MessageItem): OutputBlock[] {
  return content.flatMap(part =>
    part.type === 'refusal'
      ? []
      : citedTexts(part.text, part.annotations).map(({ text, citations }) => textBlock(text, citations)),
  )
}

export function textBlock(text: string, citations: readonly unknown[]): OutputBlock {
  return { type: 'text', text, citations: citations.length === 0 ? null : citations }
}

/** A call as its block begins, without its input. */
export function toolUse(item: CallItem): OutputBlock {
  const { call_id: id, name } = item
  const { caller, toolset_name } = item as { caller?: unknown; toolset_name?: unknown }
  return {
    type: 'tool_use',
    id,
    name,
    input: {},
    caller: caller ?? { type: 'direct' },
    ...(toolset_name == null ? {} : { toolset_name }),
  }
}

/** A custom tool's input is a text, which is in an object here. */
function inputOf(item: CallItem): Readonly<Record<string, unknown>> {
  return item.type === 'custom_tool_call' ? { input: item.input } : objectIn(item.arguments)
}

// The end

interface Stop {
  readonly stop_reason: string
  readonly stop_sequence: string | null
  readonly stop_details: {
    readonly type: 'refusal'
    readonly category: null
    readonly explanation: string | null
  } | null
}

/**
 * A complete answer with calls ends with `tool_use`, whatever reason the provider gave: clients run tools only for this
 * reason.
 */
export function stopOf(response: ResponseResource): Stop {
  const { incomplete_details: incomplete, native_finish_reason: native, output } = response
  const refusal = refusalIn(output)
  const plainStop = (stop_reason: string): Stop => ({ stop_reason, stop_sequence: null, stop_details: null })
  const refusalStop: Stop = {
    stop_reason: 'refusal',
    stop_sequence: null,
    stop_details: { type: 'refusal', category: null, explanation: refusal === '' ? null : refusal },
  }
  if (incomplete?.reason === 'content_filter') return refusalStop
  if (incomplete?.reason === 'max_output_tokens')
    return plainStop(native === 'model_context_window_exceeded' ? native : 'max_tokens')
  if (output.some(isCall)) return plainStop('tool_use')
  if (refusal !== '') return refusalStop
  if (native === 'pause_turn') return plainStop(native)
  const sequence = response.stop_sequence ?? null
  if (sequence === null && native !== 'stop_sequence') return plainStop('end_turn')
  return { stop_reason: 'stop_sequence', stop_sequence: sequence, stop_details: null }
}

/** The container of code that Anthropic ran, which a later request may name; null: none. */
export function containerOf(output: readonly OutputItem[]): MessageFields | null {
  for (const item of output) {
    const id = (item as { container_id?: unknown }).container_id
    if (typeof id === 'string' && nativeOf(item) !== null) return { id, expires_at: null, skills: null }
  }
  return null
}

// Usage

const NO_INPUT_USAGE: ReadTokens = { input_tokens: 0, input_tokens_details: { cached_tokens: 0 } }
/** For clients, which read these fields without checking that they exist. */
const NO_USAGE: ResponseUsage = {
  ...NO_INPUT_USAGE,
  output_tokens: 0,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: 0,
}

/** Usage as this API counts it: input excludes cached tokens. Missing counts are 0. */
export function messagesUsage(counts: ResponseUsage | null, serviceTier: string | null): MessageFields {
  const usage = counts ?? NO_USAGE
  const { cost, cost_details, is_byok, server_tool_use_details: tools } = usage
  return {
    ...inputUsage(usage),
    output_tokens: usage.output_tokens,
    output_tokens_details: { thinking_tokens: usage.output_tokens_details.reasoning_tokens },
    server_tool_use:
      tools === undefined ? null : { web_search_requests: tools.web_search_requests, web_fetch_requests: 0 },
    service_tier: serviceTier === 'default' ? 'standard' : serviceTier,
    speed: null,
    inference_geo: null,
    ...(tools === undefined ? {} : { server_tool_use_details: tools }),
    ...(cost === undefined ? {} : { cost }),
    ...(cost_details === undefined ? {} : { cost_details }),
    ...(is_byok === undefined ? {} : { is_byok }),
  }
}

type ReadTokens = Pick<ResponseUsage, 'input_tokens' | 'input_tokens_details'>

function inputUsage({ input_tokens, input_tokens_details: details }: ReadTokens): MessageFields {
  const { cached_tokens, cache_write_tokens = 0, cache_write_1h_tokens = 0 } = details
  return {
    input_tokens: Math.max(0, input_tokens - cached_tokens - cache_write_tokens),
    cache_creation_input_tokens: cache_write_tokens,
    cache_read_input_tokens: cached_tokens,
    cache_creation: {
      ephemeral_5m_input_tokens: cache_write_tokens - cache_write_1h_tokens,
      ephemeral_1h_input_tokens: cache_write_1h_tokens,
    },
  }
}

/** Fields that only the end knows. */
const LATE_FIELDS = { output_tokens_details: null, server_tool_use: null, service_tier: null, speed: null }

/** The message at the start of a stream. */
export function initialMessage(response: ResponseResource): MessageFields {
  return {
    ...messageHead(response),
    content: [],
    stop_reason: null,
    stop_sequence: null,
    stop_details: null,
    container: null,
    usage: {
      ...inputUsage(response.prompt_usage ?? NO_INPUT_USAGE),
      output_tokens: 0,
      ...LATE_FIELDS,
      inference_geo: null,
    },
  }
}

export function messageHead({ id, model, provider }: ResponseResource): MessageFields {
  return { id, type: 'message', role: 'assistant', model, provider: provider ?? null, diagnostics: null }
}

/** Fields known only at the end, outside the message itself. */
export function reportsOf({
  alignment,
  gateway_metadata: metadata,
}: Pick<Partial<ResponseResource>, 'alignment' | 'gateway_metadata'>): MessageFields {
  return {
    ...(alignment === undefined ? {} : { alignment }),
    ...(metadata === undefined ? {} : { gateway_metadata: metadata }),
  }
}

/** Edits of the input are reported at the end, if they were requested. */
export function editsOf({ context_management }: ResponseResource): MessageFields {
  return context_management === undefined ? {} : { context_management }
}

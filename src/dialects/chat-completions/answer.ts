/** Parts of a chat reply that chunks and whole completions share. Pure. */
import { PROVIDER_RUN_TYPES } from '../../protocol/hosted-items.ts'
import type {
  CustomToolCallItem,
  FunctionCallItem,
  HostedItem,
  OutputItem,
  ReasoningItem,
} from '../../protocol/items.ts'
import type { Annotation, Logprob } from '../../protocol/parts.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { ResponseResource, ResponseUsage } from '../../protocol/response.ts'
import { drawnImage, gatewayToolOf, inputAndResult } from '../hosted-items.ts'

export type ChatFields = Record<string, unknown>

type ChatFinish = 'stop' | 'length' | 'tool_calls' | 'content_filter' | 'error'

/** Stands between two pieces of reasoning in `reasoning`; in `reasoning_details` they are entries of their own. */
export const REASONING_BREAK = '\n\n'

/** True if the caller wants no reasoning in the answer. */
export function excludesReasoning(request: ResponsesRequest): boolean {
  return (request.reasoning as { exclude?: unknown } | null | undefined)?.exclude === true
}

export type CallItem = FunctionCallItem | CustomToolCallItem

export function isCall(item: OutputItem): item is CallItem {
  return item.type === 'function_call' || item.type === 'custom_tool_call'
}

/** Arguments of a function, or the input of a custom tool. */
export function inputOf(item: CallItem): string {
  return item.type === 'custom_tool_call' ? item.input : item.arguments
}

/** A call for the client; `argumentsText`: its arguments or input so far. */
export function chatCall(item: CallItem, index: number, argumentsText: string): ChatFields {
  const { call_id: id, name } = item
  return item.type === 'custom_tool_call'
    ? { index, id, type: 'custom', custom: { name, input: argumentsText } }
    : { index, id, type: 'function', function: { name, arguments: argumentsText } }
}

/**
 * A complete answer with calls ends with `tool_calls`, whatever reason the provider gave: clients run tools only for
 * this reason.
 */
export function finishOf(response: ResponseResource): ChatFinish {
  if (response.status === 'failed') return 'error'
  const reason = response.incomplete_details?.reason
  if (reason === 'max_output_tokens') return 'length'
  if (reason === 'content_filter') return 'content_filter'
  return response.output.some(isCall) ? 'tool_calls' : 'stop'
}

export function chatLogprob({ token, logprob, bytes, top_logprobs: top }: Logprob): ChatFields {
  return {
    token,
    logprob,
    bytes: bytes ?? null,
    top_logprobs: (top ?? []).map(alternative => ({ bytes: null, ...alternative })),
  }
}

/** `offset`: characters of the content before the text that the annotation belongs to. */
export function chatAnnotation(annotation: Annotation, offset: number): ChatFields {
  if (annotation.type === 'file') return { type: 'file', file: annotation.file }
  const { type, ...fields } = annotation
  const shifted: ChatFields = { ...fields }
  for (const name of ['start_index', 'end_index']) {
    const position = shifted[name]
    if (typeof position === 'number') shifted[name] = position + offset
  }
  return { type, [type]: shifted }
}

// Reasoning

/** The fields that tie an entry of `reasoning_details` to its item. */
export function detailOrigin(item: ReasoningItem): ChatFields {
  return { id: item.id, format: item.format ?? 'unknown' }
}

/** The entries of `reasoning_details` that only a finished item has; null: it has no such content. */
export function reasoningSeals(item: ReasoningItem): {
  signature: ChatFields | null
  encrypted: ChatFields | null
} {
  const {
    signature,
    encrypted_content: data,
    detail_id: lateId,
  } = item as ReasoningItem & {
    detail_id?: unknown
  }
  // The provider bound the sealed content to this id, which arrived too late to become the id of the item.
  const origin = { ...detailOrigin(item), ...(typeof lateId === 'string' ? { id: lateId } : {}) }
  return {
    signature: signature === undefined ? null : { type: 'reasoning.text', text: '', signature, ...origin },
    encrypted: data === undefined ? null : { type: 'reasoning.encrypted', data, ...origin },
  }
}

/** The entry of `reasoning_details` with the signature of a call; null if the call has none. */
export function callSignature(item: CallItem): ChatFields | null {
  const { signature } = item as { signature?: unknown }
  if (typeof signature !== 'string') return null
  return { type: 'reasoning.encrypted', data: signature, id: item.call_id, format: 'google-gemini-v1' }
}

// Tools that ran elsewhere

const PROVIDER_TOOLS: ReadonlySet<string> = new Set(PROVIDER_RUN_TYPES)
const UNREPORTED_TOOLS: ReadonlySet<string> = new Set(['mcp_list_tools', 'image_generation_call'])

/** A tool that the gateway or the provider ran, as an entry of `reasoning_details`; null where there is none. */
export function serverToolCall(item: HostedItem): ChatFields | null {
  const gatewayTool = gatewayToolOf(item.type)
  if (gatewayTool === null && (!PROVIDER_TOOLS.has(item.type) || UNREPORTED_TOOLS.has(item.type))) return null
  if (gatewayTool?.name === 'image_generation') return null
  const { input, result } = inputAndResult(item)
  const argumentsText = item['arguments']
  const id = item['call_id']
  const mcpName = item.type === 'mcp_call' ? item['name'] : null
  return {
    type: 'reasoning.server_tool_call',
    tool_name: typeof mcpName === 'string' ? mcpName : (gatewayTool?.name ?? item.type.replace(/_call$/, '')),
    arguments: typeof argumentsText === 'string' ? argumentsText : JSON.stringify(input),
    result: JSON.stringify(typeof argumentsText === 'string' ? { ...input, ...result } : result),
    tool_call_id: typeof id === 'string' ? id : item.id,
  }
}

// Images

/** The image of an item; null if it has none. */
export function chatImage(item: OutputItem): ChatFields | null {
  const image = drawnImage(item)
  if (image === null) return null
  const url = 'url' in image ? image.url : `data:${image.mediaType};base64,${image.base64}`
  return { type: 'image_url', image_url: { url } }
}

// Usage

const NO_TOOL_USE = { tool_calls_executed: 0, tool_calls_requested: 0, web_search_requests: 0 }

/** Counts that are not reported are 0. */
export function chatUsage(usage: ResponseUsage): ChatFields {
  const { cost, cost_details: details, is_byok: isByok } = usage
  const toolUse = usage.server_tool_use_details ?? NO_TOOL_USE
  return {
    prompt_tokens: usage.input_tokens,
    completion_tokens: usage.output_tokens,
    total_tokens: usage.total_tokens,
    prompt_tokens_details: {
      cached_tokens: usage.input_tokens_details.cached_tokens,
      cache_write_tokens: usage.input_tokens_details.cache_write_tokens ?? 0,
      audio_tokens: 0,
      file_tokens: 0,
      video_tokens: 0,
    },
    completion_tokens_details: {
      reasoning_tokens: usage.output_tokens_details.reasoning_tokens,
      audio_tokens: 0,
      image_tokens: 0,
    },
    ...(cost === undefined ? {} : { cost }),
    ...(details === undefined ? {} : { cost_details: chatCost(details) }),
    ...(isByok === undefined ? {} : { is_byok: isByok }),
    server_tool_use: toolUse,
    server_tool_use_details: toolUse,
  }
}

function chatCost(details: NonNullable<ResponseUsage['cost_details']>): ChatFields {
  const {
    upstream_inference_cost: totalCost,
    upstream_inference_input_cost: prompt,
    upstream_inference_output_cost: completions,
    ...otherCosts
  } = details
  return {
    upstream_inference_cost: totalCost ?? null,
    upstream_inference_prompt_cost: prompt,
    upstream_inference_completions_cost: completions,
    ...otherCosts,
  }
}

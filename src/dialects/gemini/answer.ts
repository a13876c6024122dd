/** Parts of a generateContent reply that chunks and whole replies share. Pure. */
import { records, textOrEmpty } from '../../base/json.ts'
import {
  type HostedItem,
  type MessageItem,
  type OutputItem,
  type ReasoningItem,
  refusalIn,
} from '../../protocol/items.ts'
import { nativeOf, TOOL_PROMPT_FIELD } from '../../protocol/json/native.ts'
import type { Logprob } from '../../protocol/parts.ts'
import type { ResponsesRequest } from '../../protocol/request.ts'
import type { ResponseResource, ResponseUsage } from '../../protocol/response.ts'
import { type CallItem, isCall } from '../chat-completions/answer.ts'
import { drawnImage } from '../hosted-items.ts'
import { objectIn } from '../messages/hosted.ts'
import { THOUGHT_BREAK, thoughtText } from '../messages/thinking-blocks.ts'
import { groundingOf } from './grounding.ts'
import { callSignature, carriedItem, type PartItem, signatureFor } from './seals.ts'

export type GeminiFields = Record<string, unknown>
export type AnswerPart = Readonly<Record<string, unknown>>

/** True if the client requested thoughts. Other clients get none. */
export function showsThoughts({ reasoning }: ResponsesRequest): boolean {
  const { thinking } = (reasoning ?? {}) as { thinking?: { includeThoughts?: unknown } }
  return thinking?.includeThoughts === true
}

/** Holds a signature until a part arrives that can carry it, because this API has no separate part for signatures. */
export class SealCarrier {
  #items: PartItem[] = []

  get isEmpty(): boolean {
    return this.#items.length === 0
  }

  add(item: OutputItem): void {
    const itemToCarry = carriedItem(item)
    if (itemToCarry !== null) this.#items.push(itemToCarry)
  }

  /** The field to add to the next part. */
  release(): { readonly thoughtSignature: string } | undefined {
    if (this.#items.length === 0) return undefined
    const thoughtSignature = signatureFor(this.#items)
    this.#items = []
    return { thoughtSignature }
  }

  /** A part for signatures that no other part carried; empty if there are none. */
  remainingParts(): readonly AnswerPart[] {
    return this.isEmpty ? [] : [{ text: '', ...this.release() }]
  }
}

/** The parts of a finished item. `withThoughts`: false leaves out the text of thoughts. */
export function partsOf(
  item: OutputItem,
  carrier: SealCarrier,
  withThoughts: boolean,
): readonly AnswerPart[] {
  switch (item.type) {
    case 'message': {
      const content = (item as MessageItem).content
        .map(part => (part.type === 'output_text' ? part.text : ''))
        .join('')
      return content === '' ? [] : [{ text: content, ...carrier.release() }]
    }
    case 'reasoning': {
      const thought = withThoughts ? thoughtText(item as ReasoningItem) : ''
      carrier.add(item)
      return thought === '' ? [] : [{ text: thought, thought: true }]
    }
    case 'function_call':
    case 'custom_tool_call':
      return callParts(item as CallItem, carrier)
    default:
      return hostedParts(item as HostedItem, carrier)
  }
}

/** Puts a paragraph break before each thought, because clients join the texts of thoughts. */
export function separateThoughts(parts: readonly AnswerPart[]): readonly AnswerPart[] {
  return parts.map(part =>
    part['thought'] === true ? { ...part, text: THOUGHT_BREAK + String(part['text']) } : part,
  )
}

export function callParts(item: CallItem, carrier: SealCarrier): readonly AnswerPart[] {
  // Clients run the calls that they get, and incomplete arguments are not valid.
  if (item.status === 'incomplete') return []
  const { call_id: id, name } = item
  const { signature } = item as { signature?: unknown }
  const args = item.type === 'custom_tool_call' ? { input: item.input } : objectIn(item.arguments)
  const part = { functionCall: { id, name, args } }
  if (typeof signature !== 'string' || signature === '') return [{ ...part, ...carrier.release() }]
  return [...carrier.remainingParts(), { ...part, thoughtSignature: callSignature(signature) }]
}

export function hostedParts(item: HostedItem, carrier: SealCarrier): readonly AnswerPart[] {
  const image = drawnImage(item)
  if (image !== null) return [{ ...imagePart(image, item), ...carrier.release() }]
  if (item.type === 'code_interpreter_call') return codeParts(item, carrier)
  carrier.add(item)
  return []
}

function imagePart(image: NonNullable<ReturnType<typeof drawnImage>>, item: HostedItem): AnswerPart {
  if ('base64' in image) {
    const format = item['output_format']
    const mimeType = typeof format === 'string' ? `image/${format}` : image.mediaType
    return { inlineData: { mimeType, data: image.base64 }, ...signatureOf(item) }
  }
  const inline = /^data:([^,;]*)[^,]*;base64,/.exec(image.url)
  if (inline === null) return { fileData: { fileUri: image.url } }
  return { inlineData: { mimeType: inline[1] ?? '', data: image.url.slice(inline[0].length) } }
}

function signatureOf({ signature }: HostedItem): { readonly thoughtSignature: string } | undefined {
  return typeof signature === 'string' && signature !== ''
    ? { thoughtSignature: callSignature(signature) }
    : undefined
}

function codeParts(item: HostedItem, carrier: SealCarrier): readonly AnswerPart[] {
  const { id, code, outputs, status } = item
  const signatureField = signatureOf(item) ?? carrier.release()
  const call = { executableCode: { id, language: 'PYTHON', code: textOrEmpty(code) }, ...signatureField }
  if (!Array.isArray(outputs)) return [call]
  const logs = records(outputs).map(output => textOrEmpty(output['logs']))
  const outcome = status === 'failed' ? 'OUTCOME_FAILED' : 'OUTCOME_OK'
  return [call, { codeExecutionResult: { id, outcome, output: logs.join('') } }]
}

// The end

/** Finish reasons that only this API has; a provider of this API sends them itself. */
const NATIVE_FILTERS: ReadonlySet<string> = new Set([
  'RECITATION',
  'BLOCKLIST',
  'PROHIBITED_CONTENT',
  'SPII',
  'MODEL_ARMOR',
  'IMAGE_SAFETY',
  'IMAGE_PROHIBITED_CONTENT',
  'IMAGE_RECITATION',
])
const NATIVE_ENDS: ReadonlySet<string> = new Set([
  'OTHER',
  'LANGUAGE',
  'MALFORMED_FUNCTION_CALL',
  'UNEXPECTED_TOOL_CALL',
  'TOO_MANY_TOOL_CALLS',
  'MISSING_THOUGHT_SIGNATURE',
  'MALFORMED_RESPONSE',
  'IMAGE_OTHER',
  'NO_IMAGE',
])

/** Fields of the candidate that only the end knows. Calls end as any answer does. */
export function endOf(response: ResponseResource): GeminiFields {
  const { incomplete_details: incomplete, native_finish_reason: native, output } = response
  const grounding = groundingOf(output)
  return { ...finishOf(incomplete?.reason, native ?? '', output), ...grounding }
}

function finishOf(reason: string | undefined, native: string, output: readonly OutputItem[]): GeminiFields {
  if (reason === 'max_output_tokens') return { finishReason: 'MAX_TOKENS' }
  const refusal = refusalIn(output)
  const finishMessage = refusal === '' ? {} : { finishMessage: refusal }
  if (reason === 'content_filter')
    return { finishReason: NATIVE_FILTERS.has(native) ? native : 'SAFETY', ...finishMessage }
  if (output.some(isCall)) return { finishReason: 'STOP' }
  if (refusal !== '') return { finishReason: 'SAFETY', ...finishMessage }
  return { finishReason: NATIVE_ENDS.has(native) ? native : 'STOP' }
}

/** The field of a candidate with log probabilities; empty if there are none. */
export function logprobsOf(logprobs: readonly Logprob[]): GeminiFields {
  if (logprobs.length === 0) return {}
  const toFields = ({ token, logprob }: { token?: unknown; logprob?: unknown }): GeminiFields => ({
    token,
    logProbability: logprob,
  })
  return {
    logprobsResult: {
      chosenCandidates: logprobs.map(toFields),
      topCandidates: logprobs.map(({ top_logprobs: top }) => ({ candidates: (top ?? []).map(toFields) })),
    },
  }
}

/**
 * Counts in the form of this API: `candidatesTokenCount` excludes thoughts. Counts of cached, thought and tool tokens
 * are omitted if they are 0, as Google does.
 */
export function usageMetadata(usage: ResponseUsage): GeminiFields {
  const {
    input_tokens_details: inputDetails,
    output_tokens_details: outputDetails,
    cost,
    cost_details,
    is_byok,
  } = usage
  const thoughtTokens = outputDetails.reasoning_tokens
  const toolTokens = Math.min(Number(nativeOf(usage)?.[TOOL_PROMPT_FIELD] ?? 0), usage.input_tokens)
  return {
    promptTokenCount: usage.input_tokens - toolTokens,
    ...(toolTokens === 0 ? {} : { [TOOL_PROMPT_FIELD]: toolTokens }),
    ...(inputDetails.cached_tokens === 0 ? {} : { cachedContentTokenCount: inputDetails.cached_tokens }),
    candidatesTokenCount: Math.max(0, usage.output_tokens - thoughtTokens),
    ...(thoughtTokens === 0 ? {} : { thoughtsTokenCount: thoughtTokens }),
    totalTokenCount: usage.total_tokens,
    ...(cost === undefined ? {} : { cost }),
    ...(cost_details === undefined ? {} : { cost_details }),
    ...(is_byok === undefined ? {} : { is_byok }),
  }
}

/** Fields of the answer outside its candidate. */
export function headOf({ id, model, provider }: ResponseResource): GeminiFields {
  return { modelVersion: model, responseId: id, provider: provider ?? null }
}

/** Fields outside the candidate that are known only at the end. */
export function reportsOf(response: ResponseResource): GeminiFields {
  const { usage, alignment, gateway_metadata: metadata } = response
  return {
    ...(usage === null ? {} : { usageMetadata: usageMetadata(usage) }),
    ...(alignment === undefined ? {} : { alignment }),
    ...(metadata === undefined ? {} : { gateway_metadata: metadata }),
  }
}

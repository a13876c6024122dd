/**
 * Compaction: the same model summarizes a conversation, and the client stores the summary as an encrypted item that
 * replaces it. The encryption is bound to the workspace and to the kind of item; any node with the same master keys can
 * decrypt it. A decrypted summary becomes a user message, so that it has no more authority than the client itself. A
 * summary that a provider made is encrypted together with the name of that provider, and goes back to that provider
 * only.
 */

import { GatewayError } from '../base/errors.ts'
import { randomText } from '../base/ids.ts'
import type { InputItem } from '../protocol/items.ts'
import { COMPACTED_BY, type CompactedBy, type NotedItem } from '../protocol/json/request-notes.ts'
import { isObject } from '../protocol/json/schema.ts'
import type { Caller } from '../protocol/records.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { ResponseResource } from '../protocol/response.ts'
import type { TextSeal } from '../providers/credentials/sealed-text.ts'

/** Seals summaries for the workspaces of callers. */
export type SummarySeal = Pick<TextSeal, 'seal' | 'open' | 'knows'>

/** A sealed summary as an item of an output. */
export interface SummaryItem {
  readonly type: 'compaction'
  readonly id: string
  readonly encrypted_content: string
}

/**
 * The decrypted content. `replaces`: the summary stands for every item before it, not only for those that are missing.
 */
interface Summary {
  readonly text: string
  readonly replaces: boolean
}

/** Prefix of the sealed text. */
const SUMMARY_PREFIX = 'gw-summary-v1:'
/** Prefix of a provider's sealed summary. */
const PROVIDER_SUMMARY_PREFIX = 'gw-compaction-v1:'
/** Binds a seal to summaries of providers, in addition to the workspace. */
const PROVIDER_SUMMARY_OWNER = 'provider'
/** Summaries that a provider made for itself are marked with its format. */
const PROVIDER_FORMAT_PREFIX = /^[a-z]+(?:-[a-z]+)*-v\d+:/

const SUMMARY_HEADING = 'Summary of the conversation up to here:\n\n'
const SUMMARY_TASK = `Write a summary of the conversation above, for somebody who goes on with it and will see nothing else of it.
Keep what the user wants, in the user's words where they matter; decisions and their reasons; facts, names, numbers, paths and code that are still needed; what was done and what came of it; what is open, and the next step.
Answer with the summary alone. Call no tool.`

/** Builds the item of a summary. */
export function sealSummary(seal: SummarySeal, caller: Caller, summary: Summary): SummaryItem {
  const ciphertext = seal.seal(JSON.stringify(summary), ownerOf(caller))
  return {
    type: 'compaction',
    id: `cmp_${randomText(24)}`,
    encrypted_content: `${SUMMARY_PREFIX}${ciphertext}`,
  }
}

/** A provider's own summary, in the provider's format. */
interface ProviderSummary extends CompactedBy {
  readonly content: string
}

/** Builds the `encrypted_content` of a provider's own summary, for the client. */
export function sealProviderSummary(seal: SummarySeal, caller: Caller, summary: ProviderSummary): string {
  const { maker, provider, content } = summary
  const text = JSON.stringify({ maker, provider, content })
  return `${PROVIDER_SUMMARY_PREFIX}${seal.seal(text, [...ownerOf(caller), PROVIDER_SUMMARY_OWNER])}`
}

function ownerOf({ organizationId, workspaceId }: Caller): readonly string[] {
  return [organizationId, workspaceId ?? '']
}

/**
 * Replaces sealed summaries by messages, and summaries of providers by their original form; null if the request has
 * none.
 * @throws GatewayError `invalid_request` for a summary that cannot be opened
 */
export function withOpenSummaries(
  request: ResponsesRequest,
  caller: Caller,
  seal: SummarySeal,
): ResponsesRequest | null {
  const { input } = request
  if (typeof input === 'string' || !input.some(({ type }) => type === 'compaction')) return null
  let items: InputItem[] = []
  for (const [index, item] of input.entries()) {
    if (item.type !== 'compaction' || isOfMessages(item) || isOpen(item)) {
      items.push(item)
      continue
    }
    const { encrypted_content: content } = item
    // The provider failed to make the summary, so everything before it still counts.
    if (content === '') continue
    if (content.startsWith(PROVIDER_SUMMARY_PREFIX)) {
      items.push(openProviderSummary(item, index, caller, seal))
      continue
    }
    const summary = openSummary(content, index, caller, seal)
    if (summary === null) {
      items.push(item)
      continue
    }
    if (summary.replaces) items = items.filter(isSetting)
    items.push(messageOf(summary.text))
  }
  return { ...request, input: items }
}

/**
 * True for a block of the Messages API as its client sent it. Its provider made it, so it does not have the gateway's
 * prefix.
 */
function isOfMessages(item: InputItem): boolean {
  return isObject((item as { readonly native?: unknown }).native)
}

/** True for a summary that an outer exchange has opened. */
function isOpen(item: InputItem & NotedItem): boolean {
  return item[COMPACTED_BY] !== undefined
}

/** Null if a provider made it, so that only that provider can read it. */
function openSummary(content: string, index: number, caller: Caller, seal: SummarySeal): Summary | null {
  const path = `input[${index}].encrypted_content`
  if (!content.startsWith(SUMMARY_PREFIX)) {
    if (PROVIDER_FORMAT_PREFIX.test(content)) return null
    throw new GatewayError('invalid_request', `${path}: was not made by this gateway`)
  }
  return JSON.parse(unseal(content.slice(SUMMARY_PREFIX.length), path, ownerOf(caller), seal)) as Summary
}

function openProviderSummary(
  item: Extract<InputItem, { type: 'compaction' }>,
  index: number,
  caller: Caller,
  seal: SummarySeal,
): InputItem {
  const ciphertext = item.encrypted_content.slice(PROVIDER_SUMMARY_PREFIX.length)
  const text = unseal(
    ciphertext,
    `input[${index}].encrypted_content`,
    [...ownerOf(caller), PROVIDER_SUMMARY_OWNER],
    seal,
  )
  const { maker, provider, content } = JSON.parse(text) as ProviderSummary
  const openedItem: InputItem & NotedItem = {
    ...item,
    encrypted_content: content,
    [COMPACTED_BY]: { maker, provider },
  }
  return openedItem
}

/** @throws GatewayError `invalid_request` */
function unseal(ciphertext: string, path: string, owner: readonly string[], seal: SummarySeal): string {
  if (!seal.knows(ciphertext)) {
    throw new GatewayError(
      'invalid_request',
      `${path}: its encryption key is no longer in use: send the conversation itself, and compact it again`,
    )
  }
  const text = seal.open(ciphertext, owner)
  if (text === null) {
    throw new GatewayError('invalid_request', `${path}: was made in another workspace, or was changed`)
  }
  return text
}

/** Items that apply to the whole conversation, whatever its content. */
function isSetting(item: InputItem): boolean {
  if (item.type === 'additional_tools' || item.type === 'configuration_update') return true
  return isMessage(item) && item.role !== 'user' && item.role !== 'assistant'
}

type Message = Extract<InputItem, { readonly role: string }>

function isMessage(item: InputItem): item is Message {
  return item.type === undefined || item.type === 'message'
}

function messageOf(text: string): InputItem {
  return {
    type: 'message',
    role: 'user',
    content: [{ type: 'input_text', text: `${SUMMARY_HEADING}${text}` }],
  }
}

function itemsOf({ input }: ResponsesRequest): readonly InputItem[] {
  return typeof input === 'string' ? [{ type: 'message', role: 'user', content: input }] : input
}

/**
 * Builds the request that asks the same model for a summary. Limits and output formats of the original request do not
 * apply to it.
 */
export function summaryRequest(request: ResponsesRequest): ResponsesRequest {
  const {
    text: _text,
    max_output_tokens: _most,
    plugins: _plugins,
    modalities: _modalities,
    prediction: _prediction,
    stop: _stop,
    context_management: _management,
    ...otherFields
  } = request as ResponsesRequest & ManagedRequest
  const items = itemsOf(request)
  const hasTools = (request.tools?.length ?? 0) > 0 || items.some(({ type }) => type === 'additional_tools')
  const task: InputItem = {
    type: 'message',
    role: 'user',
    content: [{ type: 'input_text', text: SUMMARY_TASK }],
  }
  return {
    ...otherFields,
    input: [...items, task],
    stream: false,
    ...(hasTools ? { tool_choice: 'none' as const } : {}),
  }
}

/**
 * The summary that the provider itself made, as an item; null if the output has none, because the model wrote a text.
 * @throws GatewayError `provider_unavailable` if the summary is empty
 */
export function providerSummaryIn({ output }: ResponseResource): SummaryItem | null {
  const item = output.find(({ type }) => type === 'compaction') as Partial<SummaryItem> | undefined
  if (item === undefined) return null
  const { id = `cmp_${randomText(24)}`, encrypted_content: content = '' } = item
  if (content === '')
    throw new GatewayError(
      'provider_unavailable',
      'The provider did not finish the summary of the conversation',
    )
  return { type: 'compaction', id, encrypted_content: content }
}

/** The summary that a model wrote. @throws GatewayError `provider_unavailable` if it is empty or not complete */
export function summaryIn({ status, output }: ResponseResource): string {
  const texts: string[] = []
  for (const item of output) {
    if (item.type !== 'message') continue
    for (const part of item.content) if (part.type === 'output_text') texts.push(part.text)
  }
  const text = texts.join('\n').trim()
  if (status === 'completed' && text !== '') return text
  throw new GatewayError('provider_unavailable', 'The model did not finish the summary of the conversation')
}

/** Approximate tokens of the messages that are kept next to a summary. */
const KEPT_MAX_TOKENS = 64_000

/** The user, developer and system messages that are kept next to a summary: the newest ones, in order. */
export function keptMessages(
  request: ResponsesRequest,
  tokensOf: (request: ResponsesRequest) => number,
): readonly object[] {
  const recent: object[] = []
  let remaining = KEPT_MAX_TOKENS
  for (const item of itemsOf(request).toReversed()) {
    if (!isMessage(item) || item.role === 'assistant') continue
    remaining -= tokensOf({ input: [item] })
    if (remaining < 0) break
    const { content, ...otherFields } = item as Message & { readonly content: unknown }
    recent.push({
      ...otherFields,
      type: 'message',
      id: (item as { id?: string | null }).id ?? `msg_${randomText(24)}`,
      status: 'completed',
      content: typeof content === 'string' ? [{ type: 'input_text', text: content }] : content,
    })
  }
  return recent.toReversed()
}

interface ManagedRequest {
  readonly context_management?: unknown
}

const MIN_THRESHOLD_TOKENS = 1_000

/**
 * The number of input tokens from which on the caller wants a summary; null if the caller wants none.
 * @throws GatewayError `invalid_request`
 */
export function thresholdOf(request: ResponsesRequest): number | null {
  const list = (request as ManagedRequest).context_management
  if (!Array.isArray(list)) return null
  let threshold: number | null = null
  for (const [index, entry] of (list as readonly unknown[]).entries()) {
    const { type, compact_threshold: tokens } = isObject(entry) ? entry : {}
    if (type !== 'compaction') {
      throw new GatewayError('invalid_request', `context_management[${index}].type: must be compaction`)
    }
    if (typeof tokens !== 'number' || !Number.isInteger(tokens) || tokens < MIN_THRESHOLD_TOKENS) {
      throw new GatewayError(
        'invalid_request',
        `context_management[${index}].compact_threshold: must be an integer from ${MIN_THRESHOLD_TOKENS}`,
      )
    }
    threshold = Math.min(threshold ?? tokens, tokens)
  }
  return threshold
}

/** The request, without its wish for a summary. */
export function withoutThreshold(request: ResponsesRequest): ResponsesRequest {
  const { context_management: _management, ...otherFields } = request as ResponsesRequest & ManagedRequest
  return otherFields
}

function isResult({ type }: InputItem): boolean {
  return type?.endsWith('_output') === true
}

/** A call, or the model's reasoning before it. */
function isStep(item: InputItem): boolean {
  return !isMessage(item) && !isResult(item) && !isSetting(item)
}

/**
 * The newest items, which follow a summary: the last message, or the last calls with their results. Null if there is
 * nothing else to summarize.
 */
export function newestItems(request: ResponsesRequest): readonly InputItem[] | null {
  const items = itemsOf(request)
  let from = items.length - 1
  const last = items[from]
  if (last === undefined) return null
  if (isResult(last)) {
    while (from > 0 && isResult(items[from - 1] as InputItem)) from--
    while (from > 0 && isStep(items[from - 1] as InputItem)) from--
  }
  return items.slice(0, from).some(item => !isSetting(item)) ? items.slice(from) : null
}

/** The request with a summary in place of everything except its settings and its newest items. */
export function withSummary(
  request: ResponsesRequest,
  summary: string,
  newest: readonly InputItem[],
): ResponsesRequest {
  const before = itemsOf(request).slice(0, -newest.length).filter(isSetting)
  return { ...request, input: [...before, messageOf(summary), ...newest] }
}

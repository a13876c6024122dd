/**
 * The catalogue in the format of the Messages API, for clients that send `anthropic-version`: model records, and pages
 * before or after an id. Pure.
 */
import { refuseField } from '../../base/errors.ts'
import { MODELS_PAGE_MAX } from '../../protocol/limits.ts'
import type { AnyFormatName, Model } from '../../protocol/provider.ts'
import { createdAt, hasParameter } from './model-documents.ts'
import { singleParameter } from './model-query.ts'

/** The header with which clients of that API send its version. */
const VERSION_HEADER = 'anthropic-version'
/** Default and maximum page size. */
/** Formats with the features that only this API has. */
const NATIVE_FORMATS: ReadonlySet<AnyFormatName> = new Set(['anthropic-messages'])

export function wantsMessagesShape(headers: ReadonlyMap<string, string>): boolean {
  return headers.has(VERSION_HEADER)
}

/** The record of one model. */
export function messagesModel(model: Model): object {
  const firstEndpoint = model.endpoints[0]
  return {
    type: 'model',
    id: model.id,
    display_name: model.name,
    created_at: createdAt(model),
    capabilities: capabilitiesOf(model),
    max_input_tokens: firstEndpoint?.contextLength ?? model.contextLength,
    max_tokens: firstEndpoint?.maxOutputTokens ?? model.maxOutputTokens,
    lifecycle: 'active',
    line: null,
    deprecated_at: null,
    retires_at: null,
  }
}

function capabilitiesOf({ endpoints, inputModalities }: Model): object {
  const anySupports = (name: string) => endpoints.some(endpoint => hasParameter(endpoint, name))
  const nativeSupport = support(endpoints.some(({ format }) => NATIVE_FORMATS.has(format)))
  const thinking = support(anySupports('reasoning'))
  const tools = support(anySupports('tools'))
  return {
    batch: support(true),
    citations: nativeSupport,
    code_execution: tools,
    context_management: {
      ...nativeSupport,
      clear_thinking_20251015: nativeSupport,
      clear_tool_uses_20250919: nativeSupport,
      compact_20260112: nativeSupport,
    },
    effort: { ...thinking, low: thinking, medium: thinking, high: thinking, max: thinking, xhigh: thinking },
    image_input: support(inputModalities.includes('image')),
    pdf_input: support(inputModalities.includes('file')),
    server_tools: { ...tools, code_execution: tools, web_search: tools },
    structured_outputs: support(anySupports('structured_outputs')),
    thinking: {
      ...thinking,
      types: { adaptive: thinking, between_tools: thinking, disabled: thinking, enabled: thinking },
    },
  }
}

function support(supported: boolean): { readonly supported: boolean } {
  return { supported }
}

/** The page that `limit`, `after_id` and `before_id` select. @throws GatewayError `invalid_request` */
export function messagesPage(models: readonly Model[], query: URLSearchParams): object {
  const { from, to, hasMore } = bounds(models, query)
  const pageModels = models.slice(from, to)
  return {
    data: pageModels.map(messagesModel),
    has_more: hasMore,
    first_id: pageModels[0]?.id ?? null,
    last_id: pageModels.at(-1)?.id ?? null,
  }
}

function bounds(models: readonly Model[], query: URLSearchParams) {
  const limit = limitOf(query)
  const after = findIndex(models, query, 'after_id')
  const before = findIndex(models, query, 'before_id')
  if (after !== null && before !== null)
    throw refuseField('before_id', 'must be left out when after_id is given')
  if (before !== null) {
    const from = Math.max(0, before - limit)
    return { from, to: before, hasMore: from > 0 }
  }
  const from = after === null ? 0 : after + 1
  return { from, to: from + limit, hasMore: from + limit < models.length }
}

function findIndex(models: readonly Model[], query: URLSearchParams, name: string): number | null {
  const id = singleParameter(query, name)
  if (id === null || id === '') return null
  const index = models.findIndex(model => model.id === id)
  if (index === -1) throw refuseField(name, 'is not the id of a model in this list')
  return index
}

function limitOf(query: URLSearchParams): number {
  const text = singleParameter(query, 'limit')
  if (text === null) return MODELS_PAGE_MAX
  const limit = Number(text)
  if (!/^\d{1,4}$/.test(text) || limit < 1 || limit > MODELS_PAGE_MAX)
    throw refuseField('limit', `must be an integer from 1 to ${MODELS_PAGE_MAX}`)
  return limit
}

/**
 * The model list of the simulated provider: GET /models, in the format of the requested API. Only OpenAI's format
 * states prices, and Anthropic's states no lengths. Pure.
 */
import type { SimFields } from './ask.ts'
import { SIM_MODELS } from './behaviours.ts'

/** A model in the list. */
export interface SimTold {
  readonly id: string
  /** USD per token, as text; null: the list contains no price. */
  readonly prices: { readonly prompt: string; readonly completion: string } | null
  readonly contextLength: number | null
}

/** The default models. One has no price, as at many providers. */
export function defaultModels(): readonly SimTold[] {
  const names = SIM_MODELS.filter(model => 'listed' in model).map(({ name }) => name)
  return [
    ...names.map(id => ({
      id,
      prices: id === 'refuse' ? null : { prompt: '0.0000001', completion: '0.0000004' },
      contextLength: 1_000_000,
    })),
    { id: 'embed', prices: { prompt: '0.0000001', completion: '0' }, contextLength: 8_192 },
  ]
}

/** Creation time of the models, in Unix seconds: constant. */
const CREATED_SECONDS = 1_750_000_000
const MAX_PAGE_SIZE = 1_000
const DEFAULT_PAGE_SIZE = 20

interface ListAsk {
  /** With its version, without the query. */
  readonly path: string
  readonly query: URLSearchParams
  /** True if the request has the header of Anthropic's API. */
  readonly isAnthropic: boolean
}

/** Null: the path is not a list of models. */
export function listReply(
  { path, query, isAnthropic }: ListAsk,
  models: readonly SimTold[],
): SimFields | null {
  if (!/^(?:\/v1(?:beta)?)?\/models$/.test(path)) return null
  if (path.startsWith('/v1beta/')) return geminiList(query, models)
  return isAnthropic ? messagesList(query, models) : openaiList(models)
}

function openaiList(models: readonly SimTold[]): SimFields {
  const data = models.map(({ id, prices, contextLength }) => ({
    id,
    object: 'model',
    created: CREATED_SECONDS,
    owned_by: 'sim',
    ...(contextLength === null ? {} : { context_length: contextLength }),
    ...(prices === null ? {} : { pricing: prices }),
  }))
  return { object: 'list', data }
}

function messagesList(query: URLSearchParams, models: readonly SimTold[]): SimFields {
  const after = models.findIndex(({ id }) => id === query.get('after_id'))
  const { page, isLast } = pageOf(models, after + 1, Number(query.get('limit') ?? DEFAULT_PAGE_SIZE))
  return {
    data: page.map(({ id }) => ({
      type: 'model',
      id,
      display_name: `Simulated ${id}`,
      created_at: new Date(CREATED_SECONDS * 1000).toISOString(),
    })),
    has_more: !isLast,
    first_id: page[0]?.id ?? null,
    last_id: page.at(-1)?.id ?? null,
  }
}

function geminiList(query: URLSearchParams, models: readonly SimTold[]): SimFields {
  const from = Number(query.get('pageToken') ?? 0)
  const { page, isLast } = pageOf(models, from, Number(query.get('pageSize') ?? DEFAULT_PAGE_SIZE))
  return {
    models: page.map(({ id, contextLength }) => ({
      name: `models/${id}`,
      displayName: `Simulated ${id}`,
      ...(contextLength === null ? {} : { inputTokenLimit: contextLength }),
      supportedGenerationMethods: id === 'embed' ? ['embedContent'] : ['generateContent'],
    })),
    ...(isLast ? {} : { nextPageToken: String(from + page.length) }),
  }
}

function pageOf(models: readonly SimTold[], from: number, limit: number) {
  const page = models.slice(from, from + Math.min(Math.max(limit, 1), MAX_PAGE_SIZE))
  return { page, isLast: from + page.length >= models.length }
}

/** The catalogue in the format of Google's API: model records, and pages by token. Pure. */
import { refuseField } from '../../base/errors.ts'
import { MODELS_PAGE_MAX } from '../../protocol/limits.ts'
import { type Model, makesEmbeddings } from '../../protocol/provider.ts'
import { hasParameter } from './model-documents.ts'
import { singleParameter } from './model-query.ts'

/** Default and maximum page size. */
const DEFAULT_PAGE_SIZE = 50
const PAGE_TOKEN = /^p(\d{1,9})$/

const GENERATION_METHODS = ['generateContent', 'streamGenerateContent', 'countTokens']
const EMBEDDING_METHODS = ['embedContent', 'batchEmbedContents']

/** The record of one model. */
export function googleModel(model: Model): object {
  const firstEndpoint = model.endpoints[0]
  const { contextLength, maxOutputTokens } = model
  return {
    name: `models/${model.id}`,
    baseModelId: model.id,
    version: '001',
    displayName: model.name,
    description: '',
    inputTokenLimit: firstEndpoint?.contextLength ?? contextLength ?? undefined,
    outputTokenLimit: firstEndpoint?.maxOutputTokens ?? maxOutputTokens ?? undefined,
    supportedGenerationMethods: makesEmbeddings(model) ? EMBEDDING_METHODS : GENERATION_METHODS,
    thinking: model.endpoints.some(endpoint => hasParameter(endpoint, 'reasoning')),
  }
}

/** The page that `pageSize` and `pageToken` select. @throws GatewayError `invalid_request` */
export function googlePage(models: readonly Model[], query: URLSearchParams): object {
  const from = offsetOf(query)
  const to = from + sizeOf(query)
  return {
    models: models.slice(from, to).map(googleModel),
    ...(to < models.length ? { nextPageToken: `p${to}` } : {}),
  }
}

/** A larger page than the maximum becomes the maximum, as in Google's API. */
function sizeOf(query: URLSearchParams): number {
  const text = singleParameter(query, 'pageSize') ?? singleParameter(query, 'page_size')
  if (text === null || text === '' || text === '0') return DEFAULT_PAGE_SIZE
  if (!/^\d{1,9}$/.test(text)) throw refuseField('pageSize', 'must be an integer of at least 0')
  return Math.min(MODELS_PAGE_MAX, Number(text))
}

function offsetOf(query: URLSearchParams): number {
  const token = singleParameter(query, 'pageToken') ?? singleParameter(query, 'page_token')
  if (token === null || token === '') return 0
  const [, offset] = PAGE_TOKEN.exec(token) ?? []
  if (offset === undefined) throw refuseField('pageToken', 'must be the nextPageToken of the previous page')
  return Number(offset)
}

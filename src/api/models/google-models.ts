/** The catalogue in the format of Google's API: model records, and pages by token. Pure. */
import { refuseField } from '../../base/errors.ts'
import { type Model, makesEmbeddings } from '../../protocol/provider.ts'
import { hasParameter } from './model-documents.ts'
import { single } from './model-query.ts'

/** Default and maximum page size. */
const PAGE_DEFAULT = 50
const PAGE_MAX = 1000
const TOKEN = /^p(\d{1,9})$/

const GENERATES = ['generateContent', 'streamGenerateContent', 'countTokens']
const EMBEDS = ['embedContent', 'batchEmbedContents']

/** The record of one model. */
export function googleModel(model: Model): object {
  const first = model.endpoints[0]
  const { contextLength, maxOutputTokens } = model
  return {
    name: `models/${model.id}`,
    baseModelId: model.id,
    version: '001',
    displayName: model.name,
    description: '',
    inputTokenLimit: first?.contextLength ?? contextLength ?? undefined,
    outputTokenLimit: first?.maxOutputTokens ?? maxOutputTokens ?? undefined,
    supportedGenerationMethods: makesEmbeddings(model) ? EMBEDS : GENERATES,
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
  const text = single(query, 'pageSize') ?? single(query, 'page_size')
  if (text === null || text === '' || text === '0') return PAGE_DEFAULT
  if (!/^\d{1,9}$/.test(text)) throw refuseField('pageSize', 'must be an integer of at least 0')
  return Math.min(PAGE_MAX, Number(text))
}

function offsetOf(query: URLSearchParams): number {
  const token = single(query, 'pageToken') ?? single(query, 'page_token')
  if (token === null || token === '') return 0
  const [, place] = TOKEN.exec(token) ?? []
  if (place === undefined) throw refuseField('pageToken', 'must be the nextPageToken of the previous page')
  return Number(place)
}

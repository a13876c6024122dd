/** Fetches a provider's own model list, page by page. Main thread. */
import type { Clock } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import type { Provider } from '../../protocol/provider.ts'
import { API_OF_FORMAT } from '../format-apis.ts'
import { type KnownModel, LISTED_MAX, readList } from '../known-models.ts'
import { authHeaders } from './auth.ts'
import type { Transport } from './transport.ts'
import { type WholeReplyTerms, wholeReply } from './whole-reply.ts'

/** Enough for some thousand models, each with a full description. */
const LIST_MAX_BYTES = 32 * 1024 * 1024
const PAGES_MAX = 20
const PAGE_TIMEOUT_MS = 20_000
/** Time limit for all pages, because other providers' lists wait for this one. */
const LIST_TIMEOUT_MS = 60_000

interface ListTerms {
  readonly clock: Clock
  readonly signal: AbortSignal
  /** Limit for all pages together. Default 32 MiB. */
  readonly maxBytes?: number
}

/** True if the provider's API is known to have a list. */
export function hasList({ format, baseUrl }: Pick<Provider, 'format' | 'baseUrl'>): boolean {
  // Only a customer's key fills the gaps in an address.
  return API_OF_FORMAT[format].list !== null && baseUrl !== null && !baseUrl.includes('{')
}

/** The models of one list. */
interface ListedModels {
  readonly models: readonly KnownModel[]
  /** Number of further models in the list, which are ignored. */
  readonly leftOut: number
}

/**
 * The first 10,000 models in the provider's list; each name once.
 * @throws GatewayError; or the reason of the signal
 */
export async function listModels(
  client: Transport,
  provider: Provider,
  { clock, signal, maxBytes = LIST_MAX_BYTES }: ListTerms,
): Promise<ListedModels> {
  const deadline = new AbortController()
  const timer = clock.after(LIST_TIMEOUT_MS, () =>
    deadline.abort(new GatewayError('upstream_timeout', 'its list of models took too long')),
  )
  const signalOrDeadline = AbortSignal.any([signal, deadline.signal])
  const models = new Map<string, KnownModel>()
  const largestPage = API_OF_FORMAT[provider.format].list?.largestPage ?? ''
  let query: string | null = largestPage
  let remainingBytes = maxBytes
  let leftOut = 0
  try {
    for (let page = 0; page < PAGES_MAX && query !== null && leftOut === 0; page++) {
      const listPage = await requestPage(client, provider, query, {
        maxBytes: remainingBytes,
        signal: signalOrDeadline,
      })
      remainingBytes -= listPage.bytes
      leftOut += listPage.leftOut
      for (const model of listPage.models) {
        if (models.has(model.id)) continue
        if (models.size < LISTED_MAX) models.set(model.id, model)
        else leftOut++
      }
      query = listPage.next === null ? null : [largestPage, listPage.next].filter(Boolean).join('&')
    }
  } finally {
    timer.cancel()
  }
  return { models: [...models.values()], leftOut }
}

async function requestPage(client: Transport, provider: Provider, query: string, terms: WholeReplyTerms) {
  const { status, text } = await wholeReply(
    client,
    {
      method: 'GET',
      url: new URL(`${provider.baseUrl}/models${query === '' ? '' : `?${query}`}`),
      headers: {
        accept: 'application/json',
        ...API_OF_FORMAT[provider.format].list?.headers,
        ...provider.headers,
        ...authHeaders(provider.auth, provider.apiKey),
      },
      body: '',
      headersTimeoutMs: PAGE_TIMEOUT_MS,
      idleTimeoutMs: PAGE_TIMEOUT_MS,
      egress: provider.egress,
    },
    terms,
  )
  // The error contains no text of the provider, because that may quote the key.
  if (status !== 200) throw new GatewayError('provider_unavailable', `it answered ${status}`)
  const page = readList(text)
  if (page === null) throw new GatewayError('provider_unavailable', 'its answer is not a list of models')
  return { ...page, bytes: Buffer.byteLength(text) }
}

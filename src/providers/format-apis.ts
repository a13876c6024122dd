/** Other APIs of each format, besides its calls: model lists, addresses of deployments. Pure. */
import type { AnyFormatName } from '../protocol/provider.ts'

/** One row per format. The compiler requires a row for a new format. */
interface FormatApi {
  /** How to request the list of models; null: the API has no known list. */
  readonly list: { readonly largestPage: string; readonly headers: Readonly<Record<string, string>> } | null
  /** The end of a deployment's address in this format; null: there are no deployments. */
  readonly deploymentPath: string | null
}

const PLAIN_LIST = { largestPage: '', headers: {} } as const
const NO_API: FormatApi = { list: null, deploymentPath: null }

export const API_OF_FORMAT: Readonly<Record<AnyFormatName, FormatApi>> = {
  'openai-responses': { list: PLAIN_LIST, deploymentPath: '/responses' },
  'openai-chat': { list: PLAIN_LIST, deploymentPath: '/chat/completions' },
  'openai-embeddings': { list: PLAIN_LIST, deploymentPath: '/embeddings' },
  'anthropic-messages': {
    list: { largestPage: 'limit=1000', headers: { 'anthropic-version': '2023-06-01' } },
    deploymentPath: '/messages',
  },
  'google-gemini': { list: { largestPage: 'pageSize=1000', headers: {} }, deploymentPath: null },
  'bedrock-converse': NO_API,
  'cohere-embeddings': NO_API,
  'gemini-embeddings': NO_API,
  'vertex-embeddings': NO_API,
  'ollama-embeddings': NO_API,
}

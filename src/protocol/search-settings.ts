/** Settings of web search, shared by its tool spellings and by the web plugin. Pure. */
import { Type } from '@sinclair/typebox'
import { SEARCH_HANDLES_MAX, SEARCH_RESULT_MAX_CHARS, SEARCH_RESULTS_MAX } from './limits.ts'
import { maybe, oneOf } from './schema.ts'

const domains = maybe(Type.Array(Type.String()))
const handles = maybe(Type.Array(Type.String(), { maxItems: SEARCH_HANDLES_MAX }))

export const userLocation = maybe(
  Type.Object({
    type: maybe(Type.Literal('approximate')),
    city: maybe(Type.String()),
    region: maybe(Type.String()),
    country: maybe(Type.String()),
    timezone: maybe(Type.String()),
  }),
)

export const xSearch = maybe(
  Type.Object({
    allowed_x_handles: handles,
    excluded_x_handles: handles,
    from_date: maybe(Type.String()),
    to_date: maybe(Type.String()),
    enable_image_understanding: maybe(Type.Boolean()),
    enable_video_understanding: maybe(Type.Boolean()),
  }),
)

export const searchMode = maybe(
  oneOf('instant', 'fast', 'auto', 'deep-lite', 'deep', 'deep-reasoning', 'turbo', 'basic', 'advanced'),
)

export const maxResults = maybe(Type.Integer({ minimum: 1, maximum: SEARCH_RESULTS_MAX }))
export const maxUses = maybe(Type.Integer({ minimum: 1 }))

/** Where a search may look: the inline spellings nest their domain lists. */
export const filters = maybe(
  Type.Object({ allowed_domains: domains, blocked_domains: domains, excluded_domains: domains }),
)

/** Settings that every spelling of the web search tool has. */
export const searchSettings = {
  engine: maybe(oneOf('auto', 'native', 'exa', 'parallel', 'firecrawl', 'perplexity')),
  mode: searchMode,
  max_results: maxResults,
  max_total_results: maybe(Type.Integer({ minimum: 1 })),
  max_uses: maxUses,
  max_characters: maybe(Type.Integer({ minimum: 1, maximum: SEARCH_RESULT_MAX_CHARS })),
  search_context_size: maybe(oneOf('low', 'medium', 'high')),
  allowed_domains: domains,
  excluded_domains: domains,
  user_location: userLocation,
  x_search: xSearch,
} as const

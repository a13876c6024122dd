/**
 * Tools that the gateway runs: `gateway:<x>`, with the public spelling `openrouter:<x>` as an alias; `tool_search` also
 * without a prefix. Their settings are under `parameters`. Pure. A new server tool adds its row here. All spellings of
 * web search share their settings, and the web plugin has most of them.
 */
import { type TSchema, Type } from '@sinclair/typebox'
import { AnyObject, kind, maybe, oneOf } from './json/schema.ts'
import {
  FILE_RESULTS_MAX,
  FUSION_MODELS_MAX,
  FUSION_TOOL_STEPS_MAX,
  FUSION_TOOLS_MAX,
  NAMED_TOOLS_MAX,
  SEARCH_HANDLES_MAX,
  SEARCH_RESULT_MAX_CHARS,
  SEARCH_RESULTS_MAX,
  TEMPERATURE_MAX,
} from './limits.ts'

// Web search

/** The search engines that the gateway can ask; `features/tools/web/search-engines.ts` has a row for each. */
export const SEARCH_ENGINE_KINDS = ['exa', 'parallel', 'firecrawl', 'perplexity', 'searxng'] as const
export type SearchEngineKind = (typeof SEARCH_ENGINE_KINDS)[number]
/** Those that also fetch pages; `features/tools/web/page-engines.ts` has a row for each. */
export const PAGE_ENGINE_KINDS = [
  'exa',
  'parallel',
  'firecrawl',
] as const satisfies readonly SearchEngineKind[]

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

/** Domains of a search; the inline spellings nest these lists. */
export const filters = maybe(
  Type.Object({ allowed_domains: domains, blocked_domains: domains, excluded_domains: domains }),
)

/** Settings that every spelling of the web search tool has. */
export const searchSettings = {
  engine: maybe(oneOf('auto', 'native', ...SEARCH_ENGINE_KINDS)),
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

// Server tools

const text = maybe(Type.String())
const texts = maybe(Type.Array(Type.String()))
const flag = maybe(Type.Boolean())
const positive = maybe(Type.Integer({ minimum: 1 }))
const temperature = maybe(Type.Number({ minimum: 0, maximum: TEMPERATURE_MAX }))
const reasoning = maybe(AnyObject)
/** Trimmed by the tool; unique among its entries. */
const instanceName = maybe(
  Type.String({
    pattern: '^[a-zA-Z0-9 _-]{1,64}$',
    description: 'a name of 1 to 64 letters, digits, spaces, underscores and hyphens',
  }),
)
const innerTools = maybe(Type.Array(Type.Object({ type: Type.String(), parameters: maybe(AnyObject) })))

const networkPolicy = maybe(
  Type.Object({
    type: oneOf('disabled', 'allowlist'),
    allowed_domains: maybe(Type.Array(Type.String(), { maxItems: 50 })),
  }),
)
const environment = maybe(
  Type.Object({
    type: oneOf('container_auto', 'container_reference'),
    file_ids: maybe(Type.Array(Type.String(), { maxItems: 20 })),
    container_id: maybe(
      Type.String({
        pattern: '^[\\w-]{1,40}$',
        description: 'an id of 1 to 40 letters, digits, underscores and hyphens',
      }),
    ),
    network_policy: networkPolicy,
  }),
)

const sleepSeconds = maybe(Type.Integer({ minimum: 1, maximum: 2_592_000 }))

/** `parameters` of each tool; an empty object if the tool has none. */
const PARAMETERS = {
  web_search: Type.Object(searchSettings),
  web_fetch: Type.Object({
    engine: maybe(oneOf('auto', 'native', 'gateway', 'openrouter', ...PAGE_ENGINE_KINDS)),
    max_uses: positive,
    max_content_tokens: positive,
    allowed_domains: texts,
    blocked_domains: texts,
  }),
  datetime: Type.Object({ timezone: text }),
  image_generation: Type.Object({ model: text }),
  fusion: Type.Object({
    analysis_models: maybe(Type.Array(Type.String(), { minItems: 1, maxItems: FUSION_MODELS_MAX })),
    model: text,
    max_tool_calls: maybe(Type.Integer({ minimum: 1, maximum: FUSION_TOOL_STEPS_MAX })),
    preset: maybe(oneOf('general-high', 'general-budget', 'general-fast')),
    tools: maybe(
      Type.Array(Type.Object({ type: Type.String(), parameters: maybe(AnyObject) }), {
        maxItems: FUSION_TOOLS_MAX,
      }),
    ),
    max_completion_tokens: positive,
    reasoning,
    temperature,
    cache_control: maybe(AnyObject),
  }),
  advisor: Type.Object({
    name: instanceName,
    model: text,
    instructions: text,
    forward_transcript: flag,
    stream: flag,
    max_completion_tokens: positive,
    reasoning,
    temperature,
  }),
  subagent: Type.Object({
    name: instanceName,
    model: text,
    instructions: text,
    tools: innerTools,
    max_tool_calls: maybe(Type.Integer({ minimum: 1, maximum: 25 })),
    max_completion_tokens: positive,
    reasoning,
    temperature,
    inherit_functions: flag,
    inherited_function_names: maybe(Type.Array(Type.String(), { maxItems: NAMED_TOOLS_MAX })),
  }),
  files: Type.Object({}),
  file_search: Type.Object({
    vector_store_ids: texts,
    /** The tool checks them. */
    filters: maybe(AnyObject),
    max_num_results: maybe(Type.Integer({ minimum: 1, maximum: FILE_RESULTS_MAX })),
    ranking_options: maybe(
      Type.Object({
        ranker: text,
        score_threshold: maybe(Type.Number({ minimum: 0, maximum: 1 })),
      }),
    ),
  }),
  memory: Type.Object({ scope: maybe(oneOf('workspace', 'end_user')) }),
  text_editor: Type.Object({}),
  experimental__search_models: Type.Object({ max_results: maybe(Type.Integer({ minimum: 1, maximum: 20 })) }),
  tool_search: Type.Object({ max_results: maybe(Type.Integer({ minimum: 1, maximum: 50 })) }),
  bash: Type.Object({ engine: maybe(oneOf('auto', 'native', 'gateway', 'openrouter')), environment }),
  shell: Type.Object({
    engine: maybe(oneOf('auto', 'gateway', 'openrouter')),
    environment,
    sleep_after_seconds: sleepSeconds,
  }),
  code_interpreter: Type.Object({
    container: maybe(Type.Union([Type.String(), AnyObject])),
    environment,
    sleep_after_seconds: sleepSeconds,
  }),
  apply_patch: Type.Object({ engine: maybe(oneOf('auto', 'native', 'gateway', 'openrouter')) }),
} satisfies Record<string, TSchema>

/**
 * Rules that a schema cannot express. Each returns why it refuses the parameters of its tool, beginning with the field
 * name; null: they are valid.
 */
const PARAMETER_RULES: {
  readonly [name in string]?: (parameters: Readonly<Record<string, unknown>>) => string | null
} = {
  datetime: ({ timezone }) =>
    typeof timezone !== 'string' || isTimeZone(timezone)
      ? null
      : 'timezone: must be an IANA time zone, for example Europe/Berlin',
}

/** The tools that the gateway may run, without a prefix. */
export type ServerToolName = keyof typeof PARAMETERS
type Spelling = `gateway:${ServerToolName}` | `openrouter:${ServerToolName}` | 'tool_search'

/** A tool that the gateway runs. `parameters` fit the schema; the tool's own file reads them. */
export interface GatewayTool {
  type: Spelling
  parameters?: Record<string, unknown> | null
  [field: string]: unknown
}

const SERVER_TOOL_NAMES = Object.keys(PARAMETERS) as readonly ServerToolName[]

/** The names of server tools, with or without a prefix, as a pattern. */
export const SERVER_TOOL_PATTERN = `^(?:(?:gateway|openrouter):)?(?:${SERVER_TOOL_NAMES.join('|')})$`

/** The name of the tool by each of its spellings. */
const NAME_OF = new Map<string, ServerToolName>([
  ...SERVER_TOOL_NAMES.flatMap(name => [
    [`gateway:${name}`, name] as const,
    [`openrouter:${name}`, name] as const,
  ]),
  ['tool_search', 'tool_search'],
])

/** The name of the gateway tool with this type; null: another tool. */
export function serverToolName(type: string): ServerToolName | null {
  return NAME_OF.get(type) ?? null
}

/** The reason why a rule refuses the settings of a tool, beginning with the field name; null: they are valid. */
export function settingsRefusal(name: string, { parameters }: GatewayTool): string | null {
  return PARAMETER_RULES[name]?.(parameters ?? {}) ?? null
}

/** Maximum length of a time zone's name. */
const ZONE_MAX_CHARS = 64

/** True for an IANA name such as `Europe/Berlin` or `UTC`, and for an offset such as `+01:00`. */
export function isTimeZone(name: string): boolean {
  if (name.length > ZONE_MAX_CHARS) return false
  try {
    new Intl.DateTimeFormat('en', { timeZone: name })
    return true
  } catch {
    return false
  }
}

/** Choices (`tool_choice`) that force a gateway tool, by its type. */
export const forcedGatewayTools = Object.fromEntries(
  [...NAME_OF.keys()].map(type => [type, kind(type)]),
) as unknown as Record<Spelling, ReturnType<typeof Type.Unsafe<{ type: Spelling }>>>

export const gatewayTools = Object.fromEntries(
  [...NAME_OF].map(([type, name]) => [type, kind(type, { parameters: maybe(PARAMETERS[name]) })]),
) as unknown as Record<Spelling, ReturnType<typeof Type.Unsafe<GatewayTool>>>

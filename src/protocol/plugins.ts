/**
 * Elements of `plugins`: the 13 ids with their settings. Pure. The plugin itself applies defaults: a setting that the
 * client leaves out is not added to the request. A new plugin adds its row here.
 */
import { type Static, Type } from '@sinclair/typebox'
import {
  maxResults,
  maxUses,
  SEARCH_ENGINE_KINDS,
  searchMode,
  userLocation,
  xSearch,
} from './gateway-tools.ts'
import { AnyObject, maybe, oneOf, text, variants } from './json/schema.ts'
import {
  ALIGNMENT_RETRIES_MAX,
  ALIGNMENT_RULE_MAX_CHARS,
  ALIGNMENT_RULES_MAX,
  ALIGNMENT_THRESHOLD_MAX,
  FUSION_MODELS_MAX,
  FUSION_TOOL_STEPS_MAX,
  FUSION_TOOLS_MAX,
  ROUTER_PATTERN_MAX_CHARS,
  ROUTER_PATTERNS_MAX,
  ROUTER_TRADEOFF_MAX,
} from './limits.ts'

const enabled = maybe(Type.Boolean())
const patterns = maybe(Type.Array(text({ max: ROUTER_PATTERN_MAX_CHARS }), { maxItems: ROUTER_PATTERNS_MAX }))
const domains = maybe(Type.Array(Type.String()))

/** Closed: an unknown setting must not look as if it were enforced. */
const Alignment = Type.Object(
  {
    id: Type.Literal('alignment'),
    rules: Type.Array(text({ min: 1, max: ALIGNMENT_RULE_MAX_CHARS, singleLine: true }), {
      minItems: 1,
      maxItems: ALIGNMENT_RULES_MAX,
    }),
    mode: Type.Optional(oneOf('enforce', 'audit')),
    instruct: Type.Optional(Type.Boolean()),
    max_retries: Type.Optional(Type.Integer({ minimum: 0, maximum: ALIGNMENT_RETRIES_MAX })),
    threshold: Type.Optional(Type.Number({ exclusiveMinimum: 0, maximum: ALIGNMENT_THRESHOLD_MAX })),
  },
  { additionalProperties: false },
)

const autoRouterSettings = {
  enabled,
  allowed_models: patterns,
  excluded_models: patterns,
  cost_tier: maybe(oneOf('low', 'medium', 'high', 'xhigh', 'max')),
  cost_quality_tradeoff: maybe(Type.Integer({ minimum: 0, maximum: ROUTER_TRADEOFF_MAX })),
}

const AutoRouter = Type.Object({
  id: Type.Literal('auto-router'),
  ...autoRouterSettings,
  pin_model: maybe(Type.Boolean()),
})
const AutoBetaRouter = Type.Object({ id: Type.Literal('auto-beta-router'), ...autoRouterSettings })

const ContextCompression = Type.Object({
  id: Type.Literal('context-compression'),
  enabled,
  engine: maybe(Type.Literal('middle-out')),
})

const FileParser = Type.Object({
  id: Type.Literal('file-parser'),
  enabled,
  pdf: maybe(Type.Object({ engine: maybe(oneOf('mistral-ocr', 'native', 'cloudflare-ai', 'pdf-text')) })),
})

const Fusion = Type.Object({
  id: Type.Literal('fusion'),
  enabled,
  model: maybe(Type.String({ minLength: 1 })),
  analysis_models: maybe(
    Type.Array(Type.String({ minLength: 1 }), { minItems: 1, maxItems: FUSION_MODELS_MAX }),
  ),
  max_tool_calls: maybe(Type.Integer({ minimum: 1, maximum: FUSION_TOOL_STEPS_MAX })),
  preset: maybe(oneOf('general-high', 'general-budget', 'general-fast')),
  tools: maybe(
    Type.Array(Type.Object({ type: Type.String({ minLength: 1 }), parameters: maybe(AnyObject) }), {
      maxItems: FUSION_TOOLS_MAX,
    }),
  ),
})

/** Closed: its public description makes an unknown field an error. */
const JevRouter = Type.Object(
  {
    id: Type.Literal('jev-router'),
    cost_tier: maybe(oneOf('low', 'medium', 'high')),
    models: patterns,
    allowed_models: patterns,
    excluded_models: patterns,
  },
  { additionalProperties: false },
)

const Moderation = Type.Object({ id: Type.Literal('moderation') })

const ParetoRouter = Type.Object({
  id: Type.Literal('pareto-router'),
  enabled,
  min_coding_score: maybe(Type.Number({ minimum: 0, maximum: 1 })),
  max_price: maybe(Type.Number({ minimum: 0 })),
  price_source: maybe(oneOf('prompt', 'weighted_avg')),
})

const ResponseHealing = Type.Object({ id: Type.Literal('response-healing'), enabled })

const SwitchyardRouter = Type.Object({
  id: Type.Literal('switchyard-router'),
  enabled,
  algorithm: maybe(oneOf('capability', 'stage', 'auto', 'random', 'composite', 'passthrough')),
})

const Web = Type.Object({
  id: Type.Literal('web'),
  enabled,
  // Sorted, as the OpenAPI document always had them.
  engine: maybe(oneOf('native', ...SEARCH_ENGINE_KINDS)),
  max_results: maxResults,
  max_uses: maxUses,
  mode: searchMode,
  search_prompt: maybe(Type.String()),
  include_domains: domains,
  exclude_domains: domains,
  user_location: userLocation,
  x_search: xSearch,
})

const WebFetch = Type.Object({
  id: Type.Literal('web-fetch'),
  allowed_domains: domains,
  blocked_domains: domains,
  max_content_tokens: maybe(Type.Integer({ minimum: 1 })),
  max_uses: maxUses,
})

/** Settings of one plugin; `id` says which. */
export const PluginSettings = variants(
  {
    alignment: Alignment,
    'auto-beta-router': AutoBetaRouter,
    'auto-router': AutoRouter,
    'context-compression': ContextCompression,
    'file-parser': FileParser,
    fusion: Fusion,
    'jev-router': JevRouter,
    moderation: Moderation,
    'pareto-router': ParetoRouter,
    'response-healing': ResponseHealing,
    'switchyard-router': SwitchyardRouter,
    web: Web,
    'web-fetch': WebFetch,
  },
  { noun: 'plugin', tag: 'id' },
)
export type PluginSettings = Static<typeof PluginSettings>

/** Settings of server tools: web search, pages, MCP and fusion. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import {
  closed,
  type Frozen,
  field,
  group,
  Milliseconds,
  ModelName,
  nullable,
  oneOf,
  required,
  setting,
} from '../../base/settings/setting.ts'
import { SEARCH_ENGINE_KINDS } from '../../protocol/gateway-tools.ts'
import { DOCUMENT_MAX_BYTES, FUSION_MODELS_MAX } from '../../protocol/limits.ts'
import type { StorageSettings } from '../../storage/settings.ts'
import type { SandboxSettings } from '../sandbox/settings.ts'

const Fee = Type.String({
  pattern: '^\\d{1,3}(\\.\\d{1,12})?$',
  expected: 'a price in quotes, in US dollars, such as "0.005"',
})

export const SearchEngineSchema = Type.Object(
  {
    name: required(
      Type.String({ pattern: '^[a-z0-9][a-z0-9._-]{0,63}$' }),
      'for `tools.webSearch.default`, and for error messages',
    ),
    kind: required(
      oneOf(SEARCH_ENGINE_KINDS),
      'the API that it uses; `engine` in a request selects the first row of that kind',
    ),
    baseUrl: field(
      Type.String({
        pattern: '^https?://[^\\s?#]+$',
        expected: 'an http or https URL without query and fragment',
      }),
      'default: the public address of the kind; required for `searxng`',
    ),
    apiKey: field(
      Type.String({ pattern: '^[\\x21-\\x7e]{1,512}$' }),
      'the key for the search engine, sent only in a header; required for every kind except `searxng`',
    ),
    searchPrice: field(Fee, 'USD per search; default: the public price of the kind and the mode'),
    pagePrice: field(Fee, 'USD per page that web fetch reads with it; default: the public price of the kind'),
  },
  closed,
)

export interface SearchEngineRow extends Frozen<Static<typeof SearchEngineSchema>> {}

export const webSearchSettings = group({
  engines: setting(
    Type.Array(SearchEngineSchema, { maxItems: 20 }),
    'the search engines of [web search](web.md); without one, only providers with their own search and the simulator can search',
    { default: [] },
  ),
  default: setting(
    nullable(Type.String({ minLength: 1 })),
    'the `name` of the engine for requests that name none; default: the first one',
  ),
  timeoutMs: setting(Milliseconds, "time limit for an engine's answer; deep searches take half a minute", {
    default: 30_000,
  }),
})

export const webFetchSettings = group({
  allowHttp: setting(Type.Boolean(), 'true: plain HTTP to public addresses is also allowed', {
    default: false,
  }),
  allowPrivate: setting(
    Type.Boolean(),
    'true: any address and port is allowed, also over HTTP. Every model with the tool, and so all text that it reads, can then make the gateway read from addresses in your internal network',
    { default: false },
  ),
  maxBytes: setting(
    Type.Integer({ minimum: 1, maximum: DOCUMENT_MAX_BYTES }),
    'maximum size of one page; a thread keeps at most 16 times as much in memory',
    { default: 10_485_760 },
  ),
  timeoutMs: setting(Milliseconds, 'time limit for one page, including name lookup, redirects and download', {
    default: 10_000,
  }),
})

export const mcpSettings = group({
  allowPrivate: setting(
    Type.Boolean(),
    'true: the [mcp](mcp.md) server tool may reach any address and port, also over HTTP. Every caller with a key can then make the gateway send requests into your internal network',
    { default: false },
  ),
})

export const fusionSettings = group({
  panel: setting(
    Type.Array(ModelName, { maxItems: FUSION_MODELS_MAX }),
    'models in the catalogue that answer in a [fusion](fusion.md) if the request names none; empty: the three most expensive models in the catalogue, from different vendors if possible',
    { default: [] },
  ),
  budgetPanel: setting(
    Type.Array(ModelName, { maxItems: FUSION_MODELS_MAX }),
    'the same for the preset `general-budget`; empty: the three cheapest models that cost something',
    { default: [] },
  ),
  fastPanel: setting(
    Type.Array(ModelName, { maxItems: FUSION_MODELS_MAX }),
    'the same for the preset `general-fast`; empty: the three cheapest models that cost something, since small models are fast',
    { default: [] },
  ),
  analyst: setting(
    nullable(ModelName),
    'the model that compares the answers, and also writes the answer of `gateway/fusion`; null: the outer model compares, and the first panel model writes',
  ),
})

export interface FusionSettings extends Frozen<Static<typeof fusionSettings>> {}

export interface McpSettings extends Frozen<Static<typeof mcpSettings>> {}

/** The settings that server tools read. */
export interface ToolSettings {
  readonly fusion: FusionSettings
  readonly storage: StorageSettings
  readonly tools: {
    readonly mcp: McpSettings
    readonly sandbox: SandboxSettings
    readonly webSearch: Frozen<Static<typeof webSearchSettings>>
  }
}

/**
 * The schemas of `providers`, `models`, `routes` and `rollouts` in the configuration file, listed in
 * docs/configuration.md. Pure.
 */
import { type Static, Type } from '@sinclair/typebox'
import { closed, type Frozen, field, ModelName, oneOf, required, Slug } from '../base/settings/setting.ts'
import { DATA_REGIONS } from '../protocol/data-regions.ts'
import { EFFORTS } from '../protocol/efforts.ts'
import {
  ABORT_POLICIES,
  AUTH_SCHEMES,
  COMPACTION_MODES,
  CONTINUE_MODES,
  EMBEDDINGS_FORMAT_NAMES,
  FORMAT_NAMES,
  JSON_FORMATS,
  PROMPT_CACHING,
  QUIRKS,
  SERVICE_TIERS,
  TRANSPORTS,
} from '../protocol/provider.ts'
import { ProviderPreferences } from '../protocol/request.ts'
import { ALL_PERCENT, DEFAULT_GUARD_ERRORS, DEFAULT_STEPS } from '../protocol/rollout.ts'
import { CONDITION_FIELDS, CONDITION_OPS, STICKY_UNITS, TAG_PREFIX } from '../protocol/route.ts'

const ContinueStreamsField = Type.Union([Type.Boolean(), Type.Literal('instruction')], {
  expected: 'true, false or "instruction"',
})
const Name = Type.String({ minLength: 1, maxLength: 128 })
const File = Type.String({ minLength: 1 })
const Count = Type.Integer({ minimum: 1 })
const NonEmptyTexts = Type.Array(Type.String(), { minItems: 1 })
const Price = Type.String({
  pattern: '^\\d{1,3}(\\.\\d{1,12})?$',
  expected: 'a price in quotes, in US dollars for one token, such as "0.0000005"',
})
const Factor = Type.String({
  pattern: '^\\d(?:\\.\\d{1,6})?$',
  expected: 'a decimal number below 10, as a string',
})
const Format = oneOf([...FORMAT_NAMES, ...EMBEDDINGS_FORMAT_NAMES])

/** `vendor/model` with further slashes allowed; `~` before the vendor of an alias; variants after colons. */
const MODEL_ID =
  '~?[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)+(?::[A-Za-z0-9][A-Za-z0-9._-]*)*'
/** One star, at the end: after the slash of the vendor, or after the beginning of a name. */
const WILDCARD = '[A-Za-z0-9][A-Za-z0-9._-]*/(?:[A-Za-z0-9][A-Za-z0-9._:/-]*)?\\*'
const ModelId = Type.String({
  pattern: `^(?:${MODEL_ID}|${WILDCARD})$`,
  maxLength: 256,
  expected: 'the form vendor/model, such as openai/gpt-5-mini, or vendor/*',
  explain: (id: unknown) =>
    typeof id === 'string' && id.includes('*')
      ? 'at most one star, at the end and after the vendor, such as openai/*'
      : undefined,
})
/** Like an id, but the vendor is optional. */
const ALIAS = '~?[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*(?::[A-Za-z0-9][A-Za-z0-9._-]*)*'
const Alias = Type.String({
  pattern: `^${ALIAS}$`,
  maxLength: 256,
  expected: 'the form vendor/model or model, such as openai/gpt-5-mini or gpt-5-mini',
})

/** Fields of `SupportedSettings`. */
function supportedSettingsFields(subject: string, defaultText: string) {
  return {
    efforts: field(
      Type.Array(oneOf(EFFORTS)),
      `efforts of reasoning that ${subject}; others become the [nearest](inference.md#what-a-model-takes), and without any the setting is left out. Default: ${defaultText}`,
    ),
    jsonFormats: field(
      Type.Array(oneOf(JSON_FORMATS)),
      `formats of answers that ${subject}; others become words in the prompt. Default: ${defaultText}`,
    ),
    jsonBesideTools: field(Type.Boolean(), `false: not in requests with tools. Default: ${defaultText}`),
  }
}

export const ProviderSchema = Type.Object(
  {
    slug: required(Slug, 'slug of a built-in provider to change, or a new one'),
    name: field(Name, 'display name; default: as in the built-in row, or the slug'),
    format: field(Format, 'wire format of the provider; optional only if the built-in row has one'),
    baseUrl: field(
      Type.String({
        pattern: '^https?://[^\\s?#]+$',
        expected: 'an http or https URL without query and fragment',
      }),
      "base URL, to which the format's paths are appended",
    ),
    apiKey: field(
      Type.String({ pattern: '^[\\x20-\\x7e\\r\\n\\t]+$' }),
      "the gateway's key for the provider, in any of the provider's key formats ([keys](byok.md#keys))",
    ),
    apiKeyFile: field(
      File,
      'a file with that key. If its content changes, the new key is used [without a restart](byok.md#the-gateways-own-key)',
    ),
    auth: field(
      oneOf(AUTH_SCHEMES),
      'how requests carry the key; default: as the format does, or `none` for a custom provider without a key',
    ),
    region: field(
      Type.String({ pattern: '^[a-z0-9-]{1,40}$' }),
      'replaces `{region}` in the base URL for keys that name no region; default: as in the built-in row',
    ),
    tokenUrl: field(
      Type.String({ pattern: '^https?://[^\\s?#]+$' }),
      'URL that exchanges a service account for a token; default: as in the built-in row',
    ),
    hosts: field(
      Type.Array(Type.String({ pattern: '^[a-z0-9*.-]{1,253}$' }), { minItems: 1 }),
      'hosts that a key may name for `{host}` or a deployment; `*` matches one label; default: as in the built-in row',
    ),
    quirks: field(
      Type.Array(oneOf(QUIRKS)),
      'deviations from the format ([list](#quirks)); default: as in the built-in row',
    ),
    headers: field(
      Type.Record(Type.String({ pattern: '^[A-Za-z0-9-]+$' }), Type.String()),
      'sent with every request to this provider; no secrets',
    ),
    proxy: field(
      Type.String({ minLength: 1 }),
      'URL of the [proxy](#proxies-tls-and-http2) for this provider, `http://[USER:PASSWORD@]HOST:PORT` or `https://…`; `none`: no proxy. Default: as the environment says',
    ),
    transport: field(
      oneOf(TRANSPORTS),
      '`undici`: all requests use the client library undici. A proxy, `http2` and `tls` imply it. Default: `direct`',
    ),
    http2: field(Type.Boolean(), 'true: HTTP/2 if the provider speaks it; default: false'),
    tls: field(
      Type.Object(
        {
          ca: field(File, "PEM file with the certificates to trust instead of the system's"),
          cert: field(File, 'PEM file with the certificate that the gateway shows, and its chain'),
          key: field(File, 'PEM file with its private key'),
        },
        closed,
      ),
      'PEM files for TLS with this provider, read at start: `ca`, or `cert` with `key`, or all three',
    ),
    authors: field(
      Type.Array(Type.String({ pattern: '^[a-z0-9][a-z0-9._-]*$', maxLength: 128 }), { maxItems: 100 }),
      'vendor prefixes of the models that the provider makes, for [imported](models.md#imported-models) and discovered models; default: as in the built-in row, or the slug',
    ),
    batch: field(
      Type.Boolean(),
      "true: batches go to the provider's own [batch service](batches.md#providers-batch-services), if it can run their requests. For OpenAI, Anthropic, Gemini and compatible APIs; default: false",
    ),
    batchPriceFactor: field(
      Factor,
      'share of the catalogue price that is charged for requests run by the batch service; default: `"0.5"`',
    ),
    promptCaching: field(oneOf(PROMPT_CACHING), 'overrides the setting `promptCaching` for this provider'),
    compaction: field(
      oneOf(COMPACTION_MODES),
      '`provider`: it [summarizes conversations itself](inference.md#compaction), if its format is `openai-responses` or `anthropic-messages`; overrides the setting `compaction` for this provider',
    ),
    continueStreams: field(
      ContinueStreamsField,
      'overrides the setting `continueStreams` for streams that break at this provider',
    ),
    continues: field(
      oneOf(CONTINUE_MODES),
      'how it [continues an answer](continuation.md) that broke at another endpoint. `last-message`: it continues an assistant message at the end; `prefix`: that message also needs the field `prefix`; `instruction`: a user message asks for it. Default: it does not',
    ),
    ...supportedSettingsFields('its models take', 'those of the built-in row'),
    customTools: field(
      Type.Boolean(),
      'true: the provider takes tools of type `custom`; false: it gets them as [functions](inference.md#custom-tools). Only for `openai-responses` and `openai-chat`. Default: as in the built-in row; otherwise true for `openai-responses`, and false for `openai-chat`',
    ),
    propagateTrace: field(
      Type.Boolean(),
      "true: the caller's `tracestate` is sent to the provider with [`traceparent`](tracing.md); default: false",
    ),
    accounting: field(
      Type.Object(
        { onAbort: required(oneOf(ABORT_POLICIES), 'as `accounting.onAbort`, for this provider') },
        closed,
      ),
      'overrides of `accounting` for this provider',
    ),
  },
  closed,
)

/** Prices per token. Each may have another value for long prompts. */
const TOKEN_PRICES = {
  prompt: field(Price, 'USD per input token'),
  completion: field(Price, 'USD per output token'),
  inputCacheRead: field(Price, "USD per input token read from the provider's cache; default: as `prompt`"),
  inputCacheWrite: field(Price, "USD per input token written to the provider's cache; default: as `prompt`"),
  inputCacheWrite1h: field(
    Price,
    'USD per input token written to the cache for one hour; default: as `inputCacheWrite`',
  ),
  audio: field(Price, 'USD per input token of audio; default: as `prompt`'),
  internalReasoning: field(Price, 'USD per output token of reasoning; default: as `completion`'),
}

export const PricingSchema = Type.Object(
  {
    ...TOKEN_PRICES,
    request: field(Price, 'USD per request'),
    image: field(Price, 'USD per input image, in addition to its tokens; default: 0'),
    overrides: field(
      Type.Array(
        Type.Object(
          {
            minPromptTokens: required(
              Type.Integer({ minimum: 1, maximum: 1_000_000_000 }),
              'the prices apply to prompts with more tokens than this',
            ),
            ...TOKEN_PRICES,
          },
          closed,
        ),
        { minItems: 1, maxItems: 16 },
      ),
      'prices of long prompts; an absent price is the same as for shorter ones',
    ),
  },
  closed,
)

export const EndpointSchema = Type.Object(
  {
    provider: required(Slug, 'slug of the provider'),
    upstreamModel: field(
      ModelName,
      'name of the model at the provider; default: the part of `id` after the slash. In a wildcard row, `*` stands for the part that the star in the id matches',
    ),
    format: field(Format, "default: the provider's format, or its embeddings format for an embedding model"),
    pricing: field(
      PricingSchema,
      'prices; an absent price is 0, so `{}` is free. Without `pricing` the prices are unknown: requests cost nothing, sorting by price puts the endpoint last, and callers with a limit, a budget or credits can use it only with their own credentials',
    ),
    region: field(oneOf(DATA_REGIONS), 'region in which data stays; default: no promise'),
    zdr: field(
      Type.Boolean(),
      'true: the provider keeps no data (zero data retention); default: as the [provider publicly says](providers.md#offered), unless the row has `trains`',
    ),
    trains: field(
      Type.Boolean(),
      'true: the provider may train on prompts and replies, so `data_collection: deny` and guardrails against training exclude the endpoint, even with `zdr: true`; default: as the provider publicly says, unless the row has `zdr`',
    ),
    serviceTier: field(
      oneOf(SERVICE_TIERS),
      'the service tier of the endpoint, with the prices of that tier; use one endpoint per tier. Default: none',
    ),
    quantization: field(Type.String(), 'default: `unknown`'),
    supportedParameters: field(
      Type.Array(Type.String()),
      'request parameters that the endpoint supports; `web_search_options`: the model may search on its own. Default: all',
    ),
    thinks: field(
      Type.Boolean(),
      'false: the model never thinks and its streams come in small pieces, so that streams of callers with a limit reserve 1,024 tokens at a time from the first request on. Callers who disconnect from a stream before any content then pay the prompt alone. Default: an endpoint has to [prove it first](decisions/0009-limits-and-their-counters.md)',
    ),
    continueStreams: field(
      ContinueStreamsField,
      'overrides `continueStreams` for streams that break at this endpoint; default: as for its provider',
    ),
    continues: field(
      oneOf(CONTINUE_MODES),
      'how the endpoint [continues an answer](continuation.md) that broke at another one; default: as for its provider',
    ),
    ...supportedSettingsFields('the model takes', 'those of its provider'),
    contextLength: field(Count, "tokens; default: the model's"),
    maxOutputTokens: field(Count, "default: the model's"),
  },
  closed,
)

export const ModelSchema = Type.Object(
  {
    id: required(
      ModelId,
      'name of the model in requests, `vendor/model`; `vendor/*` stands for [every model](models.md#wildcards) of that vendor',
    ),
    name: field(ModelName, 'display name; default: the id'),
    aliases: field(
      Type.Array(Alias, { minItems: 1, maxItems: 100 }),
      'additional names for the model in requests, with or without a vendor; they take precedence over [names without a vendor](models.md#names-without-a-vendor)',
    ),
    created: field(
      Type.Integer({ minimum: 0, maximum: 99_999_999_999 }),
      'Unix seconds; default: the date from an import or the provider, otherwise the start of the gateway',
    ),
    contextLength: field(Count, 'tokens; default: unknown'),
    maxOutputTokens: field(Count, 'default: unknown'),
    inputModalities: field(NonEmptyTexts, 'default: `[text]`'),
    outputModalities: field(
      NonEmptyTexts,
      'default: `[text]`; `[embeddings]` for a model of `POST /v1/embeddings`',
    ),
    promptCaching: field(
      oneOf(PROMPT_CACHING),
      'overrides `promptCaching` for this model; default: as for the provider',
    ),
    compaction: field(
      oneOf(COMPACTION_MODES),
      'overrides `compaction` for this model; default: as for the provider',
    ),
    endpoints: required(
      Type.Array(EndpointSchema, { minItems: 1 }),
      'providers of the model, tried in this order',
    ),
  },
  closed,
)

const Values = Type.Union([Type.Boolean(), Type.Number(), Type.String()], {
  expected: 'true, false, a number or a text',
})

const ConditionSchema = Type.Object(
  {
    field: required(
      Type.String({
        pattern: `^(?:${Object.keys(CONDITION_FIELDS).join('|')}|${TAG_PREFIX}.{1,64})$`,
        expected: `one of ${Object.keys(CONDITION_FIELDS).join(', ')}, or tag:NAME`,
      }),
      '`input_tokens` (an estimate), `tools`, `images`, `files`, `audio` (true or false), `hour` (0 to 23, UTC), or `tag:NAME`: the text in the `metadata` of the request',
    ),
    op: required(oneOf(CONDITION_OPS), '`in`: the value is a list'),
    value: required(
      Type.Union([Values, Type.Array(Values, { minItems: 1, maxItems: 100 })], {
        expected: 'true, false, a number, a text, or a list of them',
      }),
      'what the field is compared with',
    ),
  },
  closed,
)

export const TargetSchema = Type.Object(
  {
    model: required(Alias, 'a model of the catalogue, by its id or another name'),
    weight: field(
      Type.Number({ minimum: 0, maximum: 1_000_000 }),
      'its share of the requests, in proportion to the others; default 1. 0: none',
    ),
    provider: field(
      Type.Union([Slug, ProviderPreferences], {
        expected: 'the slug of a provider, or an object like the field `provider` of a request',
      }),
      'the only provider that may serve the target, or an object like the field `provider` of a request; it takes precedence over the field of the request',
    ),
    when: field(
      Type.Array(ConditionSchema, { minItems: 1, maxItems: 20 }),
      'conditions that must all hold. If the conditions of any target hold, only such targets are candidates; otherwise the targets without conditions',
    ),
  },
  closed,
)

export const RouteSchema = Type.Object(
  {
    name: required(Alias, 'the name of the route in requests, as a model id; no model may have it'),
    targets: required(
      Type.Array(TargetSchema, { minItems: 1, maxItems: 100 }),
      'the models that the route leads to',
    ),
    fallback: field(
      Type.Array(Alias, { minItems: 1, maxItems: 20 }),
      'models that are tried in this order if the target fails; default: none',
    ),
    sticky: field(
      oneOf(STICKY_UNITS),
      'which requests always get the same target: those of a session (`session`, the default), of an end user (`user`), or `none`',
    ),
  },
  closed,
)

export const GuardSchema = Type.Object(
  {
    errors: field(
      Type.Number({ exclusiveMinimum: 0, maximum: 1 }),
      `how much larger the share of requests without an answer may be: 0.02 is two percentage points; default ${DEFAULT_GUARD_ERRORS}`,
    ),
    firstTokenMs: field(
      Type.Number({ exclusiveMinimum: 0, maximum: 3_600_000 }),
      'how many milliseconds later the first content may come; default: not compared',
    ),
    tokensPerSecond: field(
      Type.Number({ exclusiveMinimum: 0, exclusiveMaximum: 1 }),
      'share of the speed that may be lost: 0.1 is a tenth; default: not compared',
    ),
    cost: field(
      Type.Number({ exclusiveMinimum: 0, maximum: 1_000 }),
      'share by which a request may cost more; default: not compared',
    ),
    judged: field(
      Type.Number({ exclusiveMinimum: 0, maximum: 1 }),
      'how much larger the share of answers may be that a judge does not accept: 0.05 is five percentage points. Needs `shadow` and `alignment.evaluator`; default: not compared',
    ),
  },
  closed,
)

/** Up to here an amount is exact to the smallest unit of money. */
const SHADOW_BUDGET_MAX_USD = 9_000

export const RolloutSchema = Type.Object(
  {
    route: required(Alias, 'the name of a route; it has one rollout'),
    candidate: required(Alias, 'the model that is tried, by its id or another name'),
    steps: field(
      Type.Array(Type.Number({ minimum: 0, maximum: ALL_PERCENT }), { minItems: 1, maxItems: 20 }),
      `per cent of the route's requests, ascending, the last one ${ALL_PERCENT}; the first one may be 0 with \`shadow\`; default ${DEFAULT_STEPS.join(', ')}`,
    ),
    holdMinutes: required(
      Type.Number({ exclusiveMinimum: 0, maximum: 525_600 }),
      'time after which a step is over, if nothing is proven before',
    ),
    guard: field(GuardSchema, 'how much worse the candidate may be'),
    shadow: field(
      Type.Number({ minimum: 0, maximum: ALL_PERCENT }),
      "per cent of the route's requests that are also sent to the candidate after their answer; nobody sees or pays for these shadows. Needs `shadowBudgetUsd`; default 0: none",
    ),
    shadowBudgetUsd: field(
      Type.Number({ exclusiveMinimum: 0, maximum: SHADOW_BUDGET_MAX_USD }),
      'the most that shadows and their judge may cost in USD, over the whole rollout',
    ),
  },
  closed,
)

export interface RolloutRow extends Frozen<Static<typeof RolloutSchema>> {}
export interface RouteRow extends Frozen<Static<typeof RouteSchema>> {}
export interface ProviderRow extends Frozen<Static<typeof ProviderSchema>> {}
export interface ModelRow extends Frozen<Static<typeof ModelSchema>> {}
export interface EndpointRow extends Frozen<Static<typeof EndpointSchema>> {}
export interface PricingRow extends Frozen<Static<typeof PricingSchema>> {}

/**
 * Types of the catalogue's rows: providers, models and endpoints. Pure. No code checks for a vendor by name: each
 * peculiarity of a vendor is a field or a named quirk here.
 */
import { FULL_PRICE, type PicoUsd, type PriceFactor } from '../base/money.ts'
import type { DataRegion } from './data-regions.ts'
import type { EffortName } from './efforts.ts'
import type { Route } from './route.ts'

/** The wire formats a provider can speak; `formats/table.ts` holds one implementation for each. */
export const FORMAT_NAMES = [
  'openai-responses',
  'openai-chat',
  'anthropic-messages',
  'google-gemini',
  'bedrock-converse',
] as const
export type FormatName = (typeof FORMAT_NAMES)[number]

/** The wire formats of embeddings; `formats/embeddings/table.ts` holds one implementation for each. */
export const EMBEDDINGS_FORMAT_NAMES = [
  'openai-embeddings',
  'cohere-embeddings',
  'gemini-embeddings',
  'vertex-embeddings',
  'ollama-embeddings',
] as const
export type EmbeddingsFormatName = (typeof EMBEDDINGS_FORMAT_NAMES)[number]

/** All formats that a row of the configuration may name. */
export type AnyFormatName = FormatName | EmbeddingsFormatName

export function isEmbeddingsFormat(name: AnyFormatName): name is EmbeddingsFormatName {
  return (EMBEDDINGS_FORMAT_NAMES as readonly AnyFormatName[]).includes(name)
}

/**
 * Ways for a request to carry the provider's key; `providers/upstream/auth.ts` has one implementation for each.
 * - `authorization`: the key alone, without a word before it
 * - `api-key`: the header of Azure
 * - `aws-sigv4`: a signature by an access key; API keys of Bedrock go as `bearer`
 * - `google-service-account`: a token that Google returns for a signed assertion
 */
export const AUTH_SCHEMES = [
  'bearer',
  'authorization',
  'x-api-key',
  'api-key',
  'x-goog-api-key',
  'aws-sigv4',
  'google-service-account',
  'none',
] as const
export type AuthScheme = (typeof AUTH_SCHEMES)[number]

/**
 * Forms of the key that a customer of a provider has; `providers/credentials/parse/` reads each.
 * - `plain`: the key
 * - `regional`: the key, or JSON with its data region
 * - `aws`: an API key of Bedrock, or JSON with an access key
 * - `claude-on-aws`: JSON with a workspace, its region, and an API key or an access key
 * - `azure`: a JSON array of resources and deployments
 * - `vertex`: the JSON of a service account
 * - `account`, `host`: JSON with the key and the account, or the host, that the address lacks
 */
const KEY_FORMS = ['plain', 'regional', 'aws', 'claude-on-aws', 'azure', 'vertex', 'account', 'host'] as const
export type KeyForm = (typeof KEY_FORMS)[number]

/**
 * A provider's public statement about the data of requests, for endpoints whose rows say nothing about data. Null: not
 * publicly known.
 */
export interface DataPolicy {
  /** True: it may train on the data. */
  readonly trains: boolean | null
  /** Days that it keeps prompts and replies; 0: it keeps none. */
  readonly retentionDays: number | null
}

/**
 * Named deviations of providers from a format, which its encoder must respect.
 * - `max-tokens`: wants `max_tokens` where OpenAI wants `max_completion_tokens`
 * - `no-stream-usage`: refuses `stream_options`
 * - `system-role`: knows `system` but not `developer` messages
 * - `any-tool-choice`: spells "a tool must be called" `any` instead of `required`
 * - `no-strict-tools`: refuses `strict` on functions
 * - `reasoning-object`: takes reasoning settings as an object `reasoning` instead of `reasoning_effort`, and signed
 *   or encrypted reasoning of earlier turns as `reasoning_details`
 * - `replay-reasoning`: wants the thinking text of earlier turns back as `reasoning_content`
 * - `blank-reasoning`: takes a blank, and nothing shorter, as the `reasoning_content` of a turn with calls whose
 *   thought is lost
 * - `openai-limits`: takes ids of calls with at most 40 characters, four stop sequences, schemas of functions that are
 *   objects with properties, and a JSON mode only where the messages say JSON; reserves the function names `python` and
 *   `tool_search`
 * - `nine-letter-call-ids`: takes ids of calls with exactly nine letters and digits
 * - `strict-template`: takes one system message, at the beginning, and arguments of calls that are JSON objects; chat
 *   templates of local models refuse others
 * - `xai-names`: reserves the function name `web_search`
 * - `json-word`: takes a request for a JSON object only where the messages say JSON
 * - `thinking-switch`: turns thinking off by `thinking: {type: disabled}` instead of an effort, and does not think before
 *   a tool call that is forced
 * - `thinking-parts`: wants the thinking text of earlier turns back as content parts of type `thinking`
 * - `thought-signatures`: signs its calls; the signature goes back in `extra_content.google`
 * - `cache-control`: takes `cache_control` marks on content parts
 * - `cache-breakpoints`: its models take `prompt_cache_breakpoint` on content parts; `cache_control` marks become these
 * - `no-user`: refuses `user`
 * - `no-relay`: the gateway always decodes its stream, even where it could relay the bytes
 * - `counts-contents`: counts tokens of the parts of a request, not of a complete request
 * - `raw-predict`: speaks the Messages API by `rawPredict` and `streamRawPredict` of Vertex
 * - `simulated`: answers of its models are made up; simulated searches are for them alone
 * - `no-native-tools`: runs no tools itself, although its format has a form for them; the gateway's own serve them
 *
 * For `openai-embeddings`:
 * - `output-dimension`: takes `output_dimension` instead of `dimensions`
 * - `input-type`: takes `input_type`; without it the field is left out
 * - `cuts-texts`: embeds the beginning of a text that is too long, unless `truncation` is false; others refuse it
 * - `float-vectors`: refuses `encoding_format`, so the gateway makes base64 itself
 * - `int8-vectors`: refuses `encoding_format` too, and writes each vector as base64 of signed bytes
 */
export const QUIRKS = [
  'max-tokens',
  'no-stream-usage',
  'system-role',
  'any-tool-choice',
  'no-strict-tools',
  'reasoning-object',
  'replay-reasoning',
  'blank-reasoning',
  'openai-limits',
  'nine-letter-call-ids',
  'strict-template',
  'xai-names',
  'json-word',
  'thinking-switch',
  'thinking-parts',
  'thought-signatures',
  'cache-control',
  'cache-breakpoints',
  'no-user',
  'no-relay',
  'no-native-tools',
  'counts-contents',
  'raw-predict',
  'simulated',
  'output-dimension',
  'input-type',
  'cuts-texts',
  'float-vectors',
  'int8-vectors',
] as const
export type Quirk = (typeof QUIRKS)[number]

/** Ways to end an upstream request whose client has disconnected. */
export const ABORT_POLICIES = ['finish', 'cancel', 'drain'] as const
export type AbortPolicy = (typeof ABORT_POLICIES)[number]

/** `auto`: the gateway sets cache marks of its own if they save money and the caller sets none. */
export const PROMPT_CACHING = ['auto', 'off'] as const
export type PromptCaching = (typeof PROMPT_CACHING)[number]

/** `provider`: the provider creates summaries of conversations if it can; `own`: its model is asked for a summary. */
export const COMPACTION_MODES = ['own', 'provider'] as const
export type CompactionMode = (typeof COMPACTION_MODES)[number]

/** `instruction`: also at endpoints that need an instruction to continue. */
export type ContinueStreams = boolean | 'instruction'
/**
 * How an endpoint continues a text: `last-message`: the text is the last message, of the assistant; `prefix`: that message
 * has the field `prefix` too; `instruction`: a message of the user asks for it.
 */
export const CONTINUE_MODES = ['last-message', 'prefix', 'instruction'] as const
export type Continues = (typeof CONTINUE_MODES)[number]

/** The JSON forms of an answer that a provider can enforce: any object, or an object that fits a schema. */
export const JSON_FORMATS = ['json_object', 'json_schema'] as const
export type JsonFormat = (typeof JSON_FORMATS)[number]

/** Settings of a reply's sampling and end that some models refuse. */
export const REFUSABLE_SETTINGS = [
  'temperature',
  'top_p',
  'top_k',
  'min_p',
  'top_a',
  'repetition_penalty',
  'presence_penalty',
  'frequency_penalty',
  'logit_bias',
  'top_logprobs',
  'seed',
  'stop',
] as const
export type RefusableName = (typeof REFUSABLE_SETTINGS)[number]

/** Settings that not every model takes. The gateway changes a request to the nearest value that the model takes. */
export interface SupportedSettings {
  /** An empty list: the model has no such setting. Absent: the efforts of the format. */
  readonly efforts?: readonly EffortName[]
  /** Absent: the JSON forms of the format. */
  readonly jsonFormats?: readonly JsonFormat[]
  /** False: not in a request with tools. Absent: true. */
  readonly jsonBesideTools?: boolean
}

/** The settings of those models of a provider whose names there match `models`. */
export interface ModelRule extends SupportedSettings {
  readonly models: RegExp
  /** Settings that are left out. Absent: none. */
  readonly refuses?: readonly RefusableName[]
  /** Settings that are left out of requests with an effort other than `none`. Absent: none. */
  readonly refusesThinking?: readonly RefusableName[]
}

/** The auth scheme of a format, for providers without one of their own. */
export const AUTH_OF_FORMAT: Readonly<Record<AnyFormatName, AuthScheme>> = {
  'openai-responses': 'bearer',
  'openai-chat': 'bearer',
  'anthropic-messages': 'x-api-key',
  'google-gemini': 'x-goog-api-key',
  'bedrock-converse': 'bearer',
  'openai-embeddings': 'bearer',
  'cohere-embeddings': 'bearer',
  'gemini-embeddings': 'x-goog-api-key',
  'vertex-embeddings': 'bearer',
  'ollama-embeddings': 'bearer',
}

/** The embeddings format of a provider with this format; null: the same API has none. */
export const EMBEDDINGS_OF_FORMAT: Readonly<Record<FormatName, EmbeddingsFormatName | null>> = {
  'openai-responses': 'openai-embeddings',
  'openai-chat': 'openai-embeddings',
  'anthropic-messages': null,
  'google-gemini': 'gemini-embeddings',
  'bedrock-converse': null,
}

/** Ways to send a request; `providers/upstream/` has one implementation for each. */
export const TRANSPORTS = ['direct', 'undici'] as const
export type TransportName = (typeof TRANSPORTS)[number]

/** PEM texts for TLS with one provider. */
export interface TlsIdentity {
  /** Trusted instead of the system's certificates; null: the system's are used. */
  readonly ca: string | null
  /** Certificate and key that the gateway shows. Both or none. */
  readonly cert: string | null
  readonly key: string | null
}

/** How requests to a provider leave the gateway, if its row configures anything. */
export interface Egress {
  /** `undici` even if nothing else requires it. */
  readonly transport: TransportName
  /** URL of the proxy; `none`: no proxy; null: from the environment. */
  readonly proxy: string | null
  readonly http2: boolean
  readonly tls: TlsIdentity | null
}

/** Formats whose providers may have a batch service; `batches/services/table.ts` has one implementation for each. */
export const BATCH_FORMATS = [
  'openai-responses',
  'openai-chat',
  'anthropic-messages',
  'google-gemini',
] as const satisfies readonly FormatName[]
export type BatchFormat = (typeof BATCH_FORMATS)[number]

/** All known batch services charge half. */
export const BATCH_PRICE_FACTOR: PriceFactor = FULL_PRICE / 2

export interface Provider extends SupportedSettings {
  /** Lowercase slug of the documented enumeration, or of the operator's own provider. */
  readonly slug: string
  /** Display name, as `gateway_metadata` and listings show it. */
  readonly name: string
  readonly format: AnyFormatName
  /**
   * Without a trailing slash; null if the operator must configure it. Placeholders such as `{region}` are filled in
   * from the key or from `region`; providers/address.ts has their names.
   */
  readonly baseUrl: string | null
  readonly auth: AuthScheme
  /** The operator's own (shared) key; null if none is configured. */
  readonly apiKey: string | null
  readonly quirks: readonly Quirk[]
  /** Fixed extra headers, e.g. a version header; never secrets. */
  readonly headers: Readonly<Record<string, string>>
  readonly onAbort: AbortPolicy
  /** Absent: from the settings. */
  readonly promptCaching?: PromptCaching
  /** Absent: from the settings. */
  readonly compaction?: CompactionMode
  /** True if another endpoint continues streams that break at this provider. Absent: from the settings. */
  readonly continueStreams?: ContinueStreams
  /** How it continues an answer that broke elsewhere. Absent: it does not. */
  readonly continues?: Continues
  /** True: it accepts tools of type `custom`. False: it gets them as functions. Absent: the default of its format. */
  readonly customTools?: boolean
  /** True: it gets the caller's `tracestate`. Absent: false. */
  readonly propagateTrace?: boolean
  /** Absent: directly, unless the environment names a proxy. */
  readonly egress?: Egress
  /** Base URLs of formats that the provider speaks elsewhere. Absent: none. */
  readonly baseUrls?: Readonly<Partial<Record<AnyFormatName, string>>>
  /** Base URLs of data regions. Absent: none. */
  readonly regionUrls?: Readonly<Partial<Record<DataRegion, string>>>
  /** Format of its embeddings models. Absent: the one that belongs to `format`. */
  readonly embeddings?: EmbeddingsFormatName
  /** Fills `{region}` for keys that name none. */
  readonly region?: string
  /** Patterns of the hosts that key material may name: `*` is one label, or a part of it. Absent: none. */
  readonly hosts?: readonly string[]
  /** Name of the service that signatures of AWS are made for. */
  readonly awsService?: string
  /** The address that exchanges assertions for tokens; never from a key. */
  readonly tokenUrl?: string
  /** Absent: `plain`. */
  readonly keyForm?: KeyForm
  /** Absent: nothing is known. */
  readonly policy?: DataPolicy
  /** Maximum messages of one request, which context compression observes. Absent: unknown. */
  readonly messagesMax?: number
  /** Authors of models (`author/model`) that it serves under their own names. Absent: none. */
  readonly authors?: readonly string[]
  /** The abilities of its models; the first rule that matches a model's name counts. Absent: nothing is known. */
  readonly modelRules?: readonly ModelRule[]
  /** The provider's own batch service, for batches whose requests it can run; absent: the gateway runs all of them. */
  readonly batch?: { readonly priceFactor: PriceFactor }
}

/** Prices of tokens in 1e-12 USD; null: the price of the plainer kind of token. */
export interface TokenPrices {
  readonly prompt: PicoUsd
  readonly completion: PicoUsd
  /** Per prompt token read from or written to the provider's cache; null: the prompt price. */
  readonly inputCacheRead: PicoUsd | null
  readonly inputCacheWrite: PicoUsd | null
  /** Per prompt token written to the cache for an hour; null: `inputCacheWrite`. */
  readonly inputCacheWrite1h?: PicoUsd | null
  /** Per prompt token of audio; null: the prompt price. */
  readonly audio?: PicoUsd | null
  /** Per output token of reasoning; null: the completion price. */
  readonly internalReasoning?: PicoUsd | null
}

/** Prices of prompts with strictly more tokens than `minPromptTokens`. */
export interface PriceOverride extends TokenPrices {
  readonly minPromptTokens: number
}

export interface Pricing extends TokenPrices {
  /** For each request. */
  readonly request: PicoUsd
  /** Per input image, in addition to its tokens. */
  readonly image?: PicoUsd | null
  /** Ordered by `minPromptTokens`; null: none. */
  readonly overrides?: readonly PriceOverride[] | null
  /** Set if the prices are unknown: they count as 0, but the model is not free. */
  readonly isUnknown?: true
}

/** The possible service tiers of an endpoint. */
export const SERVICE_TIERS = ['default', 'flex', 'priority', 'ultrafast'] as const
export type ServiceTier = (typeof SERVICE_TIERS)[number]

/** One model at one provider. Absent fields of `SupportedSettings` are those of its provider. */
export interface Endpoint extends SupportedSettings {
  /** Catalogue id of the model, `vendor/model`. */
  readonly modelId: string
  /** The provider's name of the model. */
  readonly upstreamModel: string
  readonly provider: Provider
  /** A format of embeddings exactly if the model makes embeddings. */
  readonly format: AnyFormatName
  readonly pricing: Pricing
  readonly contextLength: number | null
  readonly maxOutputTokens: number | null
  readonly region: DataRegion | null
  readonly zdr: boolean
  /** The provider may train on prompts and replies. Absent: it does not. */
  readonly trains?: true
  /** Its service tier; absent: it belongs to none. */
  readonly serviceTier?: ServiceTier
  readonly quantization: string
  /** True if the model creates images: its events may then contain whole images. */
  readonly drawsImages: boolean
  /** False: its model never thinks, and its streams come in small pieces. Absent: unknown. */
  readonly thinks?: false
  /** Absent: as its provider. */
  readonly promptCaching?: PromptCaching
  /** Absent: as its provider. */
  readonly compaction?: CompactionMode
  /** Absent: as its provider. */
  readonly continueStreams?: ContinueStreams
  /** Absent: as its provider. */
  readonly continues?: Continues
  /** Names of supported request parameters; null for all. */
  readonly supportedParameters: ReadonlySet<string> | null
}

export interface Model {
  readonly id: string
  readonly name: string
  /** Unix seconds of its addition to the catalogue. */
  readonly created: number
  readonly contextLength: number | null
  readonly maxOutputTokens: number | null
  readonly inputModalities: readonly string[]
  /** True: a source states the input modalities. False: text is assumed, and other input is not refused. */
  readonly isInputStated: boolean
  readonly outputModalities: readonly string[]
  /** In the order of the row. Never empty. */
  readonly endpoints: readonly Endpoint[]
  /** The model stands for a route: it has the facts of the first target and the endpoints of all targets. */
  readonly route?: Route
}

/**
 * The format of a text endpoint.
 * @throws Error for an embeddings endpoint, which routing excludes for text requests
 */
export function textFormat({ format }: Pick<Endpoint, 'format'>): FormatName {
  if (isEmbeddingsFormat(format)) throw new Error('a text request reached an embeddings endpoint')
  return format
}

/** True for a model of POST /embeddings; all others make text. */
export function makesEmbeddings({ outputModalities }: Pick<Model, 'outputModalities'>): boolean {
  return outputModalities.includes('embeddings')
}

/** A request that must be signed. */
export interface SignableRequest {
  readonly method: string
  readonly url: URL
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** The key of one attempt, decrypted and parsed. */
export interface OutgoingKey {
  /** The text in the provider's auth header; null: the request is signed. */
  readonly text: string | null
  /** Every secret part of the key; the gateway removes them from the provider's replies. */
  readonly secrets: readonly string[]
  /** How it is sent. Absent: as in the provider's row. */
  readonly scheme?: AuthScheme
  /** Creates the headers of a signature. */
  readonly sign?: (request: SignableRequest) => Promise<Readonly<Record<string, string>>>
  /** The base URL that the key belongs to, checked. Absent: the base URL of the provider's row. */
  readonly baseUrl?: string
  /** The full URL of each call, for a deployment. */
  readonly callUrl?: string
  /** The name that the deployment of the key has for the model. */
  readonly upstreamModel?: string
  /** Additional headers for the key; no secrets. */
  readonly headers?: Readonly<Record<string, string>>
  /**
   * For a key with several resources: their number, and a callback to note that this one has failed, so that another
   * one is tried next time. Absent: there is one.
   */
  readonly resources?: { readonly count: number; failed(): void }
}

/** The auth scheme for a caller's own key. A provider without auth for the service's requests still accepts one. */
export function ownKeyScheme({ format, provider }: Endpoint): AuthScheme {
  return provider.auth === 'none' ? AUTH_OF_FORMAT[format] : provider.auth
}

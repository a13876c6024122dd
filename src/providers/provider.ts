/**
 * Types of the catalogue's rows: providers, models and endpoints. Pure.
 * No code asks for a vendor by name: each peculiarity of a vendor is a field or a named quirk here.
 */
import { FULL_PRICE, type PicoUsd, type PriceFactor } from '../money.ts'
import type { DataRegion } from '../protocol/guardrails.ts'

/** The wire formats a provider can speak; `formats/table.ts` holds one implementation for each. */
export const FORMAT_NAMES = [
  'openai-responses',
  'openai-chat',
  'anthropic-messages',
  'google-gemini',
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

/** What a row of the configuration may name. */
export type AnyFormatName = FormatName | EmbeddingsFormatName

export function isEmbeddingsFormat(name: AnyFormatName): name is EmbeddingsFormatName {
  return (EMBEDDINGS_FORMAT_NAMES as readonly AnyFormatName[]).includes(name)
}

/** Ways for a request to carry the provider's key; `upstream/auth.ts` holds one implementation for each. */
export const AUTH_SCHEMES = ['bearer', 'x-api-key', 'x-goog-api-key', 'none'] as const
export type AuthScheme = (typeof AUTH_SCHEMES)[number]

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
 * - `thinking-parts`: wants it back as content parts of type `thinking`
 * - `thought-signatures`: signs its calls; the signature goes back in `extra_content.google`
 * - `cache-control`: takes `cache_control` marks on content parts
 * - `no-user`: refuses `user`
 * - `no-relay`: the gateway always decodes its stream, even where it could relay the bytes
 *
 * Of `openai-embeddings`:
 * - `output-dimension`: takes `output_dimension` instead of `dimensions`
 * - `input-type`: takes `input_type`; without it the field is left out
 * - `cuts-texts`: embeds the beginning of a text that is too long, unless `truncation` is false; others refuse it
 * - `float-vectors`: refuses `encoding_format`, so the gateway makes base64 itself
 * - `int8-vectors`: refuses it too, and writes each vector as base64 of signed bytes
 */
export const QUIRKS = [
  'max-tokens',
  'no-stream-usage',
  'system-role',
  'any-tool-choice',
  'no-strict-tools',
  'reasoning-object',
  'replay-reasoning',
  'thinking-parts',
  'thought-signatures',
  'cache-control',
  'no-user',
  'no-relay',
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

/** The auth scheme of a format, for providers without one of their own. */
export const AUTH_OF_FORMAT: Readonly<Record<AnyFormatName, AuthScheme>> = {
  'openai-responses': 'bearer',
  'openai-chat': 'bearer',
  'anthropic-messages': 'x-api-key',
  'google-gemini': 'x-goog-api-key',
  'openai-embeddings': 'bearer',
  'cohere-embeddings': 'bearer',
  'gemini-embeddings': 'x-goog-api-key',
  'vertex-embeddings': 'bearer',
  'ollama-embeddings': 'bearer',
}

/** The format of embeddings at a provider of a format; null: the same API makes none. */
export const EMBEDDINGS_OF_FORMAT: Readonly<Record<FormatName, EmbeddingsFormatName | null>> = {
  'openai-responses': 'openai-embeddings',
  'openai-chat': 'openai-embeddings',
  'anthropic-messages': null,
  'google-gemini': 'gemini-embeddings',
}

/** Ways to send a request; `upstream/` holds one implementation for each. */
export const TRANSPORTS = ['direct', 'undici'] as const
export type TransportName = (typeof TRANSPORTS)[number]

/** PEM texts for TLS with one provider. */
export interface TlsIdentity {
  /** Trusted in place of the system's certificates; null: those of the system. */
  readonly ca: string | null
  /** Certificate and key that the gateway shows. Both or none. */
  readonly cert: string | null
  readonly key: string | null
}

/** How requests to a provider leave the gateway, where its row says anything about it. */
export interface Egress {
  /** `undici` also where nothing else asks for it. */
  readonly transport: TransportName
  /** URL of the proxy; `none`: no proxy; null: as the environment says. */
  readonly proxy: string | null
  readonly http2: boolean
  readonly tls: TlsIdentity | null
}

/** Formats whose providers may have a batch service; `batches/services/table.ts` holds one implementation for each. */
export const BATCH_FORMATS = [
  'openai-responses',
  'openai-chat',
  'anthropic-messages',
  'google-gemini',
] as const satisfies readonly FormatName[]
export type BatchFormat = (typeof BATCH_FORMATS)[number]

/** All known batch services charge half. */
export const BATCH_PRICE_FACTOR: PriceFactor = FULL_PRICE / 2

export interface Provider {
  /** Lowercase slug of the documented enumeration, or of the operator's own provider. */
  readonly slug: string
  /** Display name, as `gateway_metadata` and listings show it. */
  readonly name: string
  readonly format: AnyFormatName
  /** Without a trailing slash; null if the operator must configure it. */
  readonly baseUrl: string | null
  readonly auth: AuthScheme
  /** The service's own (shared) key; null if none is configured. */
  readonly apiKey: string | null
  readonly quirks: readonly Quirk[]
  /** Fixed extra headers, e.g. a version header; never secrets. */
  readonly headers: Readonly<Record<string, string>>
  readonly onAbort: AbortPolicy
  /** Absent: directly, unless the environment names a proxy. */
  readonly egress?: Egress
  /** The provider's own batch service, for batches whose requests it can run; absent: the gateway runs all of them. */
  readonly batch?: { readonly priceFactor: PriceFactor }
}

/** Prices of tokens in 1e-12 USD; null: as that of the plainer kind of token. */
export interface TokenPrices {
  readonly prompt: PicoUsd
  readonly completion: PicoUsd
  /** Of a prompt token read from / written to the provider's cache; null: the prompt price. */
  readonly inputCacheRead: PicoUsd | null
  readonly inputCacheWrite: PicoUsd | null
  /** Of a prompt token written to the cache for an hour; null: as `inputCacheWrite`. */
  readonly inputCacheWrite1h?: PicoUsd | null
  /** Of a prompt token of audio; null: the prompt price. */
  readonly audio?: PicoUsd | null
  /** Of an output token of reasoning; null: the completion price. */
  readonly internalReasoning?: PicoUsd | null
}

/** Prices of prompts with strictly more tokens than `minPromptTokens`. */
export interface PriceOverride extends TokenPrices {
  readonly minPromptTokens: number
}

export interface Pricing extends TokenPrices {
  /** For each request. */
  readonly request: PicoUsd
  /** For each input image, beside its tokens. */
  readonly image?: PicoUsd | null
  /** By rising `minPromptTokens`; null: none. */
  readonly overrides?: readonly PriceOverride[] | null
  /** Set where the prices are not known; they count as 0, but are no zeros. */
  readonly isUnknown?: true
}

/** The service tiers that an endpoint of its own may have. */
export const SERVICE_TIERS = ['default', 'flex', 'priority', 'ultrafast'] as const
export type ServiceTier = (typeof SERVICE_TIERS)[number]

/** Every region that an endpoint can promise. */
export const DATA_REGIONS = ['europe', 'us'] as const satisfies readonly DataRegion[]

/** One model at one provider. */
export interface Endpoint {
  /** Catalogue id of the model, `vendor/model`. */
  readonly modelId: string
  /** The provider's name of the model. */
  readonly upstreamModel: string
  readonly provider: Provider
  /** One of embeddings for a model that makes embeddings, and only then. */
  readonly format: AnyFormatName
  readonly pricing: Pricing
  readonly contextLength: number | null
  readonly maxOutputTokens: number | null
  readonly region: DataRegion | null
  readonly zdr: boolean
  /** The provider may train on what it is sent. Absent: it does not. */
  readonly trains?: true
  /** Its service tier; absent: it belongs to none. */
  readonly serviceTier?: ServiceTier
  readonly quantization: string
  /** True if the model makes images: its events may then carry whole images. */
  readonly drawsImages: boolean
  /** Names of supported request parameters; null for all. */
  readonly supportedParameters: ReadonlySet<string> | null
}

export interface Model {
  readonly id: string
  readonly name: string
  /** Unix seconds of its entry into the catalogue. */
  readonly created: number
  readonly contextLength: number | null
  readonly maxOutputTokens: number | null
  readonly inputModalities: readonly string[]
  readonly outputModalities: readonly string[]
  /** In the order of attempts. Never empty. */
  readonly endpoints: readonly Endpoint[]
}

/**
 * The format of an endpoint that makes text.
 * @throws Error for one that makes embeddings, which routing keeps away from requests for text
 */
export function textFormat({ format }: Pick<Endpoint, 'format'>): FormatName {
  if (isEmbeddingsFormat(format)) throw new Error('an endpoint of embeddings was asked for text')
  return format
}

/** True for a model of POST /embeddings; any other one makes text. */
export function makesEmbeddings({ outputModalities }: Pick<Model, 'outputModalities'>): boolean {
  return outputModalities.includes('embeddings')
}

/** The decrypted key of a workspace's own credential for one attempt. */
export interface OutgoingKey {
  /** The text that the provider's auth header carries. */
  readonly text: string
  /** Every secret part of it; the gateway scrubs them from the provider's replies. */
  readonly secrets: readonly string[]
}

/** The auth scheme for a caller's own key. A provider without auth for the service's requests still accepts one. */
export function ownKeyScheme({ format, provider }: Endpoint): AuthScheme {
  return provider.auth === 'none' ? AUTH_OF_FORMAT[format] : provider.auth
}

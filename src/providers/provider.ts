/**
 * Providers, models and endpoints as rows of data. Pure.
 * A vendor never appears in code as an `if`: what is special about it is a field or a named quirk here.
 */
import type { PicoUsd } from '../money.ts'
import type { DataRegion } from '../protocol/guardrails.ts'

/** The wire formats a provider can speak; `formats/table.ts` holds one implementation for each. */
export const FORMAT_NAMES = [
  'openai-responses',
  'openai-chat',
  'anthropic-messages',
  'google-gemini',
] as const
export type FormatName = (typeof FORMAT_NAMES)[number]

/** How the outgoing request carries the provider's key; `upstream/auth.ts` holds one implementation for each. */
export const AUTH_SCHEMES = ['bearer', 'x-api-key', 'x-goog-api-key', 'none'] as const
export type AuthScheme = (typeof AUTH_SCHEMES)[number]

/**
 * Named deviations that a format's encoder must respect, each seen at some provider.
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
 * - `no-relay`: its stream is always decoded and written anew, even where its bytes could be passed on as they are
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
] as const
export type Quirk = (typeof QUIRKS)[number]

/** What happens to the upstream request when the client goes away. */
export const ABORT_POLICIES = ['cancel', 'drain'] as const
export type AbortPolicy = (typeof ABORT_POLICIES)[number]

/** Where a format's API expects its key, for providers that do not say. */
export const AUTH_OF_FORMAT: Readonly<Record<FormatName, AuthScheme>> = {
  'openai-responses': 'bearer',
  'openai-chat': 'bearer',
  'anthropic-messages': 'x-api-key',
  'google-gemini': 'x-goog-api-key',
}

export interface Provider {
  /** Lowercase slug of the documented enumeration, or of the operator's own provider. */
  readonly slug: string
  /** Display name, as `gateway_metadata` and listings show it. */
  readonly name: string
  readonly format: FormatName
  /** Without a trailing slash; null when the operator has to configure it. */
  readonly baseUrl: string | null
  readonly auth: AuthScheme
  /** The service's own (shared) key; null when none is configured. */
  readonly apiKey: string | null
  readonly quirks: readonly Quirk[]
  /** Fixed extra headers, e.g. a version header; never secrets. */
  readonly headers: Readonly<Record<string, string>>
  readonly onAbort: AbortPolicy
}

/** Prices per token (request: per request) in 1e-12 USD; absent means free. */
export interface Pricing {
  readonly prompt: PicoUsd
  readonly completion: PicoUsd
  readonly request: PicoUsd
  /** Price of a prompt token read from / written to the provider's cache; null: the prompt price. */
  readonly inputCacheRead: PicoUsd | null
  readonly inputCacheWrite: PicoUsd | null
}

/** Every region that an endpoint can promise. */
export const DATA_REGIONS = ['europe', 'us'] as const satisfies readonly DataRegion[]

/** One model at one provider. */
export interface Endpoint {
  /** Catalogue id of the model, `vendor/model`. */
  readonly modelId: string
  /** What the provider calls the model. */
  readonly upstreamModel: string
  readonly provider: Provider
  readonly format: FormatName
  readonly pricing: Pricing
  readonly contextLength: number | null
  readonly maxOutputTokens: number | null
  readonly region: DataRegion | null
  readonly zdr: boolean
  readonly quantization: string
  /** Whether it draws: its events may then carry whole images. */
  readonly drawsImages: boolean
  /** Names of request parameters it honours; null means all. */
  readonly supportedParameters: ReadonlySet<string> | null
}

export interface Model {
  readonly id: string
  readonly name: string
  /** Unix seconds; when the catalogue learned of it. */
  readonly created: number
  readonly contextLength: number | null
  readonly maxOutputTokens: number | null
  readonly inputModalities: readonly string[]
  readonly outputModalities: readonly string[]
  /** In the order in which they are tried. Never empty. */
  readonly endpoints: readonly Endpoint[]
}

/** A key of a workspace's own credential, opened for one attempt. */
export interface OutgoingKey {
  /** The text that the provider's auth header carries. */
  readonly text: string
  /** Every part of it that must not reach anybody else; scrubbed from the provider's replies. */
  readonly secrets: readonly string[]
}

/** Where an own key goes: a provider that the service itself calls without one still takes the caller's. */
export function ownKeyScheme({ format, provider }: Endpoint): AuthScheme {
  return provider.auth === 'none' ? AUTH_OF_FORMAT[format] : provider.auth
}

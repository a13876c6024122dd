/**
 * The contract of plugins: a plugin may change a request before routing, judge a reply before delivery, and change the
 * delivered items. Plugins are in features/plugins, one file per id, and table.ts there lists them. Types only.
 */
import type { GatewayError } from '../base/errors.ts'
import type { PicoUsd } from '../base/money.ts'
import type { OutputItem } from '../protocol/items.ts'
import type { Annotation, Citable } from '../protocol/parts.ts'
import type { PluginSettings } from '../protocol/plugins.ts'
import type { Caller } from '../protocol/records.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { ResponseResource, RoutingStrategy } from '../protocol/response.ts'
import type { RouterName } from '../protocol/routers.ts'
import type { AttemptRecord, Candidate, Exchange, Turn } from './exchange.ts'

type PluginId = PluginSettings['id']

/** A model that may serve a request, with the figures that routers compare. */
export interface RoutableModel {
  readonly id: string
  /** The prices of the cheapest endpoint that may serve it, in 1e-12 USD; null if no price is known. */
  readonly prices: {
    readonly prompt: PicoUsd
    readonly completion: PicoUsd
    readonly request: PicoUsd
  } | null
  /** True if one of these endpoints costs nothing. */
  readonly isFree: boolean
  /** True if one of them supports the tools, format and files of the request, and has enough room for it. */
  readonly fits: boolean
  /** Median of tokens per second at the fastest of them; null without recent measurements. */
  throughput(): number | null
}

/** The models among which routers choose. */
export interface RoutableModels {
  /** Ids of all text models, in the order of the catalogue. */
  ids(): readonly string[]
  /** Ids of the text models that have an endpoint whose prices are all 0. */
  freeIds(): readonly string[]
  /** The kind of name in the catalogue; null if it is unknown, or the model produces no text. */
  kindOf(name: string): 'plain' | 'other' | null
  /**
   * The given models that may serve the request, by guardrails, region, keys, preferences and modalities, in the order
   * of `ids`. `variants`: the variants after the router's slug. Gives other requests a turn in between.
   */
  of(exchange: Exchange, ids: readonly string[], variants: string): Promise<readonly RoutableModel[]>
}

/** The model that a router chose last, by conversation. */
export interface LastModels {
  /** Null if there is none, or if the request begins a conversation. */
  of(exchange: Exchange, router: string): string | null | Promise<string | null>
  /** Keeps the model of the conversation for this long after its last use. */
  keep(exchange: Exchange, router: string, modelId: string, ttlMs: number): void
}

export type Verdict =
  | { readonly kind: 'pass' }
  /** Calls the same model at the same endpoint again, with this prompt; the turn is never delivered. */
  | { readonly kind: 'again'; readonly prompt: ResponsesRequest }
  /** Delivers nothing of the turn; the exchange ends with this error. */
  | { readonly kind: 'refuse'; readonly error: GatewayError }

/**
 * Checks a text that the caller sent outside the prompt: first with the guardrails, then with the plugins that have
 * `inspect`. Resolves to the redacted text, the only form in which a plugin may use it. Rejects with the error that
 * refuses the request.
 */
export type Inspect = (text: string) => Promise<string>

/**
 * Checks if the caller's guardrails allow sending data to a helper: a model that the gateway itself calls, or the OCR
 * provider. Returns the restriction that forbids it, such as `guardrail:training`; null if it is allowed.
 */
export type PolicyLookup = (
  caller: Caller,
  helper: { readonly model: string; readonly obeysLists?: true } | 'ocr',
) => string | null | Promise<string | null>

/** The results of one web search. */
interface WebFindings {
  /** JSON for the model. */
  readonly text: string
  readonly results: readonly Citable[]
  /** The name of the engine. */
  readonly engine: string
}

/** Searches the web on behalf of plugins. */
export interface WebSearcher {
  /** True if the endpoint's provider can search, with domain lists or without. */
  hosts(endpoint: AttemptRecord['endpoint'], limitsDomains: boolean): boolean
  /** True if an engine of ours is configured that requests may use without naming it. */
  readonly hasEngine: boolean
  /**
   * One search with the parameters of the tool web_search, charged on the bill of the exchange; `path` is the path of
   * these parameters, for errors. Rejects with a GatewayError, or with the reason of the signal.
   */
  search(
    query: string,
    parameters: Readonly<Record<string, unknown>>,
    path: string,
    exchange: Pick<Exchange, 'signal' | 'bill' | 'caller' | 'candidates'>,
  ): Promise<WebFindings>
}

/** Findings of a plugin that are sent to the caller. */
export interface PluginReport {
  /** Fields for the response object. */
  readonly response?: Partial<ResponseResource>
  /** Fields for the metadata of an error. */
  readonly failure?: Readonly<Record<string, unknown>>
  /** Annotations for the first text of the answer. */
  readonly annotations?: readonly Annotation[]
  /** Results of a search in the prompt: a text of the answer cites those that it names. */
  readonly searchResults?: readonly Citable[]
}

/**
 * The way a prompt fits an endpoint: unchanged, cut to its context, or not at all if it is certainly too long. An
 * endpoint for which the prompt would be cut is used only if none accepts it whole.
 */
export type Fitting = 'whole' | 'cut' | 'refused'

/** A prompt that a plugin has rewritten; undefined: it has not. */
type RewrittenPrompt = ResponsesRequest | undefined

/** The choice of a router. */
export interface RouterChoice {
  /** The models that replace its slug, first choice first. */
  readonly models: readonly string[]
  /** The prompt without the router's own instructions; absent: unchanged. */
  readonly prompt?: ResponsesRequest
}

/** A plugin at work on one exchange; it may keep state from turn to turn. All verbs are optional. */
export interface ActivePlugin {
  readonly id: AnyPlugin['id']
  /** For a plugin that chooses the model: the name of its method. */
  readonly strategy?: RoutingStrategy
  /**
   * For a router: returns its choice, before all other work. It may add to `exchange.pipeline`. A GatewayError refuses
   * the request.
   */
  route?(exchange: Exchange): RouterChoice | Promise<RouterChoice>
  /** Called with each model that has answered. */
  noteAnswer?(exchange: Exchange, modelId: string): void
  /**
   * Before routing. Returns the rewritten prompt; undefined: unchanged. It may add to `exchange.pipeline`. A
   * GatewayError refuses the request.
   */
  prepare?(exchange: Exchange, inspect: Inspect): RewrittenPrompt | Promise<RewrittenPrompt>
  /** Runs after routing. Returns the same candidates in another order. */
  order?<AnyCandidate extends Candidate>(
    candidates: readonly AnyCandidate[],
    exchange: Exchange,
  ): readonly AnyCandidate[]
  /** Returns the prompt before the last `fitTo`; undefined: unchanged. */
  unfit?(exchange: Exchange): RewrittenPrompt
  /**
   * Runs before each attempt, after `unfit`. Returns the prompt that fits the endpoint; undefined: unchanged. A
   * GatewayError fails the attempt.
   */
  fitTo?(exchange: Exchange, endpoint: AttemptRecord['endpoint']): RewrittenPrompt | Promise<RewrittenPrompt>
  /** Approximate number of tokens that it has cut from the prompt. */
  readonly removedTokens?: number
  /** The way in which the prompt would fit this endpoint; `fitTo` then applies it. */
  fitting?(endpoint: AttemptRecord['endpoint'], prompt: ResponsesRequest): Fitting
  /** True if `fitTo` turns this part of the input into text for a model that accepts only text. */
  reads?(part: object): boolean
  /**
   * Set if it never adds unscanned caller text to the prompt, so that guardrails need not scan it again. Otherwise
   * guardrails and plugins with `inspect` see everything new that `prepare` and `fitTo` leave in the prompt, before any
   * provider is called.
   */
  readonly skipsRescan?: boolean
  /** Checks texts that plugins add, after guardrails. A GatewayError refuses the request. */
  inspect?(exchange: Exchange, texts: readonly string[]): void | Promise<void>
  /** Set if no part of a turn may be sent before `judge` has passed it. Heartbeats are still sent. */
  readonly holds?: boolean
  /** Maximum number of model calls for one answer, including the first. Default 1. */
  readonly maxCalls?: number
  /**
   * Set if its work before the model call may be repeated, at no cost and with the same result, and if it never
   * requests another model call: a batch service may then run the model call. Otherwise the gateway runs it.
   */
  readonly isRepeatable?: boolean
  /** Runs after each turn, before the terminal event. Without `holds`, the turn has already been delivered. */
  judge?(turn: Turn, exchange: Exchange): Verdict | Promise<Verdict>
  /** Runs before a whole (not streamed) answer is sent. Returns the items that replace it. */
  finish?(turn: Turn, exchange: Exchange): readonly OutputItem[] | Promise<readonly OutputItem[]>
  /** Called when the answer or an error is sent, and for annotations before each attempt. */
  report?(): PluginReport
}

export interface Plugin<Id extends PluginId = PluginId> {
  readonly id: Id
  /** Also called for requests that do not name it, so every request pays for it. */
  readonly alwaysOn?: boolean
  /** Routers that it serves: it is called only for requests that name one of them, with or without settings. */
  readonly routers?: readonly RouterName[]
  /** Slugs that stand for the plugin itself: a request that names one cannot turn it off. */
  readonly slugs?: readonly RouterName[]
  /**
   * Returns null if the plugin has nothing to do for this request. `settings` is null if the request does not name it.
   * Not called if the request turns the plugin off.
   */
  activate(
    settings: Extract<PluginSettings, { id: Id }> | null,
    request: ResponsesRequest,
  ): ActivePlugin | null
  /** Advice for a caller whose request failed at a provider while the plugin was not active; null if none. */
  advise?(error: GatewayError): string | null
}

/** Works like a plugin, but no request can name it or turn it off. */
export interface BuiltInRule {
  readonly id: 'structured-output'
  readonly alwaysOn: true
  activate(settings: null, request: ResponsesRequest): ActivePlugin | null
}

/** A router without settings. */
export interface BuiltInRouter {
  readonly id: 'free' | 'bodybuilder'
  readonly alwaysOn?: never
  readonly routers: readonly RouterName[]
  activate(settings: null, request: ResponsesRequest): ActivePlugin | null
}

/** A plugin with any id, or one that requests cannot name. */
export type AnyPlugin = { readonly [Id in PluginId]: Plugin<Id> }[PluginId] | BuiltInRule | BuiltInRouter

/**
 * The contract of plugins: a plugin looks at a request before it is routed, at a turn before it is delivered, and at
 * the items that will be delivered. One file per id; table.ts lists them. Types only.
 */
import type { GatewayError } from '../errors.ts'
import type { AttemptRecord, Candidate, Exchange, Turn } from '../gateway/exchange.ts'
import type { Annotation, OutputItem } from '../protocol/items.ts'
import type { PluginSettings } from '../protocol/plugins.ts'
import type { Caller } from '../protocol/records.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { ResponseResource } from '../protocol/response.ts'

export type PluginId = PluginSettings['id']

export type Verdict =
  | { readonly kind: 'pass' }
  /** The same model at the same endpoint is asked again, with this; the turn is never delivered. */
  | { readonly kind: 'again'; readonly prompt: ResponsesRequest }
  /** Nothing of the turn is delivered; the exchange ends with this. */
  | { readonly kind: 'refuse'; readonly error: GatewayError }

/**
 * A text that the caller sent outside of the prompt, as its guardrails leave it once the plugins with `look` have seen
 * it too. Rejects with the reason of a refusal. A plugin passes such texts on only in this form.
 */
export type Inspect = (text: string) => Promise<string>

/**
 * Null: the caller's text may go to that model, or to the provider of OCR, which the gateway would ask by itself.
 * Otherwise the rule of the caller's guardrails that forbids it, such as `guardrail:training`.
 */
export type PolicyAgainst = (
  caller: Caller,
  helper: { readonly model: string } | 'ocr',
) => string | null | Promise<string | null>

/** Findings of a plugin that go to the caller. */
export interface PluginReport {
  /** Fields of the response object. */
  readonly response?: Partial<ResponseResource>
  /** Fields of the metadata of an error. */
  readonly failure?: Readonly<Record<string, unknown>>
  /** They go with the first text of the answer. */
  readonly annotations?: readonly Annotation[]
}

/** A plugin at work on one exchange; may keep state from turn to turn. All verbs are optional. */
export interface ActivePlugin {
  readonly id: PluginId | BuiltInRule['id']
  /** Before routing. May rewrite `exchange.prompt`, add to `exchange.pipeline`. A GatewayError refuses the request. */
  prepare?(exchange: Exchange, inspect: Inspect): void | Promise<void>
  /** After routing: the same candidates in another order. */
  order?<Each extends Candidate>(candidates: readonly Each[], exchange: Exchange): readonly Each[]
  /** Before each attempt: makes `exchange.prompt` fit the endpoint. A GatewayError fails the attempt. */
  fitTo?(exchange: Exchange, endpoint: AttemptRecord['endpoint']): void | Promise<void>
  /**
   * Set if it never adds unscanned caller text to the prompt, so that guardrails need not scan it again. Otherwise
   * guardrails and plugins with `look` see everything new that `prepare` and `fitTo` leave in the prompt, before any
   * provider is called.
   */
  readonly skipsRescan?: boolean
  /** Texts that another plugin brings, as guardrails leave them. A GatewayError refuses the request. */
  look?(exchange: Exchange, texts: readonly string[]): void | Promise<void>
  /** Nothing of a turn leaves before `judge` has passed it; heartbeats do. */
  readonly holds?: boolean
  /** How often it may have the model asked for one answer, the first time included. Default 1. */
  readonly maxCalls?: number
  /** After each turn, before the terminal event. Without `holds` the turn has been delivered by then. */
  judge?(turn: Turn, exchange: Exchange): Promise<Verdict>
  /** Replaces the items of a whole (not streamed) answer just before it leaves. */
  finish?(turn: Turn, exchange: Exchange): readonly OutputItem[] | Promise<readonly OutputItem[]>
  /** Asked when the answer or an error leaves, and for annotations before each attempt. */
  report?(): PluginReport
}

export interface Plugin<Id extends PluginId = PluginId> {
  readonly id: Id
  /** Also asked for requests that do not name it. Every request pays for that. */
  readonly alwaysOn?: boolean
  /**
   * Null: nothing to do for this request. `settings` is null where the request does not name the plugin. Not called for
   * a plugin that the request turns off.
   */
  activate(
    settings: Extract<PluginSettings, { id: Id }> | null,
    request: ResponsesRequest,
  ): ActivePlugin | null
  /** Advice for a caller whose request failed at a provider while the plugin was not at work; null: none. */
  advise?(error: GatewayError): string | null
}

/** Works as a plugin does, but no request can name it or turn it off. */
export interface BuiltInRule {
  readonly id: 'structured-output'
  readonly alwaysOn: true
  activate(settings: null, request: ResponsesRequest): ActivePlugin | null
}

/** A plugin of whatever id. */
export type AnyPlugin = { readonly [Id in PluginId]: Plugin<Id> }[PluginId] | BuiltInRule

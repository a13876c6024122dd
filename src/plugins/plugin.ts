/**
 * What a plugin is: it looks at a request before it is routed, at what the model said before it is delivered, and at
 * what will be delivered. One file per id; table.ts lists them. Types only.
 */
import type { GatewayError } from '../errors.ts'
import type { Attempt, Candidate, Exchange } from '../gateway/exchange.ts'
import type { OutputItem } from '../protocol/items.ts'
import type { PluginSettings } from '../protocol/plugins.ts'
import type { Caller } from '../protocol/records.ts'
import type { ResponsesRequest } from '../protocol/request.ts'

export type PluginId = PluginSettings['id']

/** What one call of a model brought. */
export interface Turn {
  readonly attempt: Attempt
  /** Final items, in their order. */
  readonly output: readonly OutputItem[]
  readonly finish: NonNullable<Exchange['finish']>['reason']
  /** 1 for the first call of the exchange whose turn was judged. */
  readonly call: number
}

export type Verdict =
  | { readonly kind: 'pass' }
  /** The same model at the same endpoint is asked again, with this; what it said is never delivered. */
  | { readonly kind: 'again'; readonly prompt: ResponsesRequest }
  /** Nothing of the turn is delivered; the exchange ends with this. */
  | { readonly kind: 'refuse'; readonly error: GatewayError }

/**
 * A text that the caller sent outside of the prompt, as its guardrails leave it once the steps with `look` have seen it
 * too. Rejects with why the request is refused. What a plugin passes on of such texts has to come from here.
 */
export type Inspect = (text: string) => Promise<string>

/**
 * Null: what the caller says may go to that model, or to the provider of OCR, which the gateway would ask by itself.
 * Otherwise what forbids it among the rules of the caller's guardrails, such as `guardrail:training`.
 */
export type PolicyAgainst = (
  caller: Caller,
  helper: { readonly model: string } | 'ocr',
) => string | null | Promise<string | null>

/** A plugin at work on one exchange; may keep state from call to call. All verbs are optional. */
export interface Step {
  readonly id: PluginId | HouseRule['id']
  /** Before routing. May rewrite `exchange.prompt`, add to `exchange.pipeline`. A GatewayError refuses the request. */
  prepare?(exchange: Exchange, inspect: Inspect): void | Promise<void>
  /** After routing: the same candidates in another order. */
  order?<Each extends Candidate>(candidates: readonly Each[], exchange: Exchange): readonly Each[]
  /** Before each call of a model: makes `exchange.prompt` fit the endpoint. A GatewayError fails the attempt. */
  address?(exchange: Exchange, endpoint: Attempt['endpoint']): void | Promise<void>
  /**
   * What it writes into the prompt is the gateway's own, stood there before, or was given to `inspect`. Without it
   * guardrails and steps with `look` look at everything new that `prepare` and `address` leave in the prompt, before
   * any provider is called.
   */
  readonly bringsNothing?: boolean
  /** Texts that another step brings, as guardrails leave them. A GatewayError refuses the request. */
  look?(exchange: Exchange, texts: readonly string[]): void | Promise<void>
  /** Nothing of a turn leaves before `judge` has passed it; heartbeats do. */
  readonly holds?: boolean
  /** After each call of the model, before the terminal event. Without `holds` the turn has been delivered by then. */
  judge?(turn: Turn, exchange: Exchange): Promise<Verdict>
  /** Replaces the items of a whole (not streamed) answer just before it leaves. */
  finish?(turn: Turn, exchange: Exchange): readonly OutputItem[] | Promise<readonly OutputItem[]>
}

export interface Plugin<Id extends PluginId = PluginId> {
  readonly id: Id
  /** It may have to do with requests that do not name it. Every request pays for asking it. */
  readonly unasked?: boolean
  /**
   * Null: nothing to do for this request. `settings` is null where the request does not name the plugin. Not called for
   * a plugin that the request turns off.
   */
  step(settings: Extract<PluginSettings, { id: Id }> | null, request: ResponsesRequest): Step | null
}

/** Works as a plugin does, but no request can name it or turn it off. */
export interface HouseRule {
  readonly id: 'structured-output'
  readonly unasked: true
  step(settings: null, request: ResponsesRequest): Step | null
}

/** A plugin of whatever id. */
export type AnyPlugin = { readonly [Id in PluginId]: Plugin<Id> }[PluginId] | HouseRule

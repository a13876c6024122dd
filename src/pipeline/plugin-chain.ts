/**
 * Plugin chain: the active plugins of one request, in the order of the table. Hot path: a request without plugins costs
 * one call to each plugin that is always on.
 */
import type { Clock } from '../base/clock.ts'
import { GatewayError, INTERNAL_MESSAGE } from '../base/errors.ts'
import { isPending, whenReady } from '../base/maybe-promise.ts'
import type { Metrics } from '../base/metrics/metrics.ts'
import type { AttemptRecord, Candidate, Exchange, Turn } from '../exchange/exchange.ts'
import type {
  ActivePlugin,
  AnyPlugin,
  Fitting,
  Inspect,
  Plugin,
  RouterChoice,
  Verdict,
} from '../exchange/plugin.ts'
import { unseenTexts } from '../features/guardrails/texts/request-texts.ts'
import type { OutputItem } from '../protocol/items.ts'
import type { Annotation, Citable } from '../protocol/parts.ts'
import type { ResponsesRequest } from '../protocol/request.ts'
import type { ResponseResource } from '../protocol/response.ts'
import { type RouterName, routerOf, routerSlug } from '../protocol/routers.ts'
import type { InputGuard } from './guard/guard.ts'
import { PluginTimes } from './plugin-times.ts'

export interface PluginChains {
  /** The chain of a request; null if no plugin applies. */
  of(request: ResponsesRequest): PluginChain | null
  /** Advice from plugins that a failed request did not use. */
  advice(error: GatewayError, request: ResponsesRequest): readonly string[]
}

/** The plugins of requests on which no plugin may work: none. */
export const NO_PLUGINS: PluginChains = { of: () => null, advice: () => [] }

export function createPluginChains(plugins: readonly AnyPlugin[], clock: Clock): PluginChains {
  const alwaysOn = plugins.filter(plugin => plugin.alwaysOn === true)
  return {
    of(request) {
      const router = routerOf(request)
      const candidates = request.plugins === undefined && router === null ? alwaysOn : plugins
      if (candidates.length === 0) return null
      const active: ActivePlugin[] = []
      for (const plugin of candidates) {
        const ownSettings = request.plugins?.find(({ id }) => id === plugin.id) ?? null
        const isRequested = router !== null && standsFor(plugin, router.name)
        // A router's slug is not a model, so the router runs with its defaults even if the plugin is turned off.
        const settings = isRequested && ownSettings !== null && isOff(ownSettings) ? null : ownSettings
        if (
          !isRequested &&
          (settings === null ? plugin.alwaysOn !== true : isRouter(plugin) || isOff(settings))
        )
          continue
        const activePlugin = plugin.activate(settings as never, request)
        if (activePlugin !== null) active.push(activePlugin)
      }
      return active.length === 0 ? null : new PluginChain(active, clock)
    },
    advice(error, request) {
      return plugins.flatMap(plugin => {
        const settings = request.plugins?.find(({ id }) => id === plugin.id)
        if (settings !== undefined && !isOff(settings)) return []
        const advice = 'advise' in plugin ? plugin.advise?.(error) : null
        return advice == null ? [] : [advice]
      })
    },
  }
}

function isRouter(plugin: AnyPlugin): plugin is AnyPlugin & { readonly routers: readonly RouterName[] } {
  return 'routers' in plugin
}

function standsFor(plugin: AnyPlugin, name: RouterName): boolean {
  const { routers, slugs }: Pick<Plugin, 'routers' | 'slugs'> = plugin as Plugin
  return routers?.includes(name) === true || slugs?.includes(name) === true
}

/** Some plugins cannot be turned off; those that can have this field. */
function isOff(settings: object): boolean {
  return 'enabled' in settings && settings.enabled === false
}

const PASS_VERDICT: Verdict = { kind: 'pass' }
const NO_CHOICE: RouterChoice = { models: [] }
const alwaysWorked = (): boolean => true
const neverWorked = (): boolean => false

export class PluginChain {
  /** True if no part of a turn may be sent before it was judged. */
  readonly holdsTurns: boolean
  readonly judges: boolean
  readonly finishes: boolean
  readonly fits: boolean
  /** True if a batch service may run the model call. */
  readonly isRepeatable: boolean
  /** Maximum number of model calls for one answer. */
  readonly maxCalls: number
  readonly #plugins: readonly ActivePlugin[]
  /** Plugins whose texts were refused, which errors must never repeat. */
  readonly #mutedPlugins = new Set<ActivePlugin>()
  readonly #times: PluginTimes

  constructor(plugins: readonly ActivePlugin[], clock: Clock) {
    this.#plugins = plugins
    this.#times = new PluginTimes(clock)
    this.holdsTurns = plugins.some(plugin => plugin.holds === true)
    this.judges = plugins.some(plugin => plugin.judge !== undefined)
    this.finishes = plugins.some(plugin => plugin.finish !== undefined)
    this.fits = plugins.some(plugin => plugin.fitTo !== undefined)
    this.isRepeatable = plugins.every(plugin => plugin.isRepeatable === true)
    this.maxCalls = Math.max(...plugins.map(plugin => plugin.maxCalls ?? 1))
  }

  /**
   * Replaces a router's slug by the models that it chooses, and notes the router and its strategy on the exchange.
   * Throws or rejects with the reason of a refusal.
   */
  route(exchange: Exchange): void | Promise<void> {
    for (const plugin of this.#plugins) {
      if (plugin.route === undefined) continue
      const name = routerOf(exchange.request)?.name ?? null
      exchange.router = name === null || name.includes('/') ? name : `gateway/${name}`
      exchange.strategy = plugin.strategy ?? exchange.strategy
      const choice = this.#times.run(plugin, () => plugin.route?.(exchange) ?? NO_CHOICE, alwaysWorked)
      return whenReady(choice, ({ models, prompt = exchange.prompt }) => {
        exchange.signal.throwIfAborted()
        exchange.prompt = withModels(prompt, models)
      })
    }
  }

  /**
   * Runs the plugins one after the other, because one may build on the output of another; guardrails check that output
   * before the next plugin sees it. Rejects with the reason of a refusal.
   */
  async prepare(exchange: Exchange, guard: InputGuard | null = null): Promise<void> {
    for (const plugin of this.#plugins) {
      const before = exchange.prompt
      const changes = (prompt = before): boolean => prompt !== before
      const inspect: Inspect = text => this.#times.runUncounted(() => this.#inspect(text, exchange, guard))
      const preparing = this.#times.run(plugin, () => plugin.prepare?.(exchange, inspect), changes)
      const preparedPrompt = isPending(preparing) ? await preparing : preparing
      exchange.signal.throwIfAborted()
      exchange.strategy = plugin.strategy ?? exchange.strategy
      exchange.prompt = preparedPrompt ?? before
      if (exchange.prompt !== before) await this.#rescan(plugin, exchange, before, guard)
    }
  }

  /** The candidates in the order that all plugins give them. */
  order<AnyCandidate extends Candidate>(
    candidates: readonly AnyCandidate[],
    exchange: Exchange,
  ): readonly AnyCandidate[] {
    return this.#plugins.reduce(
      (orderedCandidates, plugin) => plugin.order?.(orderedCandidates, exchange) ?? orderedCandidates,
      candidates,
    )
  }

  /** The way in which the prompt would fit this endpoint. */
  fitting(endpoint: AttemptRecord['endpoint'], prompt: ResponsesRequest): Fitting {
    for (const plugin of this.#plugins) {
      const fit = plugin.fitting?.(endpoint, prompt) ?? 'whole'
      if (fit !== 'whole') return fit
    }
    return 'whole'
  }

  /** True if a plugin turns this part of the input into text. */
  reads(part: object): boolean {
    return this.#plugins.some(plugin => plugin.reads?.(part) === true)
  }

  /** Makes the prompt fit the endpoint that is called next. Rejects with the reason that it cannot be called. */
  async fitTo(
    exchange: Exchange,
    endpoint: AttemptRecord['endpoint'],
    guard: InputGuard | null = null,
  ): Promise<void> {
    for (const plugin of this.#plugins) {
      const before = exchange.prompt
      exchange.prompt = plugin.unfit?.(exchange) ?? before
      const isChanged = (prompt = exchange.prompt): boolean => prompt !== before
      const newPrompt = this.#times.run(plugin, () => plugin.fitTo?.(exchange, endpoint), isChanged)
      const fittedPrompt = isPending(newPrompt) ? await newPrompt : newPrompt
      exchange.signal.throwIfAborted()
      exchange.prompt = fittedPrompt ?? exchange.prompt
      if (exchange.prompt !== before) await this.#rescan(plugin, exchange, before, guard)
    }
  }

  /** Tells the plugins which model has answered. */
  noteAnswer(exchange: Exchange, modelId: string): void {
    for (const plugin of this.#plugins) plugin.noteAnswer?.(exchange, modelId)
  }

  /** Approximate number of tokens that plugins have cut from the prompt. */
  get removedTokens(): number {
    return this.#plugins.reduce((tokens, plugin) => tokens + (plugin.removedTokens ?? 0), 0)
  }

  /** The first verdict other than a pass counts; later plugins are not called. */
  async judge(turn: Turn, exchange: Exchange): Promise<Verdict> {
    for (const plugin of this.#plugins) {
      const verdict = await this.#times.run(
        plugin,
        () => plugin.judge?.(turn, exchange) ?? PASS_VERDICT,
        ({ kind }) => kind !== 'pass',
      )
      if (verdict.kind !== 'pass') return verdict
    }
    return PASS_VERDICT
  }

  /** The items after all plugins. */
  async finish(turn: Turn, exchange: Exchange): Promise<readonly OutputItem[]> {
    let { output } = turn
    for (const plugin of this.#plugins) {
      const before = output
      output = await this.#times.run(
        plugin,
        () => plugin.finish?.({ ...turn, output: before }, exchange) ?? before,
        after => after !== before,
      )
    }
    return output
  }

  /** Observes the time of each plugin that had work to do. */
  observeTimes(metrics: Pick<Metrics, 'pluginSeconds'>): void {
    this.#times.observe(metrics)
  }

  /** Fields that plugins add to the response object. */
  responseFields(): Partial<ResponseResource> {
    let fields: Partial<ResponseResource> = {}
    for (const plugin of this.#plugins) fields = { ...fields, ...plugin.report?.().response }
    return fields
  }

  /** Fields that plugins add to the metadata of an error. */
  failureFields(): Readonly<Record<string, unknown>> {
    let fields: Readonly<Record<string, unknown>> = {}
    for (const plugin of this.#plugins) {
      if (!this.#mutedPlugins.has(plugin)) fields = { ...fields, ...plugin.report?.().failure }
    }
    return fields
  }

  /** Annotations that plugins add to the first text of the answer. */
  annotations(): readonly Annotation[] {
    return this.#plugins.flatMap(plugin => plugin.report?.().annotations ?? [])
  }

  /** Results of searches that plugins have added to the prompt. */
  searchResults(): readonly Citable[] {
    return this.#plugins.flatMap(plugin => plugin.report?.().searchResults ?? [])
  }

  async #inspect(text: string, exchange: Exchange, guard: InputGuard | null): Promise<string> {
    const redactedText = guard === null ? text : await guard.text(exchange, text)
    if (redactedText !== '') await this.#inspectTexts([redactedText], exchange)
    return redactedText
  }

  /**
   * Lets guardrails and plugins check text that a plugin has added to the prompt, such as the text of a file.
   */
  async #rescan(
    plugin: ActivePlugin,
    exchange: Exchange,
    before: ResponsesRequest,
    guard: InputGuard | null,
  ): Promise<void> {
    if (plugin.skipsRescan === true) return
    try {
      await guard?.prompt(exchange, before)
      if (this.#plugins.every(activePlugin => activePlugin.inspect === undefined)) return
      const texts = unseenTexts(exchange.prompt, before).flatMap(({ text }) => (text === '' ? [] : [text]))
      if (texts.length > 0) await this.#inspectTexts(texts, exchange)
    } catch (error) {
      this.#mutedPlugins.add(plugin)
      throw error
    }
  }

  async #inspectTexts(texts: readonly string[], exchange: Exchange): Promise<void> {
    for (const plugin of this.#plugins) {
      await this.#times.run(plugin, () => plugin.inspect?.(exchange, texts), neverWorked)
      exchange.signal.throwIfAborted()
    }
  }
}

/** The request with models in place of the router that it names. */
function withModels(request: ResponsesRequest, chosenModels: readonly string[]): ResponsesRequest {
  const { model, models = [], ...otherFields } = request
  const names = [...(model === undefined ? [] : [model]), ...models]
  const [first, ...otherModels] = new Set(
    names.flatMap(name => (routerSlug(name) === null ? [name] : chosenModels)),
  )
  return {
    ...otherFields,
    ...(first === undefined ? {} : { model: first }),
    ...(otherModels.length === 0 ? {} : { models: otherModels }),
  }
}

/** Converts the fault of a plugin to an internal error: as a provider's failure it would cause another attempt. */
export function pluginFailure(thrown: unknown, { signal }: Pick<Exchange, 'signal'>): unknown {
  if (signal.aborted) return signal.reason
  if (!(thrown instanceof GatewayError) || thrown.retry === 'never') return thrown
  return new GatewayError('internal', INTERNAL_MESSAGE, { cause: thrown })
}

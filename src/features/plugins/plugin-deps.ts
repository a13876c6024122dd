/** Dependencies of plugins, which the composition root passes in. Types only. */
import type { Clock } from '../../base/clock.ts'
import type { Metrics } from '../../base/metrics/metrics.ts'
import type { Ask, AskAs, AttemptRecord } from '../../exchange/exchange.ts'
import type { LastModels, PolicyLookup, RoutableModels, WebSearcher } from '../../exchange/plugin.ts'
import type { Ocr } from '../../providers/upstream/ocr.ts'
import type { FetchPage } from '../../providers/upstream/pages/fetch-page.ts'
import type { GatewayTasks } from '../tasks/pool/pool.ts'
import type { Rankings } from './routers/rankings.ts'
import type { PluginSettings } from './settings.ts'

/** Facts about the models of the catalogue, by id. */
export interface ModelFacts {
  /** True if an endpoint of the model has a context of at most SMALL_CONTEXT_TOKENS. */
  readonly hasSmallContext: (modelId: string) => boolean
  /** True if the model accepts files. */
  readonly takesFiles: (modelId: string) => boolean
  /** True if the model accepts images, including images of a document. */
  readonly takesImages: (modelId: string) => boolean
}

/** Dependencies of all plugins. Each plugin gets all of them; its own `…Deps` type names those that it uses. */
export interface PluginDeps {
  readonly config: PluginSettings
  readonly clock: Clock
  readonly metrics: Metrics
  readonly tasks: GatewayTasks
  /** Calls a model on behalf of an exchange, at the service's expense. */
  readonly ask: Ask
  /** Calls a model on behalf of the caller, who is charged for it. */
  readonly askAs: AskAs
  readonly policyAgainst: PolicyLookup
  readonly modelFacts: ModelFacts
  readonly models: RoutableModels
  readonly lastModels: LastModels
  /** Shares of models by type of task, and their scores. */
  readonly rankings: Rankings
  /** From 0 (inclusive) to 1 (exclusive). */
  readonly draw: () => number
  /** Ids of the models for a fusion request that names none. */
  readonly fusionModels: {
    /** Empty if the catalogue has no model for it. */
    panel(preset: 'general-high' | 'general-budget' | 'general-fast' | null): readonly string[]
    /** Null if the settings name none. */
    readonly analyst: string | null
  }
  /** Estimates the tokens of request values from their length. */
  readonly tokensOf: (values: readonly unknown[]) => number
  /** True if providers of the format truncate a prompt that is too long when `truncation` is `auto`. */
  readonly truncates: (format: AttemptRecord['endpoint']['format']) => boolean
  /** True if the format can pass a file by its URL. */
  readonly filesByLink: (format: AttemptRecord['endpoint']['format']) => boolean
  /** Null if links are disabled. */
  readonly fetchPage: FetchPage | null
  /** Null if no OCR provider is configured. */
  readonly ocr: Ocr | null
  readonly webSearcher: WebSearcher
}

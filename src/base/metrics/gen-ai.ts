/**
 * Metrics named by the OpenTelemetry conventions for generative AI, for dashboards that know only these names. Exists
 * only if the settings enable it. Leaf.
 */
import type { Registry } from 'prom-client'
import { Histogram } from './series.ts'
import { OTHER, type PairLabels, PairLookup } from './speeds.ts'

/** Buckets that the conventions recommend; in seconds, except for tokens. */
const TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864]
const DURATION = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
const FIRST_TOKEN = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
const PER_TOKEN = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5]

const CALL = ['gen_ai_operation_name', 'gen_ai_provider_name', 'gen_ai_request_model'] as const

/**
 * Maximum combinations of provider, model and error with their own series; further ones count as provider and model
 * `other`.
 */
const MAX_FAILURES = 100

/** A finished attempt at a provider. */
interface GenAiCall {
  readonly operation: 'chat' | 'embeddings'
  /** Slug. */
  readonly provider: string
  readonly model: string
  readonly seconds: number
  /** Code of its error; null: it succeeded. */
  readonly error: string | null
  /** Null: unknown. */
  readonly inputTokens: number | null
  readonly outputTokens: number | null
  /** Null: not measured. */
  readonly firstTokenSeconds: number | null
  readonly perTokenSeconds: number | null
}

interface GenAiOptions extends PairLabels {
  readonly registry: Registry
  /** The name of a provider in the conventions. */
  readonly nameOf: (slug: string) => string
}

/** The labels of a pair, under the names of the conventions. */
interface Names {
  readonly gen_ai_provider_name: string
  readonly gen_ai_request_model: string
}

export class GenAiMetrics {
  readonly #tokens: Histogram<(typeof CALL)[number] | 'gen_ai_token_type'>
  readonly #duration: Histogram<(typeof CALL)[number] | 'error_type'>
  readonly #firstToken: Histogram<(typeof CALL)[number]>
  readonly #perToken: Histogram<(typeof CALL)[number]>
  readonly #names: PairLookup<Names>
  readonly #failures = new Set<string>()

  constructor({ registry, nameOf, ...labels }: GenAiOptions) {
    this.#names = new PairLookup(labels, (slug, gen_ai_request_model) => ({
      gen_ai_provider_name: slug === OTHER ? slug : nameOf(slug),
      gen_ai_request_model,
    }))
    this.#tokens = new Histogram({
      name: 'gen_ai_client_token_usage',
      help: 'Tokens of one model call, by type',
      labelNames: [...CALL, 'gen_ai_token_type'],
      buckets: TOKENS,
      registry,
    })
    this.#duration = new Histogram({
      name: 'gen_ai_client_operation_duration_seconds',
      help: 'Duration of one model call, failed ones included',
      labelNames: [...CALL, 'error_type'],
      buckets: DURATION,
      registry,
    })
    this.#firstToken = new Histogram({
      name: 'gen_ai_server_time_to_first_token_seconds',
      help: 'From sending a streamed request to its first content',
      labelNames: CALL,
      buckets: FIRST_TOKEN,
      registry,
    })
    this.#perToken = new Histogram({
      name: 'gen_ai_server_time_per_output_token_seconds',
      help: 'Time for each output token after the first content',
      labelNames: CALL,
      buckets: PER_TOKEN,
      registry,
    })
  }

  observe(call: GenAiCall): void {
    const { error, inputTokens, outputTokens, firstTokenSeconds, perTokenSeconds } = call
    const names = { gen_ai_operation_name: call.operation, ...this.#names.of(call.provider, call.model) }
    if (error !== null) {
      this.#duration.observe({ ...this.#ofFailure(names, error), error_type: error }, call.seconds)
      return
    }
    this.#duration.observe({ ...names, error_type: '' }, call.seconds)
    if (inputTokens !== null) this.#tokens.observe({ ...names, gen_ai_token_type: 'input' }, inputTokens)
    // Embeddings have no output tokens.
    if (outputTokens !== null && call.operation === 'chat')
      this.#tokens.observe({ ...names, gen_ai_token_type: 'output' }, outputTokens)
    if (firstTokenSeconds !== null) this.#firstToken.observe(names, firstTokenSeconds)
    if (perTokenSeconds !== null) this.#perToken.observe(names, perTokenSeconds)
  }

  #ofFailure<Labels extends Names>(names: Labels, error: string): Labels {
    const key = `${names.gen_ai_provider_name}\n${names.gen_ai_request_model}\n${error}`
    if (this.#failures.size < MAX_FAILURES) this.#failures.add(key)
    if (this.#failures.has(key)) return names
    return { ...names, gen_ai_provider_name: OTHER, gen_ai_request_model: OTHER }
  }
}
